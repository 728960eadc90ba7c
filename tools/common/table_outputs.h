// --net_outputs: what a solver's displays and tests say, as tables on the disk.
#pragma once

#include <optional>
#include <string>

#include "shoal/report/net_outputs.h"
#include "shoal/solver/observer.h"

namespace shoal {

class Solver;

class TableOutputs final : public Observer {
 public:
  explicit TableOutputs(std::string prefix) : prefix_(std::move(prefix)) {}
  // Runs before the first iteration, when it is known where the run goes on. Throws ConfigError
  // (kUsage) if a file cannot be written.
  void open(Solver& solver);
  void displayed(const Measured& row) override { add(0, row); }
  void tested(int net, const Measured& row) override;
  // Writes <prefix>.netoutputs a last time. Returns the first error since open(), kSnapshot.
  Status close();

 private:
  void add(std::size_t net, const Measured& row);
  void note(const Status& status);
  std::string prefix_;
  std::optional<NetOutputs> outputs_;
  Status failure_;  // the first: said once, and training goes on without
};

}  // namespace shoal
