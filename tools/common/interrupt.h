// SIGINT, SIGHUP and SIGTERM asked about between two steps instead of ending the program in the middle of one.
#pragma once

#include <csignal>
#include <string>

namespace shoal {

// Holds the signals back from the moment it is made, in this thread and those started after it; a file that outgrows the
// process's limit becomes an error of its write. Made once, early in a tool's body; the destructor puts all back as it was.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  // Throws a ConfigError with the shell's code for the signal (128 + its number) if one came; `outcome` is said with it.
  void check(const std::string& outcome) const;

 private:
  sigset_t signals_, before_;
};

}  // namespace shoal
