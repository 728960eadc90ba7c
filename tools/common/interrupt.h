// SIGINT, SIGHUP and SIGTERM asked about between two steps instead of ending the program in the
// middle of one.
#pragma once

#include <atomic>
#include <csignal>
#include <string>
#include <thread>

namespace shoal {

// Made once, early in a tool's body, on the main thread; the destructor puts all back as it was.
// From then on the signals wait at the main thread until check() asks: its mask, and that of
// threads it starts, holds them back. A thread made for it, or a library's that was there before,
// takes the first, hands it over and says so on stderr; a second one of its kind ends the program
// at once.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  // Throws a ConfigError with the shell's code for the signal (128 + its number) if one came;
  // `outcome` is said with it.
  void check(const std::string& outcome) const;

 private:
  static constexpr int kSignals[] = {SIGINT, SIGHUP, SIGTERM};
  sigset_t signals_, mask_before_;
  struct sigaction actions_before_[3];
  std::atomic<bool> over_ = false;
  std::jthread taker_;
};

}  // namespace shoal
