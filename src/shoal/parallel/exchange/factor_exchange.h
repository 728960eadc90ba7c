// The exchange of layers whose gradients travel as factors (Poseidon's SVB): each worker sends the
// factors of its batch to all others, every worker adds up the same gradient in the order of
// workers, and applies the same update to its own copy of the params.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shoal/parallel/exchange/exchange_choice.h"
#include "shoal/parallel/exchange/exchanges.h"
#include "shoal/parallel/exchange/factor_layer.h"
#include "shoal/parallel/exchange/work_thread.h"

namespace shoal::parallel {

// Appends the rows of one worker's message for a layer to `rows`, of which the first is number
// `first`, and returns theirs. sizes.rows: of all its passes.
std::vector<table::RowId> add_message(const Factored::Sizes& sizes, int layer, std::size_t worker,
                                      std::uint16_t server, table::RowId first,
                                      std::vector<table::Row>& rows);

// Exchanges factors. The factors of a worker for one layer and clock are one message: top_grad
// (rows, outputs), bottom (rows, inputs), and the worker's weight, 0 if its iteration has no
// update. The message is cut into rows of the table that this worker alone writes, on the server in
// its process, or on another server if it has none.
class FactorExchange final : public Exchange, public MessageRows {
 public:
  // Takes the layers of the setup that go by factors. Its scheme takes the gradients of a clock
  // together.
  FactorExchange(const TableSetup& setup, std::shared_ptr<TableSide> side);

  Status begin(std::int64_t, float) override {
    finite_ = true;
    return {};
  }
  void progress() override;
  Status before_forward(int layer) override;
  Status after_backward(std::span<const int> layers) override;
  Gradients gradients() override { return {.finite = finite_}; }
  Result<double> hand_in(bool update) override;
  Status apply(bool update, double squares) override;
  Status settle(Settle how) override;

  std::vector<StateRow> rows() override;
  std::vector<Tensor*> histories() override;
  void start_at(std::int64_t iteration, const std::vector<std::int64_t>& all) override;

  std::vector<table::Row> rows(table::RowId first) override;
  table::Destination destination(table::RowId row) override;

  // ---- after an interruption: a unit is a layer, a part of an update the factors ----
  Result<Standing> interrupt() override;
  void give_unit(std::size_t unit, std::string& out) override;
  Status take_unit(std::size_t unit, std::int64_t version, std::string_view bytes) override;
  void give_part(std::size_t unit, std::int64_t iteration, std::string& out) override;
  Result<double> sum_parts(std::size_t unit, std::int64_t iteration,
                           std::span<const std::string_view> parts) override;
  void update_unit(std::size_t unit, double squares) override;
  void go_on_from(std::int64_t iterations, bool) override { done_ = iterations; }

 private:
  using Part = FactorLayer;

  Part* find(int layer) const;
  std::size_t most_memory() const;  // bytes of messages
  void ask(const Part& part, table::Clock clock);
  // Returns whether the update of the oldest in part.sent may be made, with all its inputs there.
  bool may_begin(const Part& part) const;
  void send(Part& part, float weight);
  // Sends the factors in held_.
  void send_held();
  // Waits for the gradient of the oldest in part.sent.
  Status gather(Part& part);
  // Makes the update of the oldest.
  void update(Part& part, double squares);
  // Makes the updates of the clocks before `end`.
  Status update_before(Part& part, table::Clock end);

  const std::shared_ptr<TableSide> side_;
  const FactorTiming timing_;
  const std::unique_ptr<table::Scheme> sum_;  // how the gradients of a clock become one update
  const std::size_t own_;                     // this worker
  const bool clips_;
  std::vector<std::unique_ptr<Part>> parts_;
  // The place in a worker's message of each row of the table, from first_ on.
  struct Piece {
    Part* part = nullptr;
    std::size_t worker = 0, offset = 0, length = 0;
  };
  std::vector<Piece> pieces_;
  table::RowId first_ = 0;
  bool finite_ = true;                  // this iteration's factors, so far
  table::Clock done_ = 0;               // iterations whose factors were handed in
  std::vector<Part*> held_;             // whose factors are complete and were not sent
  std::unique_ptr<WorkThread> beside_;  // null: nothing is to be done beside the solver's thread
};

}  // namespace shoal::parallel
