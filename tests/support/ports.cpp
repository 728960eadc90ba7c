#include "support/ports.h"

#include <sys/socket.h>
#include <unistd.h>

#include <random>

#include "shoal/base/log.h"

namespace shoal::test {

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

ReservedPorts::ReservedPorts(std::size_t count) {
  constexpr int kFirst = 10'000, kPorts = 20'000, kTries = 1000;
  std::random_device draw;
  for (int i = 0; i < kTries && ports_.size() < count; ++i) {
    const auto port = static_cast<std::uint16_t>(kFirst + draw() % kPorts);
    sockaddr_in address = loopback(port);
    address.sin_addr.s_addr = INADDR_ANY;
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    PCHECK(fd >= 0);
    // Binds without SO_REUSEADDR at first, so that a port that another socket has is refused.
    if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
      const int yes = 1;
      PCHECK(::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0);
      ports_.push_back(port);
      sockets_.push_back(fd);
    } else {
      ::close(fd);
    }
  }
  CHECK_EQ(ports_.size(), count) << "no ports are free";
}

ReservedPorts::~ReservedPorts() {
  for (const int fd : sockets_) ::close(fd);
}

}  // namespace shoal::test
