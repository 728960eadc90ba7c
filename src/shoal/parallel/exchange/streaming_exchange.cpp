// The exchange of scheme streaming: a solver of the worker's own makes the steps of a round, and
// each fragment of the rows is exchanged at a step of its own while the steps go on.
#include <algorithm>
#include <functional>
#include <utility>

#include "shoal/base/log.h"
#include "shoal/base/timer.h"
#include "shoal/base/try.h"
#include "shoal/net/net.h"
#include "shoal/parallel/exchange/exchanges.h"
#include "shoal/parallel/exchange/own_steps.h"
#include "shoal/parallel/rows/fragments.h"
#include "shoal/parallel/sums/global_momentum.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/run.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/local_rule.h"
#include "shoal/table/scheme.h"

namespace shoal::parallel {
namespace {

using table::RowId;
using table::Weighing;

class StreamingExchange final : public Exchange {
 public:
  StreamingExchange(const TableSetup& setup, std::shared_ptr<TableSide> side)
      : side_(std::move(side)),
        task_(side_->task),
        local_(side_->recipe, setup.param.snapshot_diff(), setup.net, setup.net.context(),
               Layers(setup.ways.size(), true)),
        map_(mapped(*side_, setup)),
        fragments_(map_, task_.fragments, setup.options.name),
        clock_(task_),
        reads_sums_(setup.param.on_nan() == SolverParameter::SKIP),
        hurries_(setup.scheme.hurries),
        sent_at_(static_cast<std::size_t>(task_.fragments)),
        updates_(static_cast<std::size_t>(task_.fragments)) {
    for (auto* numbers : {&team_, &sent_, &answers_, &own_}) numbers->resize(map_.rows().size());
    for (const RowId row : side_->learning()) {
      for (auto* numbers : {&team_, &sent_, &answers_})
        (*numbers)[row].resize(map_.rows()[row].length);
      if (map_.rows()[row].lr_mult == 0) sums_.push_back(row);
    }
    if (task_.global_momentum == 0) return;
    momentum_.resize(side_->net.params().size());
    for (const RowId row : side_->learning())
      if (const std::size_t p = map_.piece(row).param; map_.is_param(row))
        momentum_[p].resize(static_cast<std::size_t>(side_->net.params()[p].blob->data.count()));
    side_->fix_momentum(momentum_);
  }

  Result<Permission> wait_to_begin(std::int64_t iteration) override {
    return side_->wait_to_begin(iteration, *this);
  }

  Status begin(std::int64_t iteration, float rate) override {
    TRY(side_->begin(iteration, rate));
    TRY(read_first());
    come_back();
    if (reads_sums_)  // the solver looks at them before the first forward
      TRY(take_due(sums_));
    side_->pacer.task_begins();
    return {};
  }

  void progress() override { hurry_overdue(); }
  Status before_forward(int layer) override {
    local_.before_forward(layer);
    return take_due(map_.needed_by(layer));
  }
  Status after_backward(std::span<const int> layers) override {
    for (const int layer : layers) local_.look(layer);
    return {};
  }
  Gradients gradients() override { return local_.gradients(); }
  Status apply(bool update, double squares) override {
    if (!update) {
      local_.skip();
      return {};
    }
    local_.update(own_updates_, side_->rate(), squares);
    ++own_updates_;
    for (int& updates : updates_) ++updates;
    return {};
  }

  Result<bool> another_step() override {
    side_->step_done();
    clock_.step_done();
    const int done = side_->pacer.steps(), steps = side_->pacer.wanted();
    for (int fragment = 0; fragment < clock_.count(); ++fragment)
      if (clock_.leaves(fragment, done, steps)) TRY(send(fragment));
    return steps > done;
  }

  Status settle(Settle how) override {
    TRY(side_->create());
    TRY(read_first());
    TRY(receive_away());
    TRY(take_due(side_->learning()));
    return how == Settle::kTeams ? show_teams() : Status();
  }
  bool send_left_out() override { return side_->send_left_out(); }
  std::optional<double> seconds_waited() const override { return side_->waits.seconds(); }

  std::vector<StateRow> rows() override { return side_->state_rows(); }
  std::vector<Tensor*> histories() override { return local_.histories(); }
  // Fetches the momentum of the table.
  Status prepare_save() override {
    TRY(side_->fetch_left_out());
    std::vector<RowId> rows;
    for (const RowId row : side_->learning())
      if (map_.is_param(row) && !momentum_.empty()) rows.push_back(row);
    for (const RowId row : rows) side_->table.get(row, side_->next(), table::Part::kHistory);
    return side_->waits.wait(rows);
  }
  // Saves the momentum as GlobalMomentum has it: the rule's is of the other sign, and has the rate.
  void put(RunState& run) override {
    run.set_own_updates(own_updates_);
    for (std::size_t p = 0; p < momentum_.size(); ++p) {
      std::vector<float> v = momentum_[p];
      for (float& number : v) number /= -task_.global_rate;
      add_global_momentum(run, p, v);
    }
  }
  void take(const RunState& run, const std::string& file) override {
    if (side_->was_resumed() && run.has_own_updates()) own_updates_ = run.own_updates();
    if (run.global_momentum_size() == 0) return;
    for (std::size_t p = 0; p < momentum_.size(); ++p) {
      read_global_momentum(run, file, p, 0, momentum_[p]);
      for (float& number : momentum_[p]) number *= -task_.global_rate;
    }
  }

  void start_at(std::int64_t iteration, const std::vector<std::int64_t>& all) override {
    side_->start_at(iteration, all);
    own_updates_ = iteration;  // unless the snapshot says what local steps have made
  }

  // Returns this worker's weights, as they are once all answers are applied, the team's that they
  // are compared with, and its momentum.
  std::shared_ptr<const OwnState> own_state() override {
    const auto own = std::make_shared<OwnSteps>();
    for (const RowId row : side_->learning()) {
      const std::span<const float> numbers =
          away_ ? std::span<const float>(own_[row]) : map_.weights(row);
      const std::size_t begin = own->weights.size();
      own->weights.insert(own->weights.end(), numbers.begin(), numbers.end());
      const std::vector<float>& teams = newest(row);
      if (is_away(row)) mix(teams, std::span(own->weights).subspan(begin));
      own->teams.insert(own->teams.end(), teams.begin(), teams.end());
    }
    for (const Tensor* history : own_histories())
      own->histories.emplace_back(history->host().begin(), history->host().end());
    own->updates = own_updates_;
    own->since = updates_;
    own->side = side_->own_state();
    return own;
  }
  std::string own_bytes() override { return side_->own_bytes(); }
  Status take_own_bytes(std::string_view bytes) override { return side_->take_own_bytes(bytes); }

  void take_own_state(std::shared_ptr<const OwnState> state) override {
    CHECK(!side_->is_created()) << "a state of its own after the rows were made";
    before_ = std::static_pointer_cast<const OwnSteps>(state);
    own_updates_ = before_ ? before_->updates : 0;
    const std::vector<Tensor*> histories = own_histories();
    for (std::size_t h = 0; h < histories.size(); ++h) {
      if (before_)
        std::ranges::copy(before_->histories.at(h), histories[h]->host_mut().begin());
      else
        std::ranges::fill(histories[h]->host_mut(), 0.0f);
    }
    if (!before_) return;
    side_->take_own_state(before_->side.get());
    updates_ = before_->since;
    clock_.go_on();
  }

 private:
  static const RowMap& mapped(TableSide& side, const TableSetup& setup) {
    const auto fragments = static_cast<std::size_t>(setup.scheme.task.fragments);
    side.map_rows(setup, {.running_sums = true,
                          .histories = {},
                          .pieces = kPiecesOfFragment * fragments,
                          .replicated = {}});
    return side.map();
  }

  std::vector<Tensor*> own_histories() {
    std::vector<Tensor*> own = local_.histories();
    std::erase(own, nullptr);
    return own;
  }
  // Returns whether the row's answer has not been applied yet.
  bool is_away(RowId row) const { return clock_.is_away(fragments_.of(row)) && !has_come(row); }
  bool has_come(RowId row) const { return sent_[row].empty(); }
  // Returns the team's weights that this worker got last, applied or not.
  const std::vector<float>& newest(RowId row) const {
    return is_away(row) ? answers_[row] : team_[row];
  }

  // Reads the rows with which this worker begins, once. A worker that was in the last generation
  // keeps its steps since, on top of what the team's rows are now.
  Status read_first() {
    if (std::exchange(has_read_, true)) return {};
    TRY(side_->receive(side_->all()));
    std::size_t at = 0;
    for (const RowId row : side_->learning()) {
      const std::span<const float> now = map_.weights(row);
      std::ranges::copy(now, team_[row].begin());
      if (!before_) continue;
      CHECK(at + now.size() <= before_->weights.size()) << "weights of another net";
      own_[row].resize(now.size());
      for (std::size_t i = 0; i < now.size(); ++i, ++at) {
        const float weight = before_->weights[at], teams = before_->teams[at];
        own_[row][i] = now[i] == teams ? weight : now[i] + (weight - teams);
      }
      away_ = true;
    }
    before_.reset();
    side_->divert(&answers_);
    return {};
  }

  // ---- a fragment's way ----
  // Returns the weight of a push after so many updates. One without updates counts nothing, and its
  // answer is the row.
  float weight_of(int fragment) const {
    const int updates = updates_[fragment];
    if (updates == 0) return 0;
    if (task_.weighing == Weighing::kUniform) return 1;
    if (task_.weighing == Weighing::kSamples)
      return side_->options.weight * static_cast<float>(updates);
    const double mean = side_->pacer.mean_steps() * clock_.part_of_round(fragment);
    return static_cast<float>(mean / updates);
  }

  // Pushes what this worker's weights are beyond the team's.
  Status send(int fragment) {
    const std::vector<RowId>& rows = fragments_.rows(fragment);
    TRY(take(rows));
    const float weight = weight_of(fragment);
    std::vector<table::Push> pushes;
    for (const RowId row : rows) {
      const std::span<const float> now = map_.weights(row);
      sent_[row].resize(now.size());
      std::ranges::transform(now, team_[row], sent_[row].begin(), std::minus());
      if (side_->answers_changes(row)) std::ranges::copy(team_[row], answers_[row].begin());
      pushes.push_back({.row = row,
                        .clock = side_->iteration(),
                        .kind = task_.contribution,
                        .weight = weight,
                        .rate = task_.global_rate,
                        .payload = table::as_payload(
                            {weight == 0 ? std::span<const float>() : std::span(sent_[row])}),
                        .whole = side_->whole()});
    }
    clock_.send(fragment);
    sent_at_[fragment] = side_->table.now();
    updates_[fragment] = 0;
    side_->table.push(pushes);
    return {};
  }

  // Hurries the table about fragments for which this worker has waited longer than it grants.
  void hurry_overdue() {
    if (!hurries_) return;
    for (int fragment = 0; fragment < clock_.count(); ++fragment) {
      if (!clock_.is_away(fragment) || sent_at_[fragment] == kHurried) continue;
      if (to_seconds(side_->table.now() - sent_at_[fragment]) < task_.grace) continue;
      hurry(fragment);
    }
  }
  void hurry(int fragment) {
    sent_at_[fragment] = kHurried;
    side_->table.hurry(fragments_.rows(fragment));
  }

  // Applies the answers for those of the rows whose time has come.
  Status take_due(std::span<const RowId> rows) {
    std::vector<RowId> due;
    for (const RowId row : rows)
      if (map_.rows()[row].learns && is_away(row) && clock_.is_due(fragments_.of(row)))
        due.push_back(row);
    return take(due);
  }

  Status take(std::span<const RowId> rows) {
    std::vector<RowId> away;
    for (const RowId row : rows)
      if (is_away(row)) away.push_back(row);
    TRY(receive(away));
    for (const RowId row : away) {
      mix(answers_[row], map_.weights(row));
      team_[row].swap(answers_[row]);
      sent_[row].clear();
    }
    return {};
  }

  // Waits for answers. There is no more time to grant to others.
  Status receive(std::span<const RowId> rows) {
    if (rows.empty()) return {};
    if (hurries_ && !side_->table.has(rows))
      for (const RowId row : rows)
        if (const int f = fragments_.of(row); sent_at_[f] != kHurried) hurry(f);
    return side_->waits.wait(rows);
  }
  Status receive_away() {
    std::vector<RowId> away;
    for (const RowId row : side_->learning())
      if (is_away(row)) away.push_back(row);
    return receive(away);
  }

  void mix(std::span<const float> teams, std::span<float> own) const {
    const float a = task_.mix;
    if (a == 0) return std::ranges::copy(teams, own.begin()), void();
    for (std::size_t i = 0; i < own.size(); ++i) own[i] = a * own[i] + (1 - a) * teams[i];
  }

  // ---- the team's weights, for a test or a snapshot ----
  // Puts this worker's own weights away and shows the team's. In lockstep these are what all have
  // read last.
  Status show_teams() {
    if (!std::exchange(away_, true))
      for (const RowId row : side_->learning()) {
        const std::span<const float> now = map_.weights(row);
        own_[row].assign(now.begin(), now.end());
      }
    if (side_->lockstep) {
      for (const RowId row : side_->learning())
        std::ranges::copy(newest(row), map_.weights(row).begin());
      return {};
    }
    side_->divert(nullptr);
    const Status status = side_->read(side_->next());
    side_->divert(&answers_);
    return status;
  }
  void come_back() {
    if (!std::exchange(away_, false)) return;
    for (const RowId row : side_->learning())
      std::ranges::copy(own_[row], map_.weights(row).begin());
  }

  static constexpr table::Instant kHurried{-1};

  const std::shared_ptr<TableSide> side_;
  const table::Task& task_;
  LocalRule local_;
  const RowMap& map_;
  const Fragments fragments_;
  FragmentClock clock_;
  const bool reads_sums_, hurries_;
  std::vector<RowId> sums_;  // of running means and the like
  // By row: the team's weights, as this worker has them; the delta whose answer is not applied yet,
  // or nothing; where answers arrive; this worker's weights while the params are the team's.
  std::vector<std::vector<float>> team_, sent_, answers_, own_;
  std::vector<table::Instant> sent_at_;       // by fragment: when; kHurried: the table was hurried
  std::vector<int> updates_;                  // by fragment, since its last push
  std::vector<std::vector<float>> momentum_;  // by param: the rule's history at the table
  std::shared_ptr<const OwnSteps> before_;    // of the last generation, until the rows are read
  bool has_read_ = false;
  bool away_ = false;             // the params are the team's, and this worker's own are in own_
  std::int64_t own_updates_ = 0;  // that the histories have seen
};

}  // namespace

std::unique_ptr<Exchange> make_streaming_exchange(const TableSetup& setup,
                                                  std::shared_ptr<TableSide> side) {
  return std::make_unique<StreamingExchange>(setup, std::move(side));
}

}  // namespace shoal::parallel
