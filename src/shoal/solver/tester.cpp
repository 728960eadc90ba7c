#include "shoal/solver/tester.h"

#include <algorithm>
#include <cmath>

#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/base/try.h"
#include "shoal/solver/snapshot.h"

namespace shoal {
namespace {

// Returns one score for each number of each output.
std::vector<TestScore> empty_scores(const Net& net) {
  std::vector<TestScore> scores;
  for (const Blob* output : net.outputs_of_one_size())
    for (std::int64_t i = 0; i < output->data.count(); ++i)
      scores.push_back({output->name, net.loss_weight(*output), 0});
  return scores;
}

void add_outputs(const Net& net, std::vector<TestScore>& scores) {
  std::size_t at = 0;
  for (const Blob* output : net.outputs_of_one_size())
    for (const float value : output->data.host()) {
      // The output grew.
      if (at == scores.size()) scores.push_back({output->name, net.loss_weight(*output), 0});
      scores[at++].mean += value;
    }
}

}  // namespace

Tester::Tester(const SolverCore& core, Reporter& reporter, Snapshots& snapshots, Boundary& boundary)
    : SolverPart(core), reporter_(reporter), snapshots_(snapshots), boundary_(boundary) {
  if (param_.snapshot_best().empty()) return;
  const std::vector<std::string> words = split(param_.snapshot_best(), ' ');
  if (words.size() != 2 || (words[1] != "max" && words[1] != "min"))
    throw ConfigError(
        Code::kConfig, options_.name, ": snapshot_best is '", param_.snapshot_best(),
        "'; it must be the name of a test net's output and max or min, like \"accuracy max\"");
  if (core_.test_nets.empty())
    throw ConfigError(Code::kConfig, options_.name, ": snapshot_best needs a test net");
  const Net& net = *core_.test_nets[0];
  std::vector<std::string> names;
  for (const Blob* output : net.outputs_of_one_size()) names.push_back(output->name);
  if (std::ranges::find(names, words[0]) == names.end()) {
    const bool varies =
        std::ranges::find(net.outputs(), words[0], &Blob::name) != net.outputs().end();
    throw ConfigError(Code::kConfig, options_.name, ": snapshot_best: the test net has no output '",
                      words[0], "'",
                      varies ? " of one size, of which a mean could be taken; such are "
                             : did_you_mean(words[0], names) + "; its outputs are ",
                      join(names));
  }
  best_output_ = words[0];
  best_is_largest_ = words[1] == "max";
}

Status Tester::test_all() {
  if (core_.apart() && !team_.chief()) return {};
  const auto start = SolverCore::Clock::now();
  TRY(core_.settle_all(!core_.apart()));
  snapshots_.test_begins();
  Status status;
  for (int i = 0;
       i < static_cast<int>(core_.test_nets.size()) && status.ok() && !boundary_.ending(); ++i) {
    const Result<std::vector<TestScore>> scores = test(i);
    if (!scores.ok())
      status = scores.error();
    else if (i == 0)
      status = keep_best(scores.value());
  }
  // Otherwise a snapshot that follows holds the states before the test, which is made again.
  if (status.ok() && !boundary_.ending()) snapshots_.test_ends();
  reporter_.away(seconds_since(start));
  return status;
}

Result<std::vector<TestScore>> Tester::test(int index) {
  CHECK(index >= 0 && index < static_cast<int>(core_.test_nets.size()))
      << "test net " << index << " of " << core_.test_nets.size();
  LOG(INFO) << "Iteration " << progress_.iteration << ", Testing net (#" << index << ")";
  std::vector<TestScore> scores;
  double loss = 0;
  TRY(run_batches(index, scores, loss));
  if (boundary_.ending()) {
    LOG(INFO) << "Test interrupted.";
    return std::vector<TestScore>();
  }
  if (param_.test_compute_loss()) LOG(INFO) << "Test loss: " << static_cast<float>(loss);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const TestScore& score = scores[i];
    const auto mean = static_cast<float>(score.mean);
    const std::string weighted = score.loss_weight != 0 ? str(" (* ", score.loss_weight, " = ",
                                                              score.loss_weight * mean, " loss)")
                                                        : "";
    LOG(INFO) << "    Test net output #" << i << ": " << score.output << " = " << mean << weighted;
  }
  reporter_.tested(index, scores, loss);
  return scores;
}

// Computes means over test_iter batches, of which a team's members have about as many each if they
// test together, unless the test is interrupted.
Status Tester::run_batches(int index, std::vector<TestScore>& scores, double& loss) {
  Net& net = *core_.test_nets[static_cast<std::size_t>(index)];
  const int batches = param_.test_iter(index);
  const std::int64_t own =
      core_.test_batches(index)[core_.apart() ? 0 : static_cast<std::size_t>(team_.index())];
  for (std::int64_t b = 0; b < own; ++b) {
    if (!core_.in_team())  // who is alone can stop in the middle
      TRY(boundary_.act(core_.asked()));
    if (boundary_.ending()) return {};
    TRY(team_.status());
    const Result<float> batch_loss = net.forward();
    TRY(batch_loss);
    loss += batch_loss.value() / batches;
    if (b == 0) scores = empty_scores(net);
    add_outputs(net, scores);
  }
  if (own == 0) scores = empty_scores(net);
  TRY(sum_scores(scores, loss));
  for (TestScore& score : scores) score.mean /= batches;
  return {};
}

Status Tester::sum_scores(std::vector<TestScore>& scores, double& loss) {
  if (!core_.in_team() || core_.apart()) return {};
  std::vector<double> sums = {loss};
  for (const TestScore& score : scores) sums.push_back(score.mean);
  TRY(team_.sum(sums));
  loss = sums[0];
  for (std::size_t i = 0; i < scores.size(); ++i) scores[i].mean = sums[i + 1];
  return {};
}

Status Tester::keep_best(const std::vector<TestScore>& scores) {
  const auto found = std::ranges::find(scores, best_output_, &TestScore::output);
  if (best_output_.empty() || found == scores.end() || std::isnan(found->mean)) return {};
  const std::optional<double> best = snapshots_.best();
  if (best && !std::isnan(*best) && !(best_is_largest_ ? found->mean > *best : found->mean < *best))
    return {};
  snapshots_.note_best(found->mean);
  const std::string path = best_path(param_.snapshot_prefix(), snapshot_format(param_));
  LOG(INFO) << "Best " << best_output_ << " so far, " << static_cast<float>(found->mean)
            << ": writing " << path;
  Status written =
      team_.chief() ? write_model(path, net_.to_proto(false), snapshot_format(param_)) : Status();
  return core_.apart() ? written : core_.share_outcome(std::move(written));
}

}  // namespace shoal
