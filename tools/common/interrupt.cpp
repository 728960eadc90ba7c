#include "common/interrupt.h"

#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "shoal/base/error.h"

namespace shoal {
namespace {

void hand_to_main_thread(int signal) {
  const int error = errno;
  // On Linux the main thread's number is the process's.
  ::tgkill(::getpid(), ::getpid(), signal);
  constexpr char kWords[] =
      "Stopping as soon as what is under way allows it; the same signal again ends at once.\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kWords, sizeof kWords - 1);
  errno = error;
}

}  // namespace

Interrupt::Interrupt() {
  sigemptyset(&signals_);
  for (const int signal : kSignals) sigaddset(&signals_, signal);
  pthread_sigmask(SIG_BLOCK, &signals_, &mask_before_);
  struct sigaction action {};
  action.sa_handler = hand_to_main_thread;
  action.sa_flags = SA_RESTART | SA_RESETHAND;
  for (int i = 0; i < 3; ++i) ::sigaction(kSignals[i], &action, &actions_before_[i]);
  taker_ = std::jthread([this] {
    pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
    over_.wait(false);
  });
}

Interrupt::~Interrupt() {
  over_ = true;
  over_.notify_all();
  taker_.join();
  for (int i = 0; i < 3; ++i) ::sigaction(kSignals[i], &actions_before_[i], nullptr);
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

void Interrupt::check(const std::string& outcome) const {
  const timespec now{0, 0};
  const int signal = sigtimedwait(&signals_, nullptr, &now);
  if (signal > 0)
    throw ConfigError(static_cast<Code>(128 + signal), "stopped by signal ", signal, "; ", outcome);
}

}  // namespace shoal
