#include "common/first_here.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <memory>

#include "shoal/base/address.h"
#include "shoal/base/error.h"

namespace shoal {
namespace {

// Returns whether a socket of this machine's own kind could have that address.
bool is_own(const addrinfo& found) {
  const int socket = ::socket(found.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return false;
  const bool own = ::bind(socket, found.ai_addr, found.ai_addrlen) == 0;
  ::close(socket);
  return own;
}

// Returns the socket with this name, of all in the machine's network; -1 if another process has it.
int take_name(const std::string& name) {
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return -1;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // A 0 in front keeps the name out of every file system.
  const std::size_t length = std::min(name.size(), sizeof address.sun_path - 1);
  std::copy_n(name.begin(), length, address.sun_path + 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&address), size) == 0) return socket;
  ::close(socket);
  return -1;
}

}  // namespace

FirstHere::FirstHere(const std::string& address) {
  const auto [host, port] = split_address(address);
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &list); error != 0)
    throw ConfigError(Code::kPeer, "process 0 is to be at ", address,
                      ", and the name cannot be resolved: ", ::gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, ::freeaddrinfo);
  for (const addrinfo* found = list; found != nullptr; found = found->ai_next)
    if (is_own(*found)) {
      socket_ = take_name(str("shoal process 0 at port ", port));
      return;
    }
}

FirstHere::~FirstHere() {
  if (socket_ >= 0) ::close(socket_);
}

}  // namespace shoal
