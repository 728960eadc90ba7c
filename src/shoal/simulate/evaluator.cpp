#include "shoal/simulate/evaluator.h"

#include <algorithm>

#include "shoal/base/text.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/net_params.h"

namespace shoal::simulate {
namespace {

// Returns the solver that tests. Where phases say how long the run is, it does not warn that there
// is no max_iter.
SolverParameter tester_of(const SolverParameter& param, const parallel::JobSpec& spec) {
  SolverParameter solver = without_snapshots(param);
  if (!solver.has_max_iter() && spec.phases.back().end > 0) solver.set_max_iter(1);
  return solver;
}

}  // namespace

SolverParameter without_snapshots(SolverParameter param) {
  param.clear_snapshot();
  param.set_snapshot_after_train(false);
  param.clear_snapshot_best();
  param.set_display(0);
  return param;
}

Evaluator::Evaluator(const SolverParameter& param, const WorkerSetup& setup)
    : job_(setup.job),
      own_(setup.tally.own_params),
      solver_(tester_of(param, setup.spec),
              {.threads = setup.options.threads, .name = setup.options.name}) {}

std::vector<TestScore> Evaluator::test(const Workers& workers) {
  if (solver_.test_nets().empty() || !load()) return {};
  average_sums(workers);
  return or_throw(solver_.test(0));
}

std::vector<float> Evaluator::weights() {
  std::vector<float> all;
  if (!load()) return all;
  for (const NetParam& param : solver_.net().params())
    std::ranges::copy(param.blob->data.host(), std::back_inserter(all));
  return all;
}

void Evaluator::check(const std::string& target) const {
  std::vector<std::string> names = {kTrainLoss};
  if (!solver_.test_nets().empty())
    for (const Blob* output : solver_.test_nets()[0]->outputs_of_one_size())
      names.push_back(output->name);
  if (std::ranges::find(names, target) == names.end())
    throw ConfigError(Code::kUsage, "the target is '", target,
                      "', which is no output of the test net", did_you_mean(target, names),
                      "; known are ", join(names));
}

// Gives the net the params of the job: the servers' rows, and where each worker updates a param
// itself, worker 0's. False: the rows do not exist yet.
bool Evaluator::load() {
  const Plan* const plan = job_.shard(0).plan();
  RowId row = 0;          // a plan's first rows are those of the params, one after the other
  std::size_t begin = 0;  // of the param in own_
  for (const NetParam& param : solver_.net().params()) {
    const std::span<float> all = param.blob->data.host_mut();
    for (std::size_t at = 0; at < all.size(); ++row) {
      const auto now = plan ? job_.shard(plan->rows[row].server).look(row) : std::nullopt;
      if (!now) return false;
      std::span<const float> numbers = now->payload.floats();
      if (param.lr_mult != 0 && !plan->rows[row].learns && !own_.empty())
        numbers = std::span(own_).subspan(begin + at, numbers.size());
      std::ranges::copy(numbers, all.begin() + static_cast<std::ptrdiff_t>(at));
      at += numbers.size();
    }
    begin += all.size();
  }
  return true;
}

// Sets the values that forward passes change, such as running means, to the mean of the workers
// that have done an iteration, and are there.
void Evaluator::average_sums(const Workers& workers) {
  std::vector<double> sums;
  int with = 0;
  for (const auto& worker : workers) {
    if (worker->running_sums().empty() || worker->is_lost()) continue;
    sums.resize(worker->running_sums().size());
    for (std::size_t i = 0; i < sums.size(); ++i)
      sums[i] += static_cast<double>(worker->running_sums()[i]);
    ++with;
  }
  if (with == 0) return;
  auto from = sums.begin();
  for_each_running_sum(solver_.net(), [&](Tensor& sum) {
    for (float& number : sum.host_mut()) number = static_cast<float>(*from++ / with);
  });
}

}  // namespace shoal::simulate
