// The worker's half of schemes whose tasks are local steps: the rows are read, a solver of the
// worker's own makes some updates, and what came of them is handed in.
#include <algorithm>
#include <numeric>
#include <vector>

#include "shoal/base/log.h"
#include "shoal/net/net.h"
#include "shoal/parallel/exchange_time.h"
#include "shoal/parallel/global_momentum.h"
#include "shoal/parallel/questions.h"
#include "shoal/parallel/updaters.h"

namespace shoal::parallel {
namespace {

using table::Clock;
using table::ContributionKind;
using table::MomentumPolicy;
using table::Part;
using table::RowId;
using table::Verdict;
using table::Weighing;

class LocalRows final : public TableUpdater {
 public:
  LocalRows(const SolverParameter& param, Net& net, table::Table& table,
            const WorkerOptions& options, const table::Scheme& scheme)
      : recipe_(read_recipe(param, options.name)),
        options_(options),
        task_(scheme.task()),
        lockstep_(scheme.lockstep()),
        bounded_(scheme.bounded()),
        reads_sums_(param.on_nan() == SolverParameter::SKIP),
        early_(!reads_sums_ && !param.debug_info() && !net.definition().debug_info() &&
               !task_.judged && !task_.pull_first),
        net_(net),
        table_(table),
        local_(make_local_updater(param, options.name, net)),
        map_(net, options.servers.value_or(servers_of(table.roster())),
             {.running_sums = true,
              .histories = is_averaged() ? local_->histories() : std::vector<Tensor*>()}),
        all_(map_.rows().size()),
        learning_(map_.learning()),
        sent_(all_.size()),
        replies_(all_.size()),
        has_left_(all_.size()),
        momentum_(task_, map_),
        waits_(table),
        questions_(table, task_, waits_, options.until) {
    std::iota(all_.begin(), all_.end(), RowId{0});
    for (const RowId row : learning_) {
      sent_[row].resize(map_.rows()[row].length);
      if (task_.pull_first) replies_[row].resize(map_.rows()[row].length);
      if (map_.rows()[row].lr_mult == 0) sums_.push_back(row);
    }
  }

  Result<Leave> ask_leave(std::int64_t iteration) override {
    if (!task_.paced) return Leave::kBegin;
    // Whom the others are told to have finished has its numbers in the rows, where that matters to
    // them.
    if (Status status = task_.asks_early ? create() : settle(); !status.ok()) return status.error();
    const Result<Leave> leave = questions_.begin(iteration);
    if (!leave.ok() || leave.value() != Leave::kBegin || !questions_.start().reread ||
        takes_weights())
      return leave;
    if (Status status = read(next_); !status.ok()) return status.error();
    return leave;
  }

  Status begin(std::int64_t iteration, float rate) override {
    if (Status status = create(); !status.ok()) return status;
    CHECK(iteration >= start_) << "iteration " << iteration << " of rows that begin at " << start_;
    iteration_ = iteration, rate_ = rate;
    updates_ = 0;
    if (away_)  // or what arrives of the team's would be written over
      if (Status status = waits_.wait(all_); !status.ok()) return status;
    come_back();
    if (task_.pull_first)
      if (Status status = pull(); !status.ok()) return status;
    if (reads_sums_)  // the solver looks at them before the first forward
      if (Status status = waits_.wait(sums_); !status.ok()) return status;
    questions_.task_begins();
    return local_->begin(iteration, rate);
  }

  Status before_forward(int layer) override {
    if (questions_.steps() > 0 || task_.pull_first) return {};
    if (Status status = waits_.wait(map_.needed_by(layer)); !status.ok()) return status;
    if (takes_weights()) return {};
    for (const RowId row : map_.owned_by(layer)) {
      if (!map_.rows()[row].learns) continue;
      momentum_.begin(row);
      std::ranges::copy(map_.weights(row), sent_[row].begin());
    }
    return {};
  }

  // In the last step of a task what a layer has learned leaves while those below it still compute.
  // What forward passes change may yet be another replica's too, and leaves at the end.
  Status after_backward(int layer) override {
    if (Status status = local_->after_backward(layer); !status.ok()) return status;
    const bool is_last = early_ && questions_.steps() + 1 == questions_.wanted();
    if (!is_last || !local_->update_layer(layer, own_updates_, rate_)) return {};
    std::vector<RowId> rows;
    for (const RowId row : map_.owned_by(layer))
      if (map_.is_param(row) || map_.is_history(row)) rows.push_back(row);
    push(rows, weight_of(updates_ + 1));
    return {};
  }

  Result<Outcome> update(std::int64_t, float rate, NonFinite when) override {
    const Result<Outcome> outcome = local_->update(own_updates_, rate, when);
    if (outcome.ok() && outcome.value() == Outcome::kApplied) ++updates_, ++own_updates_;
    return outcome;
  }

  Status skip(std::int64_t iteration) override { return local_->skip(iteration); }

  Result<bool> another_step() override {
    questions_.step_done(static_cast<double>(batch_size(net_)) * recipe_.iter_size *
                         net_.context().share().replicas);
    if (task_.pull_first && questions_.steps() == 1)
      if (Status status = take_replies(); !status.ok()) return status.error();
    const int wanted = questions_.wanted();
    if (wanted > questions_.steps()) return true;
    const Result<Verdict> verdict = questions_.judge(iteration_);
    if (!verdict.ok()) return verdict.error();
    if (verdict.value() == Verdict::kAnother) return true;
    if (!task_.pull_first) hand_in(verdict.value());
    return false;
  }

  bool clears_gradients() const override { return local_->clears_gradients(); }
  bool bounded() const override { return bounded_; }
  bool shares_iterations() const override { return task_.shared; }
  std::int64_t rate_iteration(std::int64_t iteration) const override {
    return task_.shared ? questions_.start().at : iteration;
  }
  bool shares_running_sums() const override { return true; }
  std::vector<Tensor*> histories() override { return local_->histories(); }

  Status settle() override {
    if (Status status = create(); !status.ok()) return status;
    return waits_.wait(all_);
  }

  // Of elastic averaging the team's params are the rows, while this worker's own wait where they
  // are sent from.
  Status refresh() override {
    if (!takes_weights()) return lockstep_ ? Status() : read(next_);
    if (!away_) copy_to_sent();
    away_ = true;
    // at the clock of its last exchange a worker reads what that left to it
    return read(dropped_ ? next_ : std::max(start_, next_ - 1));
  }

  std::optional<double> seconds_waited() const override { return waits_.seconds(); }
  WorkerTimes times() const override { return {waits_.seconds()}; }

  void save(SolverState& state) const override { local_->save(state); }

  void put_states(RunState& run) override { momentum_.put(run); }
  void take_states(const RunState& run, const std::string& file) override {
    momentum_.take(run, file);
  }

  void restore(const SolverState& state, const std::string& file) override {
    CHECK(!created_) << "restored from " << file << " when others had begun";
    local_->restore(state, file);
    go_on_from(state.iter());
  }

  void start_at(std::int64_t iteration, const std::vector<std::int64_t>& all) override {
    CHECK(!created_) << "a start at " << iteration << " when others had begun";
    go_on_from(iteration);
    clocks_ = all;
  }

  // Weights alone are a worker's own between two exchanges.
  std::shared_ptr<const OwnState> own_state() override {
    const auto own = std::make_shared<OwnState>();
    own->weights.resize(all_.size());
    for (const RowId row : learning_) {
      if (!takes_weights()) break;
      const std::span<const float> numbers =
          away_ ? std::span<const float>(sent_[row]) : map_.weights(row);
      own->weights[row].assign(numbers.begin(), numbers.end());
    }
    for (Tensor* history : local_->histories())
      own->histories.emplace_back(history->host().begin(), history->host().end());
    own->updates = own_updates_;
    return own;
  }

  void take_own_state(std::shared_ptr<const OwnState> own) override {
    CHECK(!created_) << "a state of its own when others had begun";
    resumed_ = false;  // the chief's histories are its own alone
    own_updates_ = own ? own->updates : 0;
    const std::vector<Tensor*> histories = local_->histories();
    for (std::size_t h = 0; h < histories.size(); ++h) {
      if (own)
        std::ranges::copy(own->histories.at(h), histories[h]->host_mut().begin());
      else
        std::ranges::fill(histories[h]->host_mut(), 0.0f);
    }
    for (const RowId row : learning_)
      if (own && takes_weights()) sent_[row] = own->weights.at(row);
    away_ = own && takes_weights();
  }

 private:
  bool takes_weights() const { return task_.contribution == ContributionKind::kWeights; }
  bool is_averaged() const { return task_.momentum == MomentumPolicy::kAverage; }

  void go_on_from(std::int64_t iteration) {
    start_ = next_ = iteration;
    own_updates_ = iteration * std::max(1, task_.steps);
    resumed_ = true;
  }

  Status create() {
    if (created_) return {};
    const auto initial = [this](RowId row, Part part) {
      return part != Part::kWeights && !resumed_ ? std::span<const float>() : place(row, part);
    };
    const auto destination = [this](RowId row, Part part) { return place(row, part); };
    table::Plan plan = plan_of(recipe_, map_.rows(), table_.roster(), start_, clocks_, options_);
    plan.clip = -1;  // each worker clips its own
    if (Status status = table_.create(plan, initial, destination); !status.ok()) return status;
    if (task_.is_planned()) {
      const Result<double> seconds = measure_exchange(table_, plan);
      if (!seconds.ok()) return seconds.error();
      questions_.exchange_takes(seconds.value());
    }
    for (const RowId row : all_) {
      table_.get(row, start_, Part::kWeights);
      if (!resumed_ || !map_.rows()[row].learns || map_.rows()[row].lr_mult == 0 ||
          map_.is_history(row))
        continue;
      // all go on with the chief's
      for (int h = 0; h < optim::histories(recipe_.rule.rule); ++h)
        table_.get(row, start_, kHistoryParts[h]);
    }
    created_ = true;
    return {};
  }

  // Where the numbers of a row are, here.
  std::span<float> place(RowId row, Part part) {
    if (part == Part::kWeights)
      return to_replies_ && map_.rows()[row].learns ? std::span(replies_[row]) : map_.weights(row);
    const RowMap::Piece at = map_.piece(row);
    const int h = part == Part::kHistory ? 0 : 1;
    if (map_.is_history(row) || h >= optim::histories(recipe_.rule.rule)) return {};
    return local_->histories()[static_cast<std::size_t>(h) * net_.params().size() + at.param]
        ->host_mut()
        .subspan(at.offset, map_.rows()[row].length);
  }

  Status read(Clock clock) {
    for (const RowId row : learning_) table_.get(row, clock, Part::kWeights);
    return waits_.wait(learning_);
  }

  void copy_to_sent() {
    for (const RowId row : learning_) std::ranges::copy(map_.weights(row), sent_[row].begin());
  }

  void come_back() {
    if (!std::exchange(away_, false)) return;
    for (const RowId row : learning_) std::ranges::copy(sent_[row], map_.weights(row).begin());
  }

  // Of a task with so many updates. One in which nothing was learned has nothing in it; the answer
  // is the row.
  float weight_of(int updates) const {
    if (updates == 0) return 0;
    if (task_.weighing == Weighing::kUniform || takes_weights()) return 1;
    const double share = updates / questions_.mean_steps();
    return static_cast<float>(task_.weighing == Weighing::kSamples ? options_.weight * share
                                                                   : 1 / share);
  }

  // Neither has one that is dropped.
  void hand_in(Verdict verdict) {
    const float weight = verdict == Verdict::kDrop ? 0 : weight_of(updates_);
    push(learning_, weight);
    end_exchange(weight == 0);
  }

  // Those that have not left yet, as they are now.
  void push(std::span<const RowId> rows, float weight) {
    std::vector<table::Push> pushes;
    for (const RowId row : rows) {
      if (has_left_[row]) continue;
      has_left_[row] = true;
      prepare(row, weight);
      pushes.push_back(
          {.row = row,
           .clock = iteration_,
           .kind = task_.contribution,
           .weight = weight,
           .rate = rate_,
           .payload = table::as_payload(
               {weight == 0 ? std::span<const float>() : std::span<const float>(sent_[row])})});
    }
    if (!pushes.empty()) table_.push(pushes);
  }

  // What of a row is pushed, into sent_. The table's rate is of params alone: of the rest the plain
  // mean is taken.
  void prepare(RowId row, float weight) {
    const std::span<const float> now = map_.weights(row);
    std::vector<float>& sent = sent_[row];
    if (takes_weights()) {
      std::ranges::copy(now, sent.begin());
      return;
    }
    std::ranges::transform(now, sent, sent.begin(), std::minus());
    if (map_.is_param(row))
      momentum_.end(row, weight, sent);
    else if (task_.global_rate != 1)
      std::ranges::transform(sent, sent.begin(),
                             [&](float number) { return number / task_.global_rate; });
  }

  void end_exchange(bool empty) {
    has_left_.assign(has_left_.size(), false);
    next_ = iteration_ + 1;
    dropped_ = empty;
    if (task_.momentum != MomentumPolicy::kReset) return;
    for (Tensor* history : local_->histories()) std::ranges::fill(history->host_mut(), 0.0f);
    own_updates_ = 0;
  }

  // The paper's order: the first step's gradient is that of the weights handed in, and its update
  // is added to what the exchange leaves of them.
  Status pull() {
    if (Status status = waits_.wait(all_); !status.ok()) return status;
    to_replies_ = true;
    push(learning_, 1);
    end_exchange(false);
    return {};
  }

  Status take_replies() {
    if (Status status = waits_.wait(learning_); !status.ok()) return status;
    to_replies_ = false;
    for (const RowId row : learning_) {
      const std::span<float> now = map_.weights(row);
      for (std::size_t i = 0; i < now.size(); ++i)
        now[i] = replies_[row][i] + (now[i] - sent_[row][i]);
    }
    return {};
  }

  const Recipe recipe_;
  const WorkerOptions options_;
  const table::Task task_;
  const bool lockstep_, bounded_, reads_sums_;
  // what a layer has learned leaves as soon as it is there
  const bool early_;
  Net& net_;
  table::Table& table_;
  const std::unique_ptr<Updater> local_;
  const RowMap map_;
  std::vector<RowId> all_, learning_, sums_;  // sums_: of running means and the like
  // by row. In a task of deltas: the weights that it began with, then what is pushed of them
  std::vector<std::vector<float>> sent_;
  // by row, where an exchange goes on during a step
  std::vector<std::vector<float>> replies_;
  std::vector<bool> has_left_;  // by row: pushed in this task
  GlobalMomentum momentum_;
  Waits waits_;
  Questions questions_;
  bool created_ = false, resumed_ = false;
  bool to_replies_ = false;  // what arrives is a reply
  // the params are the team's, and this worker's own are in sent_
  bool away_ = false;
  bool dropped_ = false;  // the last push had nothing in it
  // the iteration from which this run goes on; the next to be pushed
  Clock start_ = 0, next_ = 0;
  // from which each worker does, where there is no common one
  std::vector<Clock> clocks_;
  std::int64_t iteration_ = -1;  // under way, or the last
  float rate_ = 0;
  // in this task: its steps less those that were left out
  int updates_ = 0;
  std::int64_t own_updates_ = 0;  // that the histories have seen
};

}  // namespace

std::unique_ptr<TableUpdater> make_local_steps_updater(const SolverParameter& param, Net& net,
                                                       table::Table& table,
                                                       const WorkerOptions& options,
                                                       const table::Scheme& scheme) {
  return std::make_unique<LocalRows>(param, net, table, options, scheme);
}

}  // namespace shoal::parallel
