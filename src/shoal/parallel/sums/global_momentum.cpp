#include "shoal/parallel/sums/global_momentum.h"

#include <algorithm>

#include "shoal/base/error.h"
#include "shoal/proto/run.pb.h"

namespace shoal::parallel {

using table::RowId;

GlobalMomentum::GlobalMomentum(const table::Task& task, const RowMap& map)
    : task_(task), map_(map) {
  if (!is_used()) return;
  v_.resize(map.rows().size()), from_.resize(v_.size()), ended_.resize(v_.size());
  for (const RowId row : map.learning()) {
    if (!map.is_param(row)) continue;
    rows_.push_back(row);
    v_[row].assign(map.rows()[row].length, 0);
    from_[row].resize(v_[row].size());
  }
}

void GlobalMomentum::begin(RowId row) {
  if (!is_used() || !map_.is_param(row)) return;
  follow(row);
  std::ranges::copy(map_.weights(row), from_[row].begin());
}

// Adds the worker's share of the momentum. Its weight is divided by the sum of all workers'
// weights, but in a sum by steps each worker's share is one of their number.
void GlobalMomentum::end(RowId row, float weight, std::span<float> delta) {
  if (!is_used()) return;
  ended_[row] = true;
  if (weight == 0) return;
  const float b = task_.global_momentum, own = task_.global_nesterov ? 1 + b : 1;
  const float share = (task_.global_nesterov ? b * b : b) /
                      (task_.weighing == table::Weighing::kSteps ? weight : 1);
  for (std::size_t i = 0; i < delta.size(); ++i) delta[i] = own * delta[i] + share * v_[row][i];
}

// Computes v from the row, which moved by r v, or by r (b v + d) with d = v - b (v before).
void GlobalMomentum::follow(RowId row) {
  if (!ended_[row]) return;
  ended_[row] = false;
  const float b = task_.global_momentum;
  const std::span<const float> now = map_.weights(row);
  for (std::size_t i = 0; i < now.size(); ++i) {
    const float moved = (now[i] - from_[row][i]) / task_.global_rate;
    v_[row][i] = task_.global_nesterov ? (moved + b * v_[row][i]) / (1 + b) : moved;
  }
}

void GlobalMomentum::put(RunState& run) {
  for (const RowId row : rows_) {
    follow(row);
    add_global_momentum(run, map_.piece(row).param, v_[row]);
  }
}

void GlobalMomentum::take(const RunState& run, const std::string& file) {
  if (run.global_momentum_size() == 0) return;
  for (const RowId row : rows_) {
    read_global_momentum(run, file, map_.piece(row).param, map_.piece(row).offset, v_[row]);
    ended_[row] = false;
  }
}

void add_global_momentum(RunState& run, std::size_t param, std::span<const float> v) {
  if (v.empty()) return;
  while (run.global_momentum_size() <= static_cast<int>(param)) run.add_global_momentum();
  run.mutable_global_momentum(static_cast<int>(param))->mutable_value()->Add(v.begin(), v.end());
}

void read_global_momentum(const RunState& run, const std::string& file, std::size_t param,
                          std::size_t offset, std::span<float> v) {
  if (v.empty() || run.global_momentum_size() == 0) return;
  const bool known = static_cast<int>(param) < run.global_momentum_size();
  const auto* numbers = known ? &run.global_momentum(static_cast<int>(param)).value() : nullptr;
  if (!numbers || offset + v.size() > static_cast<std::size_t>(numbers->size()))
    throw ConfigError(Code::kConfig, file, ": its global momentum is of another net: param ", param,
                      " has ", numbers ? numbers->size() : 0, " numbers there");
  std::copy_n(numbers->begin() + static_cast<std::ptrdiff_t>(offset), v.size(), v.begin());
}

}  // namespace shoal::parallel
