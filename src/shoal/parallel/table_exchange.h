// The base of the exchanges over a table: their rows, the pacer, waiting, and going on from a
// state.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "shoal/parallel/pacer_client.h"
#include "shoal/parallel/param_staging.h"
#include "shoal/parallel/row_map.h"
#include "shoal/parallel/row_waits.h"
#include "shoal/parallel/way.h"
#include "shoal/parallel/worker.h"
#include "shoal/solver/recipe.h"

namespace shoal::parallel {

// The parts that an exchange over a table is made of.
struct TableSetup {
  const SolverParameter& param;
  Net& net;
  const Layers& layers;
  table::Table& table;
  const WorkerOptions& options;
  const table::Scheme& scheme;
  const std::vector<Way>& ways;  // by layer of the net
};

// For gradients: one a task, and the servers apply the rule.
std::unique_ptr<Exchange> make_gradient_exchange(const TableSetup& setup);
// For deltas and weights: a task is some iterations of a solver of this worker's own.
std::unique_ptr<Exchange> make_local_steps_exchange(const TableSetup& setup);

class TableExchange : public Exchange {
 public:
  const TeamPolicy& policy() const final { return policy_; }
  Result<Permission> wait_to_begin(std::int64_t iteration) final;
  Status settle(Settle how) final;
  std::optional<double> seconds_waited() const final { return waits_.seconds(); }
  void start_at(std::int64_t iteration, const std::vector<std::int64_t>& all) override;

 protected:
  TableExchange(const TableSetup& setup, const RowExtras& extras);

  // ---- what the two kinds do each in their way ----
  // The rows exist: asks for the first numbers.
  virtual Status first_read(const table::Plan& plan) = 0;
  // The pacer says that the rows are to be read anew before the next task.
  virtual Status reread() = 0;
  // After settle(kOwn): takes what other workers added since.
  virtual Status refresh() = 0;
  // All rows that were asked for have arrived, and the params are what they say.
  virtual Status receive_all() = 0;
  // The rows of the plan behind those of the map.
  virtual std::vector<table::Row> more_rows(table::RowId first) = 0;
  // Where the weights of a row are to be written; called by the table's threads.
  virtual table::Destination destination(table::RowId row) = 0;

  // Creates the rows when this is first called.
  Status create();
  // At the start of a task.
  Status begin_task(std::int64_t iteration, float rate);
  // Returns when the rows have arrived and are the params' numbers.
  Status receive(std::span<const table::RowId> rows);
  void get(table::RowId row, table::Clock clock);
  // Asks for all rows that learn as of `clock`, and receives them.
  Status read(table::Clock clock);
  // Pushes; the answers are the rows' new weights.
  void push(std::span<const table::Push> pushes);
  // A local step is over.
  void step_done();
  // The memory of histories, in the order of Checkpointed, that the table reads and writes.
  void fix_histories(const std::vector<Tensor*>& histories);
  bool is_chief() const { return table_.worker() == 0; }
  // The clock of the next task.
  table::Clock next() const { return iteration_ + 1; }

  const Recipe recipe_;
  const WorkerOptions options_;
  const table::Task task_;
  const bool lockstep_;
  const TeamPolicy policy_;
  Net& net_;
  table::Table& table_;
  const RowMap map_;
  ParamStaging staging_;
  // what a layer has for the others leaves as soon as it is there: no later layer can take it back
  const bool early_;
  std::vector<table::RowId> all_, learning_;
  RowWaits waits_;
  PacerClient pacer_;
  bool created_ = false;
  bool resumed_ = false;         // histories were restored on the chief
  table::Clock start_ = 0;       // the iteration from which this run goes on
  table::Clock iteration_ = -1;  // under way, or the last
  float rate_ = 0;

 private:
  void pin_params(const TableSetup& setup);
  std::vector<bool> in_place(const TableSetup& setup) const;
  table::Destination place(table::RowId row, table::Part part);

  std::vector<table::Clock> clocks_;  // of each worker's start, where there is no common one
  std::vector<std::span<float>> histories_;
};

}  // namespace shoal::parallel
