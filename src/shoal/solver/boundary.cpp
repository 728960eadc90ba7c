#include "shoal/solver/boundary.h"
#include "shoal/base/try.h"

namespace shoal {

Status Boundary::enter() {
  if (!options_.team || agreed_at_ == progress_.iteration) return {};
  // The decision of the members depends on the policy that binds them from here on.
  TRY(updater_.settle(Settle::kOwn));
  return pass();
}

// Returns the wish of this member. One that is to leave trains one more iteration first if its
// codecs have left something out, and is asked again behind it.
Action Boundary::asked() {
  const Action wish = core_.asked();
  if (wish != Action::kLeave) return wish;
  if (updater_.send_left_out()) sends_left_out_ = progress_.iteration;
  return sends_left_out_ == progress_.iteration ? Action::kNone : wish;
}

Status Boundary::pass() {
  agreed_at_ = progress_.iteration;
  if (core_.apart()) return stop_for_others();
  const Result<Action> action = team_.agree(progress_.iteration, asked());
  TRY(action);
  const bool due =
      progress_.falls_on(param_.snapshot()) && progress_.iteration > progress_.started_iteration;
  if (due && action.value() != Action::kSnapshot && action.value() != Action::kRequeue)
    TRY(snapshots_.write());
  return act(action.value());
}

// Stops between two iterations of this member, somewhere between others' iterations. A member with
// a wish stops at once, and the others when they learn of it. The chief wants a snapshot at its
// interval.
Status Boundary::stop_for_others() {
  const bool due = team_.chief() && progress_.falls_on(param_.snapshot()) &&
                   progress_.iteration > progress_.started_iteration && !snapshots_.is_written();
  Action mine = asked();
  if (mine == Action::kNone && due) mine = Action::kSnapshot;
  for (;; mine = Action::kNone) {
    if (mine == Action::kLeave) {
      const Result<bool> left = leave();
      TRY(left);
      if (left.value()) return {};
      mine = Action::kNone;
    }
    bool last = mine != Action::kNone && mine != Action::kSnapshot;
    if (mine == Action::kNone || core_.policy.in_step) {
      const Result<Action> action = team_.agree(progress_.iteration, mine);
      TRY(action);
      if (action.value() == Action::kNone) return {};
      last = action.value() != Action::kSnapshot;
      mine = Action::kNone;
    }
    TRY(updater_.settle(Settle::kOwn));
    const Result<Action> action = team_.meet(progress_.iteration, mine, false, last);
    TRY(action);
    if (Status status = act(action.value()); !status.ok() || ending_) return status;
  }
}

// Leaves at the end of this member's task, without the others: its places in the data are handed
// over.
Result<bool> Boundary::leave() {
  TRY(updater_.settle(Settle::kOwn));
  Result<bool> left = team_.leave(progress_.iteration, snapshots_.own_state());
  if (left.ok() && left.value()) ending_ = Ending::kLeft;
  return left;
}

Status Boundary::end_apart() {
  while (!ending_) {
    TRY(updater_.settle(Settle::kOwn));
    const Result<Action> action = team_.meet(progress_.iteration, Action::kNone, true, true);
    TRY(action);
    if (action.value() == Action::kNone) return {};
    TRY(act(action.value()));
  }
  return {};
}

// Returns the chief's answer: others of a team that is apart are at other iterations than the
// snapshot.
Result<bool> Boundary::wants_last_snapshot() {
  bool wants = param_.snapshot_after_train() && !snapshots_.is_written();
  if (!core_.apart() || !param_.snapshot_after_train()) return wants;
  const Result<std::string> shared = team_.share(wants ? "yes" : "");
  TRY(shared);
  return shared.value() == "yes";
}

Result<std::optional<std::int64_t>> Boundary::wait_to_begin() {
  while (!ending_) {
    const Result<Permission> permission = updater_.wait_to_begin(progress_.iteration);
    TRY(permission);
    if (permission.value().begin == Begin::kBegin)
      return std::optional(permission.value().rate_iteration);
    if (permission.value().begin == Begin::kOver) break;
    TRY(pass());
  }
  return std::optional<std::int64_t>();
}

// Every member's snapshot is due, or none is: they are at one iteration, and a snapshot that one
// has written whole all have.
Status Boundary::end_interrupted() {
  if (progress_.falls_on(param_.snapshot()) && progress_.iteration > progress_.started_iteration)
    TRY(snapshots_.write());
  if (!agreed_end_) {
    const Result<Action> ends = team_.ends();
    TRY(ends);
    agreed_end_ = ends.value();
  }
  return act(*agreed_end_);
}

Status Boundary::act(Action action) {
  if (action != Action::kNone && action != Action::kSnapshot) agreed_end_ = action;
  if (action == Action::kSnapshot || action == Action::kRequeue) TRY(snapshots_.write());
  if (action == Action::kStop) ending_ = Ending::kStopped;
  if (action == Action::kRequeue) ending_ = Ending::kRequeue;
  if (action == Action::kRegroup) ending_ = Ending::kRegroups;
  return {};
}

}  // namespace shoal
