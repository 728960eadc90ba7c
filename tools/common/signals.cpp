#include "common/signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace shoal {
namespace {

// A handler is given nothing but the signal's number, so what it touches cannot come in by any
// other door.
struct Noted {
  std::atomic<bool> interrupt{false}, hangup{false}, terminate{false}, requeue{false};
  std::atomic<int> interrupts{0};
  std::atomic<Action> on_interrupt{Action::kStop}, on_hangup{Action::kSnapshot},
      on_terminate{Action::kRequeue};
};
Noted noted;
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

extern "C" void note_signal(int signal) {
  if (signal == SIGHUP) noted.hangup = true;
  if (signal == SIGTERM) noted.terminate = true;
  if (signal == SIGUSR1) noted.requeue = true;
  if (signal != SIGINT) return;
  if (++noted.interrupts > 1 && noted.on_interrupt != Action::kNone) ::_exit(128 + SIGINT);
  noted.interrupt = true;
}

constexpr int kWatched[] = {SIGINT, SIGHUP, SIGTERM, SIGUSR1};

sigset_t watched() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : kWatched) ::sigaddset(&set, signal);
  return set;
}

}  // namespace

void hold_signals() {
  const sigset_t set = watched();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

void release_signals() {
  const sigset_t set = watched();
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void watch_signals(const SignalEffects& effects) {
  noted.on_interrupt = effects.interrupt;
  noted.on_hangup = effects.hangup;
  noted.on_terminate = effects.terminate;
  struct sigaction action {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;
  ::sigfillset(&action.sa_mask);
  for (const int signal : kWatched) ::sigaction(signal, &action, nullptr);
  release_signals();
  // In `train 2>&1 | tee log` Ctrl-C ends tee at once: the snapshot must not end with it.
  ::signal(SIGPIPE, SIG_IGN);
}

Action take_signal() {
  if (noted.requeue) return Action::kRequeue;
  if (noted.terminate) return noted.on_terminate;
  const bool interrupt = noted.interrupt.exchange(false), hangup = noted.hangup.exchange(false);
  // The interrupt was answered: the run goes on.
  if (interrupt && noted.on_interrupt == Action::kSnapshot) noted.interrupts = 0;
  const Action first = interrupt ? noted.on_interrupt.load() : Action::kNone;
  const Action second = hangup ? noted.on_hangup.load() : Action::kNone;
  for (const Action action : {Action::kStop, Action::kSnapshot})
    if (first == action || second == action) return action;
  return Action::kNone;
}

}  // namespace shoal
