// A program started from itself, for measurements in which every process is one of its own.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace shoal {

// Runs this program with these flags. What it prints is read here; the destructor waits for its
// end.
class Child {
 public:
  explicit Child(std::vector<std::string> flags);
  ~Child();
  Child(const Child&) = delete;

  // Returns the next number that it prints. Throws ConfigError if it ended before.
  double number();
  // Returns the seconds that its threads have computed so far, in the program and in the system.
  double cpu_seconds() const;

 private:
  pid_t process_ = 0;
  FILE* out_ = nullptr;
};

// Returns a port of the loopback address without a listener.
std::uint16_t unused_port();

}  // namespace shoal
