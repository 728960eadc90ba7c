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

// Returns the outputs that are tops of DetectionEvaluate layers.
std::vector<const Blob*> judged_outputs(const Net& net) {
  std::vector<const Blob*> judged;
  for (int i = 0; i < static_cast<int>(net.layers().size()); ++i) {
    if (net.layers()[static_cast<std::size_t>(i)]->type() != "DetectionEvaluate") continue;
    const Blob* const top = net.tops(i)[0];
    if (std::ranges::find(net.outputs(), top) != net.outputs().end()) judged.push_back(top);
  }
  return judged;
}

}  // namespace

Tester::Tester(const SolverCore& core, Reporter& reporter, Snapshots& snapshots, Boundary& boundary)
    : SolverPart(core), reporter_(reporter), snapshots_(snapshots), boundary_(boundary) {
  read_evaluation();
  read_best();
}

void Tester::read_evaluation() {
  const auto wrong = [&](const auto&... words) {
    return ConfigError(Code::kConfig, options_.name, ": ", words...);
  };
  if (param_.eval_type() != "classification" && param_.eval_type() != "detection")
    throw wrong("eval_type is '", param_.eval_type(), "'; it is classification or detection");
  if (param_.eval_type() != "detection") return;
  ap_version_ = ap_version_named(param_.ap_version());
  if (!ap_version_)
    throw wrong("ap_version is '", param_.ap_version(), "'; it is one of ",
                join(ap_version_names()));
  for (const auto& net : core_.test_nets)
    if (judged_outputs(*net).empty())
      throw wrong("eval_type is \"detection\", but test net '", net->name(),
                  "' has no output of a DetectionEvaluate layer, of which a mean average precision "
                  "could be taken");
}

void Tester::read_best() {
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
  if (ap_version_)
    for (const Blob* output : judged_outputs(net)) names.push_back(output->name);
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
  if (ap_version_ && !boundary_.ending()) {
    const std::vector<TestScore> precise =
        precisions(*core_.test_nets[static_cast<std::size_t>(index)]);
    scores.insert(scores.begin(), precise.begin(), precise.end());
  }
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
  const std::vector<const Blob*> judged =
      ap_version_ ? judged_outputs(net) : std::vector<const Blob*>();
  judgements_.assign(judged.size(), {});
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
    for (std::size_t i = 0; i < judged.size(); ++i) judgements_[i].add(judged[i]->data.host());
  }
  if (own == 0) scores = empty_scores(net);
  TRY(sum_scores(scores, loss));
  TRY(merge_judgements());
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

// Brings the judgements of all members to all of them, in the order of the members.
Status Tester::merge_judgements() {
  if (!core_.in_team() || core_.apart()) return {};
  for (Judgements& own : judgements_) {
    const Result<std::vector<std::string>> all = team_.gather(own.save());
    TRY(all);
    Judgements merged;
    for (const std::string& saved : all.value()) TRY(merged.merge(saved));
    const Result<std::string> shared = team_.share(merged.save());
    TRY(shared);
    own = {};
    TRY(own.merge(shared.value()));
  }
  return {};
}

// Returns the mean of the classes' average precisions of each judged output. Source: SSD, in whose
// mean a class without true boxes counts as 0.
std::vector<TestScore> Tester::precisions(const Net& net) const {
  std::vector<TestScore> scores;
  const std::vector<const Blob*> judged = judged_outputs(net);
  for (std::size_t i = 0; i < judged.size(); ++i) {
    const std::map<int, double> classes = judgements_[i].of_classes(*ap_version_);
    double sum = 0;
    for (const auto& [label, precision] : classes) {
      sum += precision;
      if (param_.show_per_class_result()) LOG(INFO) << "class" << label << ": " << precision;
    }
    const double count = static_cast<double>(std::max<std::size_t>(classes.size(), 1));
    scores.push_back({judged[i]->name, 0, sum / count});
  }
  return scores;
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
