// Histories in a solver state, in Caffe's order: the rule's first history of every param, then its
// second.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "shoal/optim/rule.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/tensor/shape.h"

namespace shoal {

class Net;

// Adds the next history.
void put_history(const Shape& shape, std::span<const float> numbers, SolverState& state);
// Calls `take` with the rule's history h of param i, in order; the numbers are good during the
// call. Throws ConfigError, before the first call or between two, unless count and shapes are those
// of net and rule. `file` is where the state was read from.
void take_histories(
    const SolverState& state, const std::string& file, Net& net, optim::Rule rule,
    const std::function<void(std::size_t h, std::size_t i, std::span<const float> numbers)>& take);

}  // namespace shoal
