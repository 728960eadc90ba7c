// Histories in a solver state, in Caffe's order: the rule's first history of every param, then its
// second.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "shoal/optim/rate.h"
#include "shoal/optim/rule.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/tensor/shape.h"

namespace shoal {

class Net;

// Adds the next history.
void put_history(const Shape& shape, std::span<const float> numbers, SolverState& state);
// Throws ConfigError if histories that a solver of type `written` made are not those of `rule`,
// both of which it names. Those of SGD and Nesterov are alike. If no file says it, `written` is "",
// and the signs of the histories are looked at.
void check_rule(const std::string& written, const SolverState& state, const std::string& file,
                optim::Rule rule);
// Returns how many steps the rate has taken by the iteration of the state: as many as the solver's
// stepvalues say. A state of another policy, or of other stepvalues, counted other steps; a warning
// says so.
std::int64_t steps_by_solver(const optim::RateOptions& rate, const SolverState& state,
                             const std::string& file);
// Calls `take` with the rule's history h of param i, in order; the numbers are good during the
// call. Throws ConfigError, before the first call or between two, unless count and shapes are those
// of net and rule. `file` is where the state was read from.
void take_histories(
    const SolverState& state, const std::string& file, Net& net, optim::Rule rule,
    const std::function<void(std::size_t h, std::size_t i, std::span<const float> numbers)>& take);

}  // namespace shoal
