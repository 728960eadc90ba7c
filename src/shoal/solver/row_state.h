// RowState points at the numbers and histories of one row of an updater, in host memory, so that a
// caller can copy them from one updater to another. It copies nothing itself.
#pragma once

#include <span>
#include <vector>

#include "shoal/net/net.h"
#include "shoal/solver/updater.h"

namespace shoal {

struct RowState {
  std::span<float> numbers;
  std::vector<std::span<float>> histories;  // the rule's, in its order
};

// Returns the state of a row of state.rows(), on the host: to read after settle() and, for
// histories, prepare_save(); to write before start_at(), on the chief of a team, which gives it to
// all. Good until begin().
inline RowState state_of(const Net& net, Checkpointed& state, const StateRow& row) {
  const auto part = [&row](Tensor& of) { return of.host_mut().subspan(row.offset, row.length); };
  RowState made{part(net.params()[row.param].blob->data), {}};
  const std::vector<Tensor*> all = state.histories();
  for (std::size_t i = row.param; i < all.size(); i += net.params().size())
    made.histories.push_back(part(*all[i]));
  return made;
}

}  // namespace shoal
