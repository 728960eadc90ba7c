// Local SGD with model averaging: all workers make the same number of steps of their own solvers from the same weights, then the weights move
// by global_rate times the mean of what they came to: W += r * mean(w_k - W). Sources: McMahan et al. (FedAvg), AISTATS 2017; Stich,
// "Local SGD converges fast", ICLR 2019; SpeeDO's sync. With one step, no momentum and no clip it is bsp.
#include <utility>

#include "make.h"
#include "together.h"

namespace shoal::table {
namespace {

constexpr std::int64_t kMostSteps = 1'000'000;

class LocalSteps final : public Scheme {
 public:
  LocalSteps(std::string name, Task task, double rate) : name_(std::move(name)), task_(task), rate_(static_cast<float>(rate)) {}
  std::string name() const override { return name_; }
  Task task() const override { return task_; }

  std::optional<Merge> next_merge(const RowView& row) const override {
    std::optional<Merge> merge = merge_clock(row, task_.weighing);
    if (merge) merge->apply = Apply::kAdd, merge->scale *= rate_;
    return merge;
  }

  bool readable(const RowView& row, int worker, Clock clock) const override { return is_readable(row, worker, clock, 0); }
  bool lockstep() const override { return true; }

 private:
  const std::string name_;
  const Task task_;
  const float rate_;
};

}  // namespace

std::unique_ptr<Scheme> make_local_steps(Parameters& parameters) {
  const std::int64_t steps = parameters.whole("local_steps", 1, kMostSteps, 10);
  Task task = read_averaging(parameters);
  task.steps = static_cast<int>(steps);
  const double rate = parameters.number("global_rate", {.above = 0}, 1);
  return std::make_unique<LocalSteps>(parameters.words(), task, rate);
}

}  // namespace shoal::table
