#include "shoal/solver/boundary.h"

namespace shoal {

Status Boundary::enter() {
  if (!options_.team || agreed_at_ == core_.iteration) return {};
  // what members agree on depends on what binds them from here on
  if (Status status = updater_.settle(Settle::kOwn); !status.ok()) return status;
  return pass();
}

Status Boundary::pass() {
  agreed_at_ = core_.iteration;
  if (core_.apart()) return stop_for_others();
  const Result<Action> action = team_.agree(core_.iteration, core_.asked());
  if (!action.ok()) return action.error();
  const bool due = core_.falls_on(param_.snapshot()) && core_.iteration > core_.started_iteration;
  if (due && action.value() != Action::kSnapshot && action.value() != Action::kRequeue)
    if (Status status = snapshots_.write(); !status.ok()) return status;
  return act(action.value());
}

// Between two iterations of this member, somewhere between others' iterations. A member that wants
// something stops at once, and the others when they hear of it. The chief wants a snapshot at its
// interval.
Status Boundary::stop_for_others() {
  const bool due = team_.chief() && core_.falls_on(param_.snapshot()) &&
                   core_.iteration > core_.started_iteration && !snapshots_.is_written();
  Action mine = core_.asked();
  if (mine == Action::kNone && due) mine = Action::kSnapshot;
  for (;; mine = Action::kNone) {
    if (mine == Action::kLeave) {
      const Result<bool> left = leave();
      if (!left.ok()) return left.error();
      if (left.value()) return {};
      mine = Action::kNone;
    }
    bool last = mine != Action::kNone && mine != Action::kSnapshot;
    if (mine == Action::kNone || core_.policy.in_step) {
      const Result<Action> action = team_.agree(core_.iteration, mine);
      if (!action.ok()) return action.error();
      if (action.value() == Action::kNone) return {};
      last = action.value() != Action::kSnapshot;
      mine = Action::kNone;
    }
    if (Status status = updater_.settle(Settle::kOwn); !status.ok()) return status;
    const Result<Action> action = team_.meet(core_.iteration, mine, false, last);
    if (!action.ok()) return action.error();
    if (Status status = act(action.value()); !status.ok() || core_.ending) return status;
  }
}

// At the end of this member's task, without the others: what it has read of its data is handed
// over.
Result<bool> Boundary::leave() {
  if (Status status = updater_.settle(Settle::kOwn); !status.ok()) return status.error();
  Result<bool> left = team_.leave(core_.iteration, snapshots_.own_state());
  if (left.ok() && left.value()) core_.ending = Ending::kLeft;
  return left;
}

Status Boundary::end_apart() {
  while (!core_.ending) {
    if (Status status = updater_.settle(Settle::kOwn); !status.ok()) return status;
    const Result<Action> action = team_.meet(core_.iteration, Action::kNone, true, true);
    if (!action.ok()) return action.error();
    if (action.value() == Action::kNone) return {};
    if (Status status = act(action.value()); !status.ok()) return status;
  }
  return {};
}

// The chief's word: others of a team that is apart are at other iterations than the snapshot.
Result<bool> Boundary::wants_last_snapshot() {
  bool wants = param_.snapshot_after_train() && !snapshots_.is_written();
  if (!core_.apart() || !param_.snapshot_after_train()) return wants;
  const Result<std::string> shared = team_.share(wants ? "yes" : "");
  if (!shared.ok()) return shared.error();
  return shared.value() == "yes";
}

Result<bool> Boundary::wait_to_begin() {
  while (!core_.ending) {
    const Result<Permission> permission = updater_.wait_to_begin(core_.iteration);
    if (!permission.ok()) return permission.error();
    core_.rate_iteration = permission.value().rate_iteration;
    if (permission.value().begin == Begin::kBegin) return true;
    if (permission.value().begin == Begin::kOver) return false;
    if (Status status = pass(); !status.ok()) return status.error();
  }
  return false;
}

Status Boundary::act(Action action) {
  if (action == Action::kSnapshot || action == Action::kRequeue)
    if (Status status = snapshots_.write(); !status.ok()) return status;
  if (action == Action::kStop) core_.ending = Ending::kStopped;
  if (action == Action::kRequeue) core_.ending = Ending::kRequeue;
  if (action == Action::kRegroup) core_.ending = Ending::kRegroups;
  return {};
}

}  // namespace shoal
