// Rows of numbers for the observer: a team's are put together on the chief.
#include <algorithm>

#include "shoal/solver/solver.h"

namespace shoal {

// Since the run began to train.
double Solver::seconds() const {
  return seconds_before_ + std::chrono::duration<double>(Clock::now() - started_at_).count();
}

// Not `counts`: the iteration was left out, and others, who wait for this member's row, have theirs
// without it.
void Solver::observe_display(bool counts) {
  if (!observed_ || (!counts && !in_team())) return;
  const double seconds = this->seconds();
  std::vector<double> numbers = {smoothed_loss()};
  for (const Blob* output : net_->outputs()) {
    const float weight = net_->loss_weight(*output);
    for (const float value : output->data.host())
      numbers.push_back(weight != 0 ? weight * value : value);
  }
  if (!in_team())
    return options_.observer->displayed(
        {iteration_, seconds, numbers[0], {numbers.begin() + 1, numbers.end()}});
  if (!counts) std::ranges::fill(numbers, 0);
  team().report(iteration_, counts ? own_items() : 0, numbers);
  if (!options_.observer) return;
  shown_seconds_[iteration_] = seconds;
  pass_on_averages();
}

void Solver::pass_on_averages() {
  for (const Team::Average& average : team().take_averages()) {
    const auto shown = shown_seconds_.find(average.iteration);
    if (shown == shown_seconds_.end() || average.numbers.empty()) continue;
    options_.observer->displayed({average.iteration,
                                  shown->second,
                                  average.numbers[0],
                                  {average.numbers.begin() + 1, average.numbers.end()}});
    shown_seconds_.erase(shown);
  }
}

void Solver::observe_test(int index, const std::vector<TestScore>& scores, double loss) {
  Measured row{iteration_, seconds(), loss};
  for (const TestScore& score : scores) row.outputs.push_back(score.mean);
  pass_on_averages();  // all members have said theirs of before the test
  options_.observer->tested(index, row);
}

// Returns when the averages of all displays were passed on.
Status Solver::end_observing() {
  if (!observed_ || !in_team()) return {};
  double members[] = {1};
  // which the others reach after their last report
  if (Status status = team().sum(members); !status.ok()) return status;
  if (options_.observer) pass_on_averages();
  return {};
}

}  // namespace shoal
