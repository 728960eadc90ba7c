// Signals as wishes that a loop asks for.
#pragma once

#include "shoal/solver/solver.h"

namespace shoal {

// The requests that SIGINT and SIGHUP stand for; kNone ignores them.
struct SignalEffects {
  Action interrupt = Action::kStop;
  Action hangup = Action::kSnapshot;
  Action terminate = Action::kRequeue;  // SIGTERM: this, or kLeave of a job
};

// Holds SIGINT, SIGHUP, SIGTERM and SIGUSR1 back until watch_signals() takes them: to have one of
// them end a process that starts would hide that it was asked for a snapshot. First in main, before
// there are threads.
void hold_signals();
// Lets them act as they do on any program.
void release_signals();

// Notes SIGINT, SIGHUP, SIGTERM and SIGUSR1 from now on, and those that were held back. SIGUSR1,
// and SIGTERM unless `effects` say otherwise, ask for a snapshot and an end to be continued
// (kRequeue). A second SIGINT before the first was answered by an end leaves at once, with 128 +
// SIGINT. A reader of the log that goes away is no end. Once, from main's thread.
void watch_signals(const SignalEffects& effects);

// Returns the most urgent wish since the last call: kRequeue before kLeave before kStop before
// kSnapshot.
Action take_signal();

}  // namespace shoal
