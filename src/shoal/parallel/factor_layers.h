// The layers whose gradients travel as factors (Poseidon's SVB): each worker sends the factors of
// its batch to all others, every worker adds up the same gradient in the order of workers, and
// applies the same update to its own copy of the params.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "shoal/layers/factored.h"
#include "shoal/parallel/exchange_choice.h"
#include "shoal/parallel/row_waits.h"
#include "shoal/parallel/table_exchange.h"
#include "shoal/solver/local_rule.h"
#include "shoal/table/buffer.h"

namespace shoal::parallel {

// The server in each worker's process, for what that worker writes; a worker without one is given
// another's.
std::vector<std::uint16_t> servers_by_worker(const table::RosterBody& roster);
// Appends the rows of one worker's message for a layer to `rows`, of which the first is number
// `first`, and returns theirs. sizes.rows: of all its passes.
std::vector<table::RowId> add_message(const Factored::Sizes& sizes, int layer, std::size_t worker,
                                      std::uint16_t server, table::RowId first,
                                      std::vector<table::Row>& rows);

// The factors of a worker for one layer and clock are one message: top_grad (rows, outputs), bottom
// (rows, inputs), and how much the worker counts, 0 if its iteration has no update. The message is
// cut into rows of the table that this worker alone writes, on the server in its process, or on
// another server if it has none. All calls on the solver's thread, destination apart.
class FactorLayers {
 public:
  // For a setup whose scheme takes the gradients of a clock together.
  FactorLayers(const TableSetup& setup, const Layers& layers);

  bool owns(int layer) const { return find(layer) != nullptr; }
  const Layers& layers() const { return layers_; }
  // Of every param of the net, as Checkpointed says; null where the layer is another's.
  std::vector<Tensor*> histories();

  // The rows of all workers' messages, of which the first gets this number.
  std::vector<table::Row> rows(table::RowId first);
  // For a row of another worker's message.
  std::span<float> destination(table::RowId row) const;

  // An iteration begins.
  void begin(table::Clock iteration, float rate);
  // Before the layer's first forward pass of the iteration: the updates that the scheme demands of
  // it, then asks for what the others send next.
  Status before_forward(int layer, RowWaits& waits);
  // After the layer's backward pass: false if a factor is not finite.
  bool is_finite(int layer) const;
  // Sends the layer's factors; or, for all layers, zeros that count nothing.
  void send(int layer, float weight);
  void send_nothing();
  // Waits for the factors of all iterations so far and applies their updates.
  Status apply_all(RowWaits& waits);

 private:
  using Message = std::shared_ptr<table::Buffer>;

  struct Sent {
    table::Clock clock = 0;
    float rate = 0;
    Message own{};
  };
  // One of the layers.
  struct Part final : public FactorSink {
    Part(const TableSetup& setup, int layer);
    ~Part() override;
    void begin(std::size_t worker);
    void take(const Tensor& top_grad, const Tensor& bottom) override;
    Status update(Net& net, const table::Scheme& scheme, const Sent& sent);
    std::size_t length(std::size_t worker) const;  // of its message

    const int layer;
    Factored& factored;
    const Factored::Sizes sizes;
    const int passes;
    LocalRule rule;
    std::vector<std::int64_t> rows;              // by worker, of all passes
    std::vector<std::vector<table::RowId>> ids;  // by worker: the table's rows of its message
    std::vector<std::vector<float>> received;    // by worker; none of this one
    std::vector<Message> pool;                   // for own messages
    Message own;                                 // of this iteration
    int pass = 0;
    Tensor top_grad, bottom;
    std::deque<Sent> sent;  // whose updates are still to do, the oldest first
  };

  Part* find(int layer) const;
  void ask(const Part& part, table::Clock clock);
  // The updates of the clocks before `end`.
  Status apply(Part& part, table::Clock end, RowWaits& waits);

  Net& net_;
  table::Table& table_;
  const Layers layers_;
  const FactorTiming timing_;
  const std::unique_ptr<table::Scheme> sum_;  // how the gradients of a clock become one update
  const std::size_t own_;                     // this worker
  std::vector<std::unique_ptr<Part>> parts_;
  // by row of the table, from first_ on: its place in a worker's message
  struct Piece {
    Part* part = nullptr;
    std::size_t worker = 0, offset = 0, length = 0;
  };
  std::vector<Piece> pieces_;
  table::RowId first_ = 0;
  table::Clock iteration_ = -1;
  float rate_ = 0;
};

}  // namespace shoal::parallel
