// The base of the exchanges in which each worker updates its own copy of some layers' params, with
// the same sum of all workers' gradients.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "shoal/parallel/exchange_cost.h"
#include "shoal/parallel/row_waits.h"
#include "shoal/parallel/table_exchange.h"
#include "shoal/solver/local_rule.h"

namespace shoal::parallel {

// The server in each worker's process, for what that worker writes; a worker without one is given
// another's.
std::vector<std::uint16_t> servers_by_worker(const table::RosterBody& roster);

// The processes of a job, for what an exchange among them costs.
JobSize job_size_of(const table::RosterBody& roster, int replicas);

// How gradients of these weights, of some workers at one clock, become one update.
table::Merge merge_of(const table::Scheme& scheme, table::Clock clock, float rate,
                      std::span<const float> weights);

// Puts `some` histories, null for params of other layers, among `all`.
void add_histories(const std::vector<Tensor*>& some, std::vector<Tensor*>& all);

// A rule for some layers alone, as the setup's solver has it; it computes with this context.
LocalRule rule_of(const TableSetup& setup, const Layers& layers, Context& context);

// Returns an error unless the gradients at which the rule has looked are finite. `words` say which
// they are.
Status check_finite(LocalRule& rule, const std::string& words);

// The messages of a worker for these layers are rows of the table that it alone writes. All calls
// on the solver's thread, destination apart; those with a layer for own layers only.
class ReplicatedLayers {
 public:
  explicit ReplicatedLayers(Layers layers) : layers_(std::move(layers)) {}
  virtual ~ReplicatedLayers() = default;
  ReplicatedLayers(const ReplicatedLayers&) = delete;

  bool owns(int layer) const { return layers_[layer]; }
  // Of every param of the net, as Checkpointed says; null where the layer is another's. Empty
  // without layers.
  virtual std::vector<Tensor*> histories() = 0;

  // The rows of all workers' messages, of which the first gets this number.
  virtual std::vector<table::Row> rows(table::RowId first) = 0;
  // Where the numbers of one of them are to be written, if another worker writes it; called by the
  // table's threads.
  virtual table::Destination destination(table::RowId row) const = 0;

  // An iteration begins.
  void begin(table::Clock iteration, float rate) {
    iteration_ = iteration;
    rate_ = rate;
  }
  // Before the layer's first forward pass of the iteration: the updates that the scheme demands of
  // it, then asks for what the others send next.
  virtual Status before_forward(int layer, RowWaits& waits) = 0;
  // After the layer's backward pass: adds gradients that are to be sent, and still to be looked at,
  // to `gradients`. False: what it has to send is not finite.
  virtual bool prepare(int layer, std::vector<const Tensor*>& gradients) const = 0;
  // Sends the layer's part; or, of all layers, zeros that count nothing.
  virtual void send(int layer, float weight) = 0;
  virtual void send_nothing() = 0;
  // Carries on what other workers have sent their part for. Does not wait.
  virtual void progress() {}
  // Waits for the sums of the oldest iteration whose updates were not applied. Returns the sum of
  // the squares of these layers' gradients, the same bits on all workers; 0 unless they are
  // clipped.
  virtual Result<double> gather_all(RowWaits& waits) = 0;
  // Then applies these updates; `squares` are those of all layers. Returns whether sums of a later
  // iteration are left.
  virtual bool update_all(double squares) = 0;

 protected:
  table::Clock iteration() const { return iteration_; }
  float rate() const { return rate_; }

 private:
  const Layers layers_;
  table::Clock iteration_ = -1;
  float rate_ = 0;
};

// The layers of a setup that go by a collective; its scheme takes the gradients of a clock
// together, before the next iteration.
std::unique_ptr<ReplicatedLayers> make_collective_layers(const TableSetup& setup);

}  // namespace shoal::parallel
