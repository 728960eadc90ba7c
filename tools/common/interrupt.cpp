#include "interrupt.h"

#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "shoal/base/error.h"

namespace shoal {
namespace {

void hand_to_main_thread(int signal) {
  const int error = errno;
  ::tgkill(::getpid(), ::getpid(), signal);   // on Linux the main thread's number is the process's
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
}

Interrupt::~Interrupt() {
  for (int i = 0; i < 3; ++i) ::sigaction(kSignals[i], &actions_before_[i], nullptr);
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

void Interrupt::check(const std::string& outcome) const {
  const timespec now{0, 0};
  const int signal = sigtimedwait(&signals_, nullptr, &now);
  if (signal > 0) throw ConfigError(static_cast<Code>(128 + signal), "stopped by signal ", signal, "; ", outcome);
}

}  // namespace shoal
