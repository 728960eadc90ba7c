#include "common/table_outputs.h"

#include "shoal/base/log.h"
#include "shoal/parallel/recorder.h"
#include "shoal/solver/solver.h"

namespace shoal {
void TableOutputs::open(Solver& solver) {
  std::vector<std::vector<std::string>> nets = {parallel::output_columns(solver.net())};
  for (const auto& net : solver.test_nets()) nets.push_back(parallel::output_columns(*net));
  outputs_ = or_throw(NetOutputs::open(prefix_, nets, solver.iteration()));
}

void TableOutputs::tested(int net, const Measured& row) {
  add(static_cast<std::size_t>(net) + 1, row);
  if (outputs_ && failure_.ok()) note(outputs_->gather());
}

Status TableOutputs::close() {
  if (outputs_ && failure_.ok()) note(outputs_->gather());
  return failure_;
}

void TableOutputs::add(std::size_t net, const Measured& row) {
  if (outputs_ && failure_.ok())
    note(outputs_->add(net, {row.iteration, row.seconds, row.loss, row.outputs}));
}

void TableOutputs::note(const Status& status) {
  if (status.ok()) return;
  failure_ = Error{status.error().code, "--net_outputs: " + status.error().message};
  LOG(WARNING) << failure_.error().message << "; training goes on without these tables";
}

}  // namespace shoal
