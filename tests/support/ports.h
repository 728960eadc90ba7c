// Ports of this machine that a test gives to the processes that it starts.
#pragma once

#include <netinet/in.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace shoal::test {

// A port of this machine as sockets want it.
sockaddr_in loopback(std::uint16_t port);

// As long as this lives no other test gets these ports: sockets that do not listen are bound to
// them. They do not keep a process from listening there, as long as its socket has SO_REUSEADDR.
// The ports are outside of the range that the system gives to connections.
class ReservedPorts {
 public:
  explicit ReservedPorts(std::size_t count = 1);
  ~ReservedPorts();
  ReservedPorts(ReservedPorts&& other) noexcept = default;

  std::uint16_t operator[](std::size_t i) const { return ports_.at(i); }

 private:
  std::vector<std::uint16_t> ports_;
  std::vector<int> sockets_;
};

}  // namespace shoal::test
