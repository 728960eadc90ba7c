#include "interrupt.h"

#include <ctime>

#include "shoal/base/error.h"

namespace shoal {

Interrupt::Interrupt() {
  sigemptyset(&signals_);
  for (const int signal : {SIGINT, SIGHUP, SIGTERM}) sigaddset(&signals_, signal);
  pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  std::signal(SIGXFSZ, SIG_IGN);
}

Interrupt::~Interrupt() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

void Interrupt::check(const std::string& outcome) const {
  const timespec now{0, 0};
  const int signal = sigtimedwait(&signals_, nullptr, &now);
  if (signal > 0) throw ConfigError(static_cast<Code>(128 + signal), "stopped by signal ", signal, "; ", outcome);
}

}  // namespace shoal
