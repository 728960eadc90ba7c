// Local SGD with model averaging: all workers make the same number of steps of their own solvers
// from the same weights, then the weights move by global_rate times the mean of the changes:
//   W += r * mean(w_k - W)
// Sources: McMahan et al. (FedAvg), AISTATS 2017; Stich, "Local SGD converges fast", ICLR 2019;
// SpeeDO's sync. With one step, no momentum and no clip it is bsp. With global_momentum these moves
// have one: FedAvgM (Hsu et al. 2019), and with global_nesterov DiLoCo's outer steps (Douillard et
// al. 2023).
#include "shoal/table/scheme/make.h"
#include "shoal/table/scheme/together.h"

namespace shoal::table {

std::unique_ptr<Scheme> make_local_steps(Parameters& parameters) {
  Task task = read_averaging(parameters);
  task.steps = static_cast<int>(parameters.local_steps());
  return std::make_unique<InStep>(parameters.spec(), task);
}

}  // namespace shoal::table
