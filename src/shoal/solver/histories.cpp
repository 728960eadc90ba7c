#include "shoal/solver/histories.h"

#include <algorithm>
#include <optional>

#include "shoal/base/log.h"
#include "shoal/net/net.h"
#include "shoal/proto/io.h"

namespace shoal {
namespace {

// Checks count and shape. Caffe of 2014 wrote four axes for every blob: as many numbers are the
// same history.
void check_history(const BlobProto& history, const NetParam& param, const Net& net,
                   const std::string& file) {
  if (history.data_size() != param.blob->data.count())
    throw ConfigError(Code::kConfig, file, ": the history of param ", param.index, " of layer '",
                      net.layers()[static_cast<std::size_t>(param.layer)]->name(), "' has shape ",
                      Shape(blob_dims(history)).str(), ", and the param ",
                      param.blob->shape().str(), ": the file is from another net");
}

// Returns whether the rule's history h is a sum or a mean of squares.
bool holds_squares(optim::Rule rule, std::size_t h) {
  return rule != optim::Rule::kSgd && rule != optim::Rule::kNesterov &&
         (rule != optim::Rule::kAdam || h == 1);
}

// Counts the signs of what should be velocities or squares.
struct Signs {
  std::int64_t numbers = 0, below_zero = 0, above_zero = 0;
  void add(const BlobProto& history) {
    numbers += history.data_size();
    below_zero += std::ranges::count_if(history.data(), [](float x) { return x < 0; });
    above_zero += std::ranges::count_if(history.data(), [](float x) { return x > 0; });
  }
};

// Looks at the numbers, since a file of BVLC Caffe does not say by which rule it was made.
void check_signs(const SolverState& state, const std::string& file, optim::Rule rule) {
  const auto params = static_cast<std::size_t>(state.history_size() / optim::histories(rule));
  for (std::size_t h = 0; h < static_cast<std::size_t>(optim::histories(rule)); ++h) {
    Signs signs;
    for (std::size_t i = 0; i < params; ++i)
      signs.add(state.history(static_cast<int>(h * params + i)));
    if (holds_squares(rule, h) && signs.below_zero > 0)
      throw ConfigError(Code::kConfig, file, " holds ", signs.below_zero,
                        " histories below 0, and a solver of type ", optim::name_of(rule),
                        " keeps squares, which never are: the file is from another type of solver, "
                        "such as SGD. To go on from its model with fresh histories, give the model "
                        "to --weights");
    constexpr std::int64_t kEnough = 32;  // for all to be above 0 by chance
    if (!holds_squares(rule, h) && signs.below_zero == 0 && signs.above_zero >= kEnough)
      LOG(WARNING) << file << ": none of its " << signs.numbers
                   << " histories is below 0; those of " << optim::name_of(rule)
                   << " usually are. Was the snapshot made by AdaGrad, "
                   << "RMSProp or AdaDelta? Then give its model to --weights instead";
  }
}

bool keeps_velocity(optim::Rule rule) {
  return rule == optim::Rule::kSgd || rule == optim::Rule::kNesterov;
}

}  // namespace

void check_rule(const std::string& written, const SolverState& state, const std::string& file,
                optim::Rule rule) {
  const std::optional<optim::Rule> before = optim::rule_named(written);
  if (!before) return check_signs(state, file, rule);
  if (*before == rule || (keeps_velocity(*before) && keeps_velocity(rule))) return;
  throw ConfigError(Code::kConfig, file, " is from a solver of type ", optim::name_of(*before),
                    ", and this one is of type ", optim::name_of(rule),
                    ", whose histories mean something else. To go on from its model with fresh "
                    "histories, give the model to --weights; to go on as before, say type: '",
                    optim::name_of(*before), "'");
}

std::int64_t steps_by_solver(const optim::RateOptions& rate, const SolverState& state,
                             const std::string& file) {
  if (rate.policy != optim::Policy::kMultistep) return state.current_step();
  std::int64_t steps = 0;
  for (std::int64_t i = 0; i < state.iter(); ++i) steps = optim::steps_taken(rate, i, steps);
  if (steps != state.current_step())
    LOG(WARNING) << file << " has taken " << state.current_step() << " steps of its rate; the "
                 << "stepvalues of this solver make it " << steps << " by iteration "
                 << state.iter() << ". Was lr_policy or a stepvalue changed? The rate goes on as "
                 << "this solver says (BVLC Caffe keeps the other count, and never comes to the "
                 << "stepvalues that it skips)";
  return steps;
}

void put_history(const Shape& shape, std::span<const float> numbers, SolverState& state) {
  BlobProto* blob = state.add_history();
  for (const std::int64_t dim : shape.dims()) blob->mutable_shape()->add_dim(dim);
  blob->mutable_data()->Add(numbers.begin(), numbers.end());
}

void take_histories(
    const SolverState& state, const std::string& file, Net& net, optim::Rule rule,
    const std::function<void(std::size_t h, std::size_t i, std::span<const float> numbers)>& take) {
  const std::size_t params = net.params().size();
  const auto histories = static_cast<std::size_t>(optim::histories(rule));
  if (state.history_size() != static_cast<int>(histories * params))
    throw ConfigError(Code::kConfig, file, " holds ", state.history_size(),
                      " histories, and a solver of type ", optim::name_of(rule), " for the ",
                      params, " params of net '", net.name(), "' has ", histories * params,
                      ": the file is from another net or another type of solver");
  for (std::size_t h = 0; h < histories; ++h)
    for (std::size_t i = 0; i < params; ++i) {
      const BlobProto& history = state.history(static_cast<int>(h * params + i));
      check_history(history, net.params()[i], net, file);
      take(h, i, {history.data().data(), static_cast<std::size_t>(history.data_size())});
    }
}

}  // namespace shoal
