#include "shoal/solver/last_iteration.h"

namespace shoal {

void LastIteration::keep() {
  if (!can_be_saved()) return;
  if (!state_) state_.emplace();
  state_->nets = snapshots_.net_states();
  if (net_.context().device().is_host()) state_->sums.save(net_);
  state_->losses = core_.recent_losses;
}

void LastIteration::go_back() {
  if (!state_) return;
  snapshots_.go_back(state_->nets);
  if (net_.context().device().is_host()) state_->sums.restore(net_);
  core_.recent_losses = state_->losses;
}

}  // namespace shoal
