// The state of a worker that makes local steps which no other has.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "shoal/solver/updater.h"

namespace shoal::parallel {

// The state that only this worker has: its weights between two exchanges, and its momentum. The
// weights are those of the rows that learn, one behind the other: other servers cut other rows.
struct OwnSteps final : OwnState {
  std::vector<float> weights;
  // The team's weights that these are compared with, and by fragment the updates since its last
  // push: of scheme streaming alone.
  std::vector<float> teams;
  std::vector<int> since;
  std::vector<std::vector<float>> histories;
  std::int64_t updates = 0;
  std::shared_ptr<const OwnState> side;  // what codecs keep of its pushes
};

// Sets `then`, a row's numbers of before, to what they changed by. `puts_back`: the row has the
// numbers of before again.
inline void take_change(std::span<float> row, bool puts_back, std::span<float> then) {
  for (std::size_t i = 0; i < then.size(); ++i) {
    const float before = then[i];
    then[i] = row[i] - before;
    if (puts_back) row[i] = before;
  }
}

}  // namespace shoal::parallel
