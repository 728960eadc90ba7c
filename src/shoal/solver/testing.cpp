// The solver's tests, and the model that did best in them.
#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/proto/run.pb.h"
#include "shoal/solver/recipe.h"
#include "shoal/solver/snapshot.h"
#include "shoal/solver/solver.h"

namespace shoal {
namespace {

// One score for each number of each output.
std::vector<TestScore> empty_scores(const Net& net) {
  std::vector<TestScore> scores;
  for (const Blob* output : net.outputs())
    for (std::int64_t i = 0; i < output->data.count(); ++i)
      scores.push_back({output->name, net.loss_weight(*output), 0});
  return scores;
}

void add_outputs(const Net& net, std::vector<TestScore>& scores) {
  std::size_t at = 0;
  for (const Blob* output : net.outputs())
    for (const float value : output->data.host()) {
      // an output that grew
      if (at == scores.size()) scores.push_back({output->name, net.loss_weight(*output), 0});
      scores[at++].mean += value;
    }
}

}  // namespace

void Solver::check_best() {
  if (param_->snapshot_best().empty()) return;
  const std::vector<std::string> words = split(param_->snapshot_best(), ' ');
  if (words.size() != 2 || (words[1] != "max" && words[1] != "min"))
    throw ConfigError(
        Code::kConfig, options_.name, ": snapshot_best is '", param_->snapshot_best(),
        "'; it must be the name of a test net's output and max or min, like \"accuracy max\"");
  if (test_nets_.empty())
    throw ConfigError(Code::kConfig, options_.name, ": snapshot_best needs a test net");
  std::vector<std::string> names;
  for (const Blob* output : test_nets_[0]->outputs()) names.push_back(output->name);
  if (std::find(names.begin(), names.end(), words[0]) == names.end())
    throw ConfigError(Code::kConfig, options_.name, ": snapshot_best: the test net has no output '",
                      words[0], "'", did_you_mean(words[0], names), "; its outputs are ",
                      join(names));
  best_ = {words[0], words[1] == "max", std::nullopt};
}

Status Solver::test_all() {
  if (apart() && !team().chief()) return {};
  const auto start = Clock::now();
  if (Status status = settle_all(!apart()); !status.ok()) return status;
  before_test_ = std::make_unique<RunState>();
  put_states(*before_test_);
  Status status;
  for (int i = 0; i < static_cast<int>(test_nets_.size()) && status.ok() && !ending_; ++i) {
    const Result<std::vector<TestScore>> scores = test(i);
    if (!scores.ok())
      status = scores.error();
    else if (i == 0)
      status = keep_best(scores.value());
  }
  before_test_.reset();
  away_seconds_ += std::chrono::duration<double>(Clock::now() - start).count();
  return status;
}

Result<std::vector<TestScore>> Solver::test(int index) {
  CHECK(index >= 0 && index < static_cast<int>(test_nets_.size()))
      << "test net " << index << " of " << test_nets_.size();
  LOG(INFO) << "Iteration " << iteration_ << ", Testing net (#" << index << ")";
  std::vector<TestScore> scores;
  double loss = 0;
  if (Status status = run_batches(index, scores, loss); !status.ok()) return status.error();
  if (ending_) {
    LOG(INFO) << "Test interrupted.";
    return std::vector<TestScore>();
  }
  if (param_->test_compute_loss()) LOG(INFO) << "Test loss: " << static_cast<float>(loss);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const TestScore& score = scores[i];
    const auto mean = static_cast<float>(score.mean);
    const std::string weighted = score.loss_weight != 0 ? str(" (* ", score.loss_weight, " = ",
                                                              score.loss_weight * mean, " loss)")
                                                        : "";
    LOG(INFO) << "    Test net output #" << i << ": " << score.output << " = " << mean << weighted;
  }
  if (options_.observer) observe_test(index, scores, loss);
  return scores;
}

// Means over test_iter batches, of which a team's members have about as many each if they test
// together, unless the test is interrupted.
Status Solver::run_batches(int index, std::vector<TestScore>& scores, double& loss) {
  Net& net = *test_nets_[static_cast<std::size_t>(index)];
  const int batches = param_->test_iter(index);
  const int share = batches / team().size() + (team().index() < batches % team().size() ? 1 : 0),
            own = apart() ? batches : share;
  for (int b = 0; b < own; ++b) {
    if (!in_team())  // who is alone can stop in the middle
      if (Status status = act(ask()); !status.ok()) return status;
    if (ending_) return {};
    if (Status status = team().status(); !status.ok()) return status;
    const Result<float> batch_loss = net.forward();
    if (!batch_loss.ok()) return batch_loss.error();
    loss += batch_loss.value() / batches;
    if (b == 0) scores = empty_scores(net);
    add_outputs(net, scores);
  }
  if (own == 0) scores = empty_scores(net);
  if (Status status = sum_scores(scores, loss); !status.ok()) return status;
  for (TestScore& score : scores) score.mean /= batches;
  return {};
}

Status Solver::sum_scores(std::vector<TestScore>& scores, double& loss) {
  if (!in_team() || apart()) return {};
  std::vector<double> sums = {loss};
  for (const TestScore& score : scores) sums.push_back(score.mean);
  if (Status status = team().sum(sums); !status.ok()) return status;
  loss = sums[0];
  for (std::size_t i = 0; i < scores.size(); ++i) scores[i].mean = sums[i + 1];
  return {};
}

Status Solver::keep_best(const std::vector<TestScore>& scores) {
  const auto found = std::find_if(scores.begin(), scores.end(), [&](const TestScore& score) {
    return score.output == best_.output;
  });
  if (best_.output.empty() || found == scores.end()) return {};
  const bool better =
      !best_.value || (best_.largest ? found->mean > *best_.value : found->mean < *best_.value);
  if (!better) return {};
  best_.value = found->mean;
  const std::string path = best_path(param_->snapshot_prefix());
  LOG(INFO) << "Best " << best_.output << " so far, " << static_cast<float>(found->mean)
            << ": writing " << path;
  Status written = team().chief() ? write_model(path, net_->to_proto(false)) : Status();
  return apart() ? written : share_outcome(std::move(written));
}

}  // namespace shoal
