#include "common/addresses.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "shoal/base/address.h"
#include "shoal/base/text.h"

namespace shoal {
namespace {

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

// `given`: what names it, "--interface=".
std::string address_of_interface(const char* given, const std::string& name) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0)
    throw ConfigError(Code::kUsage, given, name, ": the system does not list its interfaces");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
  std::vector<std::string> known;
  std::string found, found6;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    char text[INET6_ADDRSTRLEN] = {};
    const int family = entry->ifa_addr->sa_family;
    if (family == AF_INET)
      ::inet_ntop(family, &reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr, text,
                  sizeof text);
    else if (family == AF_INET6)
      ::inet_ntop(family, &reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr, text,
                  sizeof text);
    else
      continue;
    known.emplace_back(entry->ifa_name);
    std::string& place = family == AF_INET ? found : found6;
    if (name == entry->ifa_name && place.empty()) place = text;
  }
  if (!found.empty() || !found6.empty()) return found.empty() ? found6 : found;
  std::ranges::sort(known);
  known.erase(std::unique(known.begin(), known.end()), known.end());
  throw ConfigError(Code::kUsage, given, name,
                    ": there is no interface of that name with an address",
                    known_words(name, known));
}

// Returns the address of this machine from which it reaches another; all of them if the system
// knows none.
std::string address_towards(const HostPort& other) {
  const std::string everywhere = "0.0.0.0";
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;  // connecting one sends nothing
  if (::getaddrinfo(other.host.c_str(), other.port.c_str(), &hints, &found) != 0) return everywhere;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    const int socket = ::socket(entry->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket < 0) continue;
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    char text[NI_MAXHOST] = {};
    const bool known = ::connect(socket, entry->ai_addr, entry->ai_addrlen) == 0 &&
                       ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &length) == 0 &&
                       ::getnameinfo(reinterpret_cast<sockaddr*>(&own), length, text, sizeof text,
                                     nullptr, 0, NI_NUMERICHOST) == 0;
    ::close(socket);
    if (known) return text;
  }
  return everywhere;
}

// Returns whether a listener could have the port now, on any address.
bool is_free(int port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return false;
  const int yes = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  const bool free =
      ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      ::listen(socket, 1) == 0;
  ::close(socket);
  return free;
}

std::uint16_t free_port(const std::string& range) {
  const std::size_t dash = range.find('-');
  const int first = std::atoi(range.c_str()),
            last = dash == std::string::npos ? 0 : std::atoi(range.c_str() + dash + 1);
  if (first < 1 || last < first || last > 65535)
    throw ConfigError(Code::kUsage, "--port_range=", range,
                      ": two ports with a dash are wanted, as in 29600-29699");
  for (int port = first; port <= last; ++port)
    if (is_free(port)) return static_cast<std::uint16_t>(port);
  throw ConfigError(Code::kUsage, "--port_range=", range, ": none of these ports is free");
}

}  // namespace

Listening where_to_listen(const JobFlags& flags, const parallel::Place& place) {
  if (!flags.host.empty() && !flags.interface.empty())
    throw ConfigError(Code::kUsage, "--host=", flags.host, " and --interface=", flags.interface,
                      " exclude each other");
  if (flags.port >= 0 && !flags.port_range.empty())
    throw ConfigError(Code::kUsage, "--port=", flags.port, " and --port_range=", flags.port_range,
                      " exclude each other");
  if (flags.port > 65535)
    throw ConfigError(Code::kUsage, "--port=", flags.port,
                      " is no port; they go from 1 to 65535, and 0 is a free one");
  const auto machine = place.machines.empty()
                           ? std::optional<parallel::Process>()
                           : place.machines[static_cast<std::size_t>(place.rank)];
  const HostPort master = split_address(place.master);
  const int master_port = std::atoi(master.port.c_str());
  Listening listening;
  const std::string interface =
      flags.interface.empty() && machine ? machine->interface : flags.interface;
  if (!flags.host.empty())
    listening.address = flags.host;
  else if (!interface.empty())
    listening.address = address_of_interface("--interface=", interface);
  else if (machine)
    listening.address = machine->host;
  else if (place.rank == 0)
    listening.address = master.host;
  else if (!place.interface.empty())
    listening.address = address_of_interface("DMLC_INTERFACE=", place.interface);
  else
    listening.address = is_loopback(master.host) ? "127.0.0.1" : address_towards(master);
  int port = machine ? machine->port : place.rank == 0 ? master_port : 0;
  if (flags.port >= 0) port = flags.port;
  if (!flags.port_range.empty()) port = free_port(flags.port_range);
  listening.port = static_cast<std::uint16_t>(port);
  if (place.rank == 0 && listening.port != master_port)
    throw ConfigError(Code::kUsage, "process 0 would listen on port ", port,
                      ", and others look for it at ", place.master,
                      ": give the same port in --master or the machinefile");
  return listening;
}

bool stays_on_this_machine(const parallel::Place& place, const std::string& bind) {
  return is_loopback(bind) && is_loopback(split_address(place.master).host) &&
         std::ranges::all_of(place.machines, [](const parallel::Process& machine) {
           return is_loopback(machine.host);
         });
}

}  // namespace shoal
