// The numbers and histories of a row of an updater: given to another, or taken from it.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "shoal/net/net.h"
#include "shoal/solver/updater.h"

namespace shoal {

struct RowState {
  std::span<const float> numbers;                   // none: those that the param has stay
  std::vector<std::span<const float>> histories{};  // the rule's, in its order
};

namespace row_state {

inline std::span<float> part(Tensor& of, const StateRow& row) {
  return of.host_mut().subspan(row.offset, row.length);
}
// Calls visit(tensor) for each history of the row.
template <class Visit>
void each_history(const Net& net, Checkpointed& state, const StateRow& row, Visit visit) {
  const std::vector<Tensor*> all = state.histories();
  for (std::size_t i = row.param; i < all.size(); i += net.params().size()) visit(*all[i]);
}

}  // namespace row_state

// Of a row of state.rows(). After settle() and, for histories, prepare_save(). Good until the next
// begin().
inline RowState state_of(const Net& net, Checkpointed& state, const StateRow& row) {
  RowState made{.numbers = row_state::part(net.params()[row.param].blob->data, row)};
  row_state::each_history(net, state, row, [&](Tensor& history) {
    made.histories.push_back(row_state::part(history, row));
  });
  return made;
}
// Before start_at(), on the chief of a team, which gives them to all.
inline void set_state(const Net& net, Checkpointed& state, const StateRow& row,
                      const RowState& given) {
  if (!given.numbers.empty())
    std::ranges::copy(given.numbers,
                      row_state::part(net.params()[row.param].blob->data, row).begin());
  auto from = given.histories.begin();
  row_state::each_history(net, state, row, [&](Tensor& history) {
    std::ranges::copy(*from++, row_state::part(history, row).begin());
  });
}

}  // namespace shoal
