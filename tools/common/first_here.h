// Finds which of several processes on one machine is the first, where nothing else tells them
// apart.
#pragma once

#include <string>

namespace shoal {

// As long as it exists, of all processes on a machine that make one for the same "host:port" one is
// the first; it says so if `host` is an address of this machine.
class FirstHere {
 public:
  // Throws ConfigError (kPeer) if the name of the host cannot be resolved.
  explicit FirstHere(const std::string& address);
  ~FirstHere();
  FirstHere(const FirstHere&) = delete;
  bool is_first() const { return socket_ >= 0; }

 private:
  int socket_ = -1;  // has a name that only one process can have; the system takes it back
};

}  // namespace shoal
