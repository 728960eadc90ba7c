#include "shoal/solver/last_iteration.h"

#include <algorithm>

namespace shoal {
namespace {

// Returns whether layers of the net have states in the memory of a device.
bool waits_for_device(Net& net) {
  return !net.context().device().is_host() &&
         std::ranges::any_of(net.layers(), [](const auto& one) { return !one->carried().empty(); });
}

}  // namespace

void LastIteration::keep() {
  if (!can_be_saved() || waits_for_device(net_)) return;
  if (!state_) state_.emplace();
  state_->nets = snapshots_.net_states();
  if (net_.context().device().is_host()) state_->sums.save(net_);
  state_->losses = progress_.recent_losses;
}

void LastIteration::keep_losses() {
  if (state_) state_->losses = progress_.recent_losses;
}

const std::deque<float>* LastIteration::go_back() {
  if (!state_) return nullptr;
  snapshots_.go_back(state_->nets);
  if (net_.context().device().is_host()) state_->sums.restore(net_);
  return &state_->losses;
}

}  // namespace shoal
