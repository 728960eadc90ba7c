// TableSide holds what the exchanges of one worker share in a segment: the rows that its net's
// params are cut into, the host memory where these rows' numbers arrive, and the waits for rows and
// for the permission to begin a task.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "shoal/parallel/exchange/codec_choice.h"
#include "shoal/parallel/exchange/way.h"
#include "shoal/parallel/row_map.h"
#include "shoal/parallel/rows/pacer_client.h"
#include "shoal/parallel/rows/param_staging.h"
#include "shoal/parallel/rows/push_states.h"
#include "shoal/parallel/rows/row_codecs.h"
#include "shoal/parallel/rows/row_waits.h"
#include "shoal/parallel/worker.h"
#include "shoal/solver/recipe.h"

namespace shoal::parallel {

// The parts from which the exchanges over a table are made.
struct TableSetup {
  const SolverParameter& param;
  Net& net;
  table::Table& table;
  const WorkerOptions& options;
  const table::Scheme& scheme;
  const std::vector<Way>& ways;            // by layer of the net
  const std::vector<LayerCodecs>& codecs;  // likewise
};

// Rows of a plan behind those of the params: messages, each of one worker.
class MessageRows {
 public:
  virtual ~MessageRows() = default;
  // Returns all workers' rows, of which the first gets this number.
  virtual std::vector<table::Row> rows(table::RowId first) = 0;
  // Returns the memory for the numbers of such a row, if another worker writes it. Called on the
  // table's threads.
  virtual table::Destination destination(table::RowId row) = 0;
};

// The worker's side of a table. Rows exist from create() on. All calls on the solver's thread.
class TableSide {
 public:
  explicit TableSide(const TableSetup& setup);
  TableSide(const TableSide&) = delete;

  Net& net;
  table::Table& table;
  const WorkerOptions options;
  const Recipe recipe;
  const table::Task task;
  const bool lockstep;
  // A layer sends as soon as it has something to send: no later layer can take it back.
  const bool sends_early;
  RowWaits waits;
  PacerClient pacer;

  TeamPolicy policy(const TableSetup& setup) const;

  // ---- before create() ----
  // Cuts the params, and the numbers that `extras` names, into rows. Once.
  void map_rows(const TableSetup& setup, const RowExtras& extras);
  // Returns the number by which rows of the plan have a codec.
  std::uint8_t codec_number(const table::CodecSpec& codec) { return codecs_.number_of(codec); }
  // Adds these rows to the plan; several in the order of the calls.
  void add(MessageRows& messages) { messages_.push_back({&messages}); }
  // Continues as Checkpointed::start_at does.
  void start_at(std::int64_t iteration, const std::vector<std::int64_t>& all);
  // No process may be lost while the plan holds, for this reason.
  void bear_no_loss(const std::string& why) { why_none_ = why; }
  // Keeps restored histories out of the job: those that were restored on the chief are its own.
  void keep_own_histories() { resumed_ = false; }

  // ---- rows ----
  const RowMap& map() const { return *map_; }
  // Returns whether answers may say what a row changed by since the last one: its memory is then to
  // hold, when an answer comes, what the last one left there.
  bool answers_changes(table::RowId row) const { return codecs_.answers(row).feedback; }
  // Fetches what the servers' codecs have left out of answers, to save it.
  Status fetch_left_out();
  // Return and set what codecs keep of this worker's pushes, and of answers as they were fetched,
  // as Checkpointed has it; before create() if it is set.
  std::shared_ptr<const OwnState> own_state() const;
  void take_own_state(const OwnState* own);
  std::string own_bytes() const;
  Status take_own_bytes(std::string_view bytes);
  // As Exchange::send_left_out. Pushes are to be whole() then.
  bool send_left_out() { return states_->any() && !std::exchange(whole_, true); }
  bool whole() const { return whole_; }
  std::span<const table::RowId> all() const { return all_; }
  std::span<const table::RowId> learning() const { return learning_; }
  // Makes the rows and asks for the first numbers, when it is first called.
  Status create();
  bool is_created() const { return created_; }
  // Returns whether this worker has numbers that count after `done` iterations: the chief's, or
  // what it was given of them when rows were made.
  bool has_numbers(table::Clock done) const { return table.worker() == 0 || done > start_; }
  bool was_resumed() const { return resumed_; }
  table::Clock start() const { return start_; }
  // Asks for a row. Its numbers go to the param, once it was received.
  void get(table::RowId row, table::Clock clock);
  // Pushes; the answers are the rows' new weights.
  void push(std::span<const table::Push> pushes);
  // Returns when the rows have arrived and are the params' numbers.
  Status receive(std::span<const table::RowId> rows);
  // Asks for all rows that learn as of `clock`, and receives them.
  Status read(table::Clock clock);
  // Sends numbers that arrive from now on here, where there is memory for a row; null: to the
  // params.
  void divert(std::vector<std::vector<float>>* to) { diverted_ = to; }
  // Fixes the memory of histories, in the order of Checkpointed, that the table reads and writes.
  void fix_histories(const std::vector<Tensor*>& histories);
  // Does the same with memory of each param, for the momentum that the table keeps.
  void fix_momentum(std::vector<std::vector<float>>& momentum);
  // Returns the rows of the params, with the table's versions.
  std::vector<StateRow> state_rows() const;

  // ---- tasks ----
  // As Exchange::wait_to_begin, of the exchange that has the tasks.
  Result<Permission> wait_to_begin(std::int64_t iteration, Exchange& exchange);
  Status begin(std::int64_t iteration, float rate);
  void step_done();                                      // a local step
  table::Clock iteration() const { return iteration_; }  // under way, or the last
  table::Clock next() const { return iteration_ + 1; }   // the clock of the next task
  float rate() const { return rate_; }

 private:
  void pin_params(const TableSetup& setup);
  ParamStates all_states() const;
  void take_all_states(const ParamStates& states);
  std::vector<bool> in_place(const TableSetup& setup) const;
  table::Destination place(table::RowId row, table::Part part);
  Status first_read(const table::Plan& plan);

  std::optional<RowMap> map_;
  std::optional<ParamStaging> staging_;
  RowCodecs codecs_;
  std::optional<PushStates> states_;
  bool whole_ = false;
  std::vector<std::vector<float>> left_out_;  // by row: of answers; empty: not known, or zeros
  std::vector<table::RowId> all_, learning_;
  struct Messages {
    MessageRows* rows = nullptr;
    table::RowId end = 0;  // behind their last
  };
  std::vector<Messages> messages_;
  std::string why_none_;
  std::vector<std::vector<float>>* diverted_ = nullptr;
  std::vector<std::span<float>> histories_;
  bool created_ = false;
  bool resumed_ = false;              // histories were restored on the chief
  table::Clock start_ = 0;            // the iteration from which this run goes on
  std::vector<table::Clock> clocks_;  // of each worker's start, where there is no common one
  table::Clock iteration_ = -1;
  float rate_ = 0;
};

}  // namespace shoal::parallel
