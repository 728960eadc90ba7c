// Makes the exchanges of a worker from the ways of its layers and its scheme, as one updater.
// Declares the functions that the exchanges share, and the job's size.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shoal/parallel/exchange/exchange_choice.h"
#include "shoal/parallel/rows/table_side.h"
#include "shoal/solver/exchange.h"
#include "shoal/solver/local_rule.h"

namespace shoal::parallel {

// Makes an updater of all exchanges that the setup's ways and scheme ask for. Throws ConfigError.
std::unique_ptr<Updater> make_exchanges(const TableSetup& setup);

// Makes the exchange of gradients with the servers, which apply the rule: of all layers that go by
// the table. For this one and the next, call side->map_rows() first, which makes the rows.
std::unique_ptr<Exchange> make_table_exchange(const TableSetup& setup,
                                              std::shared_ptr<TableSide> side);
// Makes the exchange of gradients that the workers sum among themselves, by the collective ways.
// The scheme takes the gradients of a clock together, before the next iteration.
std::unique_ptr<Exchange> make_sum_exchange(const TableSetup& setup,
                                            std::shared_ptr<TableSide> side);
// Makes the exchange of deltas and weights, of all layers: a task is some iterations of a solver of
// this worker's own. Calls map_rows() itself.
std::unique_ptr<Exchange> make_local_steps_exchange(const TableSetup& setup,
                                                    std::shared_ptr<TableSide> side);

// Makes the exchange of deltas by fragments, of all layers, while the steps of a task go on. Calls
// map_rows() itself.
std::unique_ptr<Exchange> make_streaming_exchange(const TableSetup& setup,
                                                  std::shared_ptr<TableSide> side);

// Returns, by worker, the server for the worker's writes: the one in its process; a worker without
// one is given another's.
std::vector<std::uint16_t> servers_by_worker(const table::RosterBody& roster);

// Returns the size of a job, from which the costs of exchanges are predicted.
JobSize job_size_of(const table::RosterBody& roster, int replicas);

// Returns the merge of gradients with these weights, of some workers at one clock, into one update.
table::Merge merge_of(const table::Scheme& scheme, table::Clock clock, float rate,
                      std::span<const float> weights);

// Puts `some` histories, null for params of other layers, among `all`.
void add_histories(const std::vector<Tensor*>& some, std::vector<Tensor*>& all);

// Returns these params, each with its histories behind it; `histories` as Checkpointed has them.
std::vector<Tensor*> with_histories(const Net& net, std::span<const std::size_t> params,
                                    const std::vector<Tensor*>& histories);

// The rows that learn on servers, as a unit of an exchange after an interruption: what this worker
// knows of them (Recoverable). A worker that was an iteration further than others waits for rows
// that will not come.
struct RowsOnServers {
  table::Clock done = 0;    // iterations whose part in them was pushed
  bool is_fetched = false;  // the rows are here for good
  bool is_dropped = false;  // an iteration that others have not done was forgotten

  std::int64_t version() const {
    return is_fetched ? done : is_dropped ? Recoverable::kNothing : Recoverable::kOnServers;
  }
  void go_on_from(std::int64_t iterations, bool leads) {
    is_fetched = leads;
    is_dropped = is_dropped || done > iterations;
    done = iterations;
  }
};

// Makes a rule for some layers alone, as the setup's solver has it; it computes with this context.
LocalRule rule_of(const TableSetup& setup, const Layers& layers, Context& context);

// Returns an error unless the gradients that the rule has examined are finite. `words` name them.
Status check_finite(LocalRule& rule, const std::string& words);

}  // namespace shoal::parallel
