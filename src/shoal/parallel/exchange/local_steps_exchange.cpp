// The exchange of schemes whose tasks are local steps: the rows are read, a solver of the worker's
// own makes some updates, and their result is pushed.
#include <algorithm>
#include <functional>
#include <utility>

#include "shoal/base/log.h"
#include "shoal/base/try.h"
#include "shoal/net/net.h"
#include "shoal/parallel/exchange/exchanges.h"
#include "shoal/parallel/exchange/own_steps.h"
#include "shoal/parallel/sums/delta_sums.h"
#include "shoal/parallel/sums/global_momentum.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/run.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/local_rule.h"
#include "shoal/table/scheme.h"

namespace shoal::parallel {
namespace {

using table::ContributionKind;
using table::MomentumPolicy;
using table::Part;
using table::RowId;
using table::Verdict;
using table::Weighing;

// Returns the extra rows. The histories of layers that go by a collective are read once, from a
// chief that was restored.
RowExtras extras_of(const TableSetup& setup, LocalRule& rule) {
  const Layers sums = collective_by(setup.ways);
  std::vector<Tensor*> histories = rule.histories();
  for (std::size_t i = 0; i < histories.size(); ++i) {
    const NetParam& param = setup.net.params()[i % setup.net.params().size()];
    if (setup.scheme.task.momentum != MomentumPolicy::kAverage && !sums[param.layer])
      histories[i] = nullptr;
  }
  return {.running_sums = true, .histories = std::move(histories), .replicated = sums};
}

class LocalStepsExchange final : public Exchange {
 public:
  LocalStepsExchange(const TableSetup& setup, std::shared_ptr<TableSide> side)
      : side_(std::move(side)),
        task_(side_->task),
        local_(side_->recipe, setup.param.snapshot_diff(), setup.net, setup.net.context(),
               Layers(setup.ways.size(), true)),
        map_(mapped(*side_, setup, local_)),
        reads_sums_(setup.param.on_nan() == SolverParameter::SKIP),
        sent_(map_.rows().size()),
        replies_(sent_.size()),
        has_left_(sent_.size()),
        momentum_(task_, map_),
        deltas_(setup, *side_) {
    side_->fix_histories(local_.histories());
    for (const RowId row : side_->learning()) {
      sent_[row].resize(map_.rows()[row].length);
      if (task_.pull_first) replies_[row].resize(map_.rows()[row].length);
      if (map_.rows()[row].lr_mult == 0) sums_.push_back(row);
    }
  }

  Result<Permission> wait_to_begin(std::int64_t iteration) override {
    return side_->wait_to_begin(iteration, *this);
  }

  Status begin(std::int64_t iteration, float rate) override {
    TRY(side_->begin(iteration, rate));
    updates_ = 0;
    if (away_)  // or what arrives of the team's would be written over
      TRY(side_->receive(side_->all()));
    come_back();
    if (task_.pull_first) TRY(pull());
    if (reads_sums_)  // the solver looks at them before the first forward
      TRY(side_->receive(sums_));
    side_->pacer.task_begins();
    return {};
  }

  void progress() override { deltas_.progress(); }
  Status before_forward(int layer) override {
    local_.before_forward(layer);
    if (side_->pacer.steps() > 0 || task_.pull_first) return {};
    TRY(side_->receive(map_.needed_by(layer)));
    if (deltas_.owns(layer)) return deltas_.begin(layer, side_->iteration());
    if (takes_weights()) return {};
    for (const RowId row : map_.owned_by(layer)) {
      if (!map_.rows()[row].learns) continue;
      momentum_.begin(row);
      std::ranges::copy(map_.weights(row), sent_[row].begin());
    }
    return {};
  }

  Status after_backward(std::span<const int> layers) override {
    for (const int layer : layers) TRY(finish_backward(layer));
    return {};
  }
  Gradients gradients() override { return local_.gradients(); }
  Status apply(bool update, double squares) override {
    if (!update) {
      local_.skip();
      return {};
    }
    local_.update(own_updates_, side_->rate(), squares);
    ++updates_;
    ++own_updates_;
    return {};
  }

  Result<bool> another_step() override {
    side_->step_done();
    if (task_.pull_first && side_->pacer.steps() == 1) TRY(take_replies());
    if (side_->pacer.wanted() > side_->pacer.steps()) return true;
    const Result<Verdict> verdict = side_->pacer.judge(side_->iteration());
    TRY(verdict);
    if (verdict.value() == Verdict::kAnother) return true;
    if (!task_.pull_first) hand_in(verdict.value());
    unit_.done = side_->next();
    return false;
  }

  Status settle(Settle how) override {
    TRY(side_->create());
    TRY(side_->receive(side_->all()));
    TRY(deltas_.apply_all());
    return how == Settle::kTeams ? refresh() : Status();
  }
  bool send_left_out() override { return side_->send_left_out(); }
  std::optional<double> seconds_waited() const override { return side_->waits.seconds(); }

  // Between two exchanges the version is that of the numbers with which the last task began.
  std::vector<StateRow> rows() override {
    std::vector<StateRow> rows = side_->state_rows();
    for (StateRow& row : rows)
      if (const int layer = side_->net.params()[row.param].layer; deltas_.owns(layer))
        row.version = deltas_.version(layer);
    return rows;
  }
  Status prepare_save() override { return unit_.is_fetched ? Status() : side_->fetch_left_out(); }
  std::vector<Tensor*> histories() override { return local_.histories(); }
  void put(RunState& run) override {
    momentum_.put(run);
    deltas_.put(run);
    run.set_own_updates(own_updates_);
  }
  void take(const RunState& run, const std::string& file) override {
    momentum_.take(run, file);
    deltas_.take(run, file);
    if (side_->was_resumed() && run.has_own_updates()) own_updates_ = run.own_updates();
  }

  void start_at(std::int64_t iteration, const std::vector<std::int64_t>& all) override {
    side_->start_at(iteration, all);
    deltas_.start_at(iteration);
    unit_.done = iteration;
    own_updates_ = iteration;  // unless the snapshot says what local steps have made
  }

  // Returns this worker's weights between two exchanges, where they are its own, and its momentum.
  std::shared_ptr<const OwnState> own_state() override {
    const auto own = std::make_shared<OwnSteps>();
    for (const RowId row : side_->learning()) {
      if (!takes_weights()) break;
      const std::span<const float> numbers =
          away_ ? std::span<const float>(sent_[row]) : map_.weights(row);
      own->weights.insert(own->weights.end(), numbers.begin(), numbers.end());
    }
    for (const Tensor* history : own_histories())
      own->histories.emplace_back(history->host().begin(), history->host().end());
    own->updates = own_updates_;
    own->side = side_->own_state();
    return own;
  }
  std::string own_bytes() override { return side_->own_bytes(); }
  Status take_own_bytes(std::string_view bytes) override { return side_->take_own_bytes(bytes); }

  void take_own_state(std::shared_ptr<const OwnState> state) override {
    CHECK(!side_->is_created()) << "a state of its own after the rows were made";
    const auto* own = static_cast<const OwnSteps*>(state.get());
    side_->keep_own_histories();
    side_->take_own_state(own ? own->side.get() : nullptr);
    own_updates_ = own ? own->updates : 0;
    const std::vector<Tensor*> histories = own_histories();
    for (std::size_t h = 0; h < histories.size(); ++h) {
      if (own)
        std::ranges::copy(own->histories.at(h), histories[h]->host_mut().begin());
      else
        std::ranges::fill(histories[h]->host_mut(), 0.0f);
    }
    away_ = own && takes_weights();
    std::size_t at = 0;
    for (const RowId row : side_->learning()) {
      if (!away_) break;
      CHECK(at + sent_[row].size() <= own->weights.size()) << "weights of another net";
      std::copy_n(own->weights.begin() + static_cast<std::ptrdiff_t>(at), sent_[row].size(),
                  sent_[row].begin());
      at += sent_[row].size();
    }
  }

  // ---- after an interruption: each bucket is a unit, and the rows that learn, if there are any
  Result<Standing> interrupt() override {
    Standing standing{.done = unit_.done};
    for (std::size_t part = 0; part < deltas_.size(); ++part)
      standing.versions.push_back(side_->has_numbers(unit_.done) ? deltas_.done(part) : kNothing);
    if (!side_->learning().empty()) standing.versions.push_back(unit_.version());
    return standing;
  }
  Status fetch_unit(std::size_t unit) override {
    return is_bucket(unit) || unit_.is_fetched ? Status() : side_->receive(side_->learning());
  }
  void give_unit(std::size_t unit, std::string& out) override {
    if (is_bucket(unit)) return deltas_.give(unit, out);
    for (const RowId row : side_->learning()) put_numbers(map_.weights(row), out);
  }
  Status take_unit(std::size_t unit, std::int64_t version, std::string_view bytes) override {
    if (is_bucket(unit)) return deltas_.take(unit, version, bytes);
    for (const RowId row : side_->learning()) TRY(get_numbers(bytes, map_.weights(row)));
    return {};
  }
  void give_part(std::size_t unit, std::int64_t, std::string& out) override {
    deltas_.give_part(unit, out);
  }
  Result<double> sum_parts(std::size_t unit, std::int64_t,
                           std::span<const std::string_view> parts) override {
    TRY(deltas_.sum(unit, parts));
    return 0;
  }
  void go_on_from(std::int64_t iterations, bool leads) override {
    unit_.go_on_from(iterations, leads);
    deltas_.go_back_to(iterations);
  }

 private:
  bool is_bucket(std::size_t unit) const { return unit < deltas_.size(); }
  static const RowMap& mapped(TableSide& side, const TableSetup& setup, LocalRule& rule) {
    side.map_rows(setup, extras_of(setup, rule));
    return side.map();
  }

  // Sends a layer's result in the last step of a task, while the layers below still compute. The
  // rows that forward passes change leave at the end, since other replicas may still change them.
  Status finish_backward(int layer) {
    local_.look(layer);
    const bool is_last = side_->sends_early && side_->pacer.steps() + 1 == side_->pacer.wanted();
    if (!is_last || !local_.update_layer(layer, own_updates_, side_->rate())) return {};
    if (deltas_.owns(layer)) deltas_.send(layer, weight_of(updates_ + 1));
    std::vector<RowId> rows;
    for (const RowId row : map_.owned_by(layer))
      if (map_.rows()[row].learns && (map_.is_param(row) || map_.is_history(row)))
        rows.push_back(row);
    push_rows(rows, weight_of(updates_ + 1));
    return {};
  }

  bool takes_weights() const { return task_.contribution == ContributionKind::kWeights; }
  std::vector<Tensor*> own_histories() {
    std::vector<Tensor*> own = local_.histories();
    std::erase(own, nullptr);
    return own;
  }

  // Reads the team's params for a test or a snapshot. In elastic averaging these are the rows, and
  // this worker's own params wait in sent_.
  Status refresh() {
    if (!takes_weights()) return side_->lockstep ? Status() : side_->read(side_->next());
    if (!std::exchange(away_, true))
      for (const RowId row : side_->learning())
        std::ranges::copy(map_.weights(row), sent_[row].begin());
    // At the clock of its last exchange a worker reads the row as that exchange left it.
    return side_->read(dropped_ ? side_->next() : std::max(side_->start(), side_->next() - 1));
  }

  void come_back() {
    if (!std::exchange(away_, false)) return;
    for (const RowId row : side_->learning())
      std::ranges::copy(sent_[row], map_.weights(row).begin());
  }

  // Returns the weight of a task with so many updates. A task without updates counts nothing, and
  // its answer is the row.
  float weight_of(int updates) const {
    if (updates == 0) return 0;
    if (task_.weighing == Weighing::kUniform || takes_weights()) return 1;
    const double share = updates / side_->pacer.mean_steps();
    return static_cast<float>(task_.weighing == Weighing::kSamples ? side_->options.weight * share
                                                                   : 1 / share);
  }

  // Hands in a task. One that is dropped counts nothing either.
  void hand_in(Verdict verdict) {
    const float weight = verdict == Verdict::kDrop ? 0 : weight_of(updates_);
    push_rows(side_->learning(), weight);
    deltas_.send_rest(weight);
    end_exchange(weight == 0);
  }

  // Pushes those of the rows that have not left in this task, as they are now.
  void push_rows(std::span<const RowId> rows, float weight) {
    std::vector<table::Push> pushes;
    for (const RowId row : rows) {
      if (has_left_[row]) continue;
      has_left_[row] = true;
      prepare(row, weight);
      pushes.push_back(
          {.row = row,
           .clock = side_->iteration(),
           .kind = task_.contribution,
           .weight = weight,
           .rate = side_->rate(),
           .payload = table::as_payload(
               {weight == 0 ? std::span<const float>() : std::span<const float>(sent_[row])}),
           .whole = side_->whole()});
    }
    if (pushes.empty()) return;
    is_pulled_ ? side_->table.push(pushes) : side_->push(pushes);
  }

  // Writes a row's push into sent_. Where the answer says what changes, the row has its numbers of
  // the task's start again. The table's rate, and weights by steps, whose sum is not 1, apply to
  // params alone: of the rest the mean is taken.
  void prepare(RowId row, float weight) {
    std::vector<float>& sent = sent_[row];
    if (takes_weights()) return std::ranges::copy(map_.weights(row), sent.begin()), void();
    take_change(map_.weights(row), side_->answers_changes(row), sent);
    if (map_.is_param(row)) return momentum_.end(row, weight, sent);
    const bool by_steps = task_.weighing == Weighing::kSteps && weight != 0;
    const float scale = task_.global_rate * (by_steps ? weight : 1);
    if (scale != 1)
      std::ranges::transform(sent, sent.begin(), [=](float number) { return number / scale; });
  }

  void end_exchange(bool empty) {
    has_left_.assign(has_left_.size(), false);
    dropped_ = empty;
    if (task_.momentum != MomentumPolicy::kReset) return;
    for (Tensor* history : own_histories()) std::ranges::fill(history->host_mut(), 0.0f);
    own_updates_ = 0;
  }

  // Exchanges in the paper's order: the first step's gradient is that of the weights handed in, and
  // its update is added to the weights after the exchange.
  Status pull() {
    TRY(side_->receive(side_->all()));
    divert(true);
    push_rows(side_->learning(), 1);
    end_exchange(false);
    return {};
  }

  Status take_replies() {
    TRY(side_->waits.wait(side_->learning()));
    divert(false);
    for (const RowId row : side_->learning()) {
      const std::span<float> now = map_.weights(row);
      for (std::size_t i = 0; i < now.size(); ++i)
        now[i] = replies_[row][i] + (now[i] - sent_[row][i]);
    }
    return {};
  }

  void divert(bool to_replies) {
    is_pulled_ = to_replies;
    side_->divert(to_replies ? &replies_ : nullptr);
  }

  const std::shared_ptr<TableSide> side_;
  const table::Task& task_;
  LocalRule local_;
  const RowMap& map_;
  const bool reads_sums_;
  std::vector<RowId> sums_;  // of running means and the like
  // By row. In a task of deltas: the weights at its start, then the deltas that are pushed.
  std::vector<std::vector<float>> sent_;
  // By row, where an exchange goes on during a step.
  std::vector<std::vector<float>> replies_;
  std::vector<bool> has_left_;  // by row: pushed in this task
  GlobalMomentum momentum_;
  DeltaSums deltas_;
  bool is_pulled_ = false;  // what arrives is a reply
  // The params are the team's, and this worker's own are in sent_.
  bool away_ = false;
  bool dropped_ = false;  // the last push had nothing in it
  RowsOnServers unit_;
  int updates_ = 0;               // in this task: its steps less those that were left out
  std::int64_t own_updates_ = 0;  // that the histories have seen
};

}  // namespace

std::unique_ptr<Exchange> make_local_steps_exchange(const TableSetup& setup,
                                                    std::shared_ptr<TableSide> side) {
  return std::make_unique<LocalStepsExchange>(setup, std::move(side));
}

}  // namespace shoal::parallel
