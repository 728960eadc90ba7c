#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "shoal/base/log.h"
#include "shoal/net/net.h"
#include "shoal/ops/update.h"
#include "shoal/ops/vector.h"
#include "shoal/parallel/questions.h"
#include "shoal/parallel/row_map.h"
#include "shoal/parallel/updaters.h"
#include "shoal/parallel/worker.h"
#include "shoal/proto/io.h"
#include "shoal/solver/histories.h"

namespace shoal::parallel {
namespace {

using table::Clock;
using table::Part;
using table::RowId;

class Rows final : public TableUpdater {
 public:
  Rows(const SolverParameter& param, Net& net, table::Table& table, const WorkerOptions& options,
       const table::Scheme& scheme)
      : recipe_(read_recipe(param, options.name)),
        options_(options),
        task_(scheme.task()),
        bounded_(scheme.bounded()),
        in_step_(!scheme.in_step().empty()),
        net_(net),
        table_(table),
        map_(net, options.servers.value_or(servers_of(table.roster())),
             {.stays = is_alone(table.roster())}),
        spends_(is_alone(table.roster()) && !param.snapshot_diff() && !param.debug_info()),
        early_(param.on_nan() != SolverParameter::SKIP && !param.debug_info() &&
               !net.definition().debug_info() && !task_.judged),
        all_(map_.rows().size()),
        learning_(map_.learning()),
        waits_(table),
        questions_(table, task_, waits_, options.until) {
    std::iota(all_.begin(), all_.end(), RowId{0});
    lockstep_ = scheme.lockstep();
    table.share_out(std::bind_front(ops::share_out, net.context().threads()));
  }

  Result<Leave> ask_leave(std::int64_t iteration) override {
    if (!task_.paced) return Leave::kBegin;
    // Whom the others are told to have finished has its numbers in the rows, where that matters to
    // them.
    if (Status status = task_.asks_early ? create() : settle(); !status.ok()) return status.error();
    const Result<Leave> leave = questions_.begin(iteration);
    if (!leave.ok() || leave.value() != Leave::kBegin || !questions_.start().reread) return leave;
    if (Status status = read(iteration); !status.ok()) return status.error();
    return leave;
  }

  Status begin(std::int64_t iteration, float rate) override {
    if (Status status = create(); !status.ok()) return status;
    CHECK(iteration >= start_) << "iteration " << iteration << " of rows that begin at " << start_;
    iteration_ = iteration, rate_ = rate;
    finite_ = true, skipped_ = false;
    spent_ = std::exchange(spending_, false);
    held_.clear();
    histories_.clear();
    questions_.task_begins();
    return {};
  }

  Status before_forward(int layer) override {
    if (Status status = waits_.wait(map_.needed_by(layer)); !status.ok()) return status;
    for (const NetParam& param : net_.params())
      if (param.layer == layer && !(spent_ && param.lr_mult != 0))
        ops::fill(net_.context(), 0, param.blob->grad);
    return {};
  }

  Status after_backward(int layer) override {
    for (const NetParam& param : net_.params())
      if (param.layer == layer && param.lr_mult != 0)
        finite_ = finite_ && ops::all_finite(net_.context(), param.blob->grad);
    for (const RowId row : map_.owned_by(layer))
      if (map_.rows()[row].learns) held_.push_back(row);
    if (early_ && finite_) push_held();
    return {};
  }

  Result<Outcome> update(std::int64_t, float, NonFinite when) override {
    if (when == NonFinite::kRefuse && !finite_) return Outcome::kRefused;
    if (!task_.judged) push_held();
    return Outcome::kApplied;
  }

  Status skip(std::int64_t) override {
    held_.clear();
    skipped_ = true;
    if (!task_.judged) push_nothing();
    return {};
  }

  Result<bool> another_step() override {
    questions_.step_done(static_cast<double>(batch_size(net_)) * recipe_.iter_size *
                         net_.context().share().replicas);
    if (!task_.judged) return false;
    const Result<table::Verdict> verdict = questions_.judge(iteration_);
    if (!verdict.ok()) return verdict.error();
    if (verdict.value() == table::Verdict::kDrop || skipped_)
      push_nothing();
    else
      push_held();
    return false;
  }

  bool clears_gradients() const override { return true; }

  Status settle() override {
    if (Status status = create(); !status.ok()) return status;
    return waits_.wait(all_);
  }

  // Under a scheme that is not lockstep the rows that arrived may lack what others pushed since.
  Status refresh() override {
    if (lockstep_) return {};
    return read(iteration_ + 1);
  }

  bool bounded() const override { return bounded_; }
  bool in_step() const override { return in_step_; }
  bool shares_iterations() const override { return task_.shared; }
  std::int64_t rate_iteration(std::int64_t iteration) const override {
    return task_.shared ? questions_.start().at : iteration;
  }
  std::optional<double> seconds_waited() const override { return waits_.seconds(); }

  Status prepare_save() override {
    if (table_.worker() != 0) return {};
    make_histories();
    for (const RowId row : learning_)
      for (std::size_t h = 0; h < histories_.size(); ++h)
        table_.get(row, iteration_ + 1, kHistoryParts[h]);
    return waits_.wait(learning_);
  }

  void save(SolverState& state) const override {
    for (const auto& history : histories_)
      for (const Tensor& tensor : history) put_history(tensor.shape(), tensor.host(), state);
  }

  void restore(const SolverState& state, const std::string& file) override {
    CHECK(!created_) << "restored from " << file << " when others had begun";
    start_ = state.iter();
    iteration_ = start_ - 1;
    if (table_.worker() != 0) return;
    make_histories();
    take_histories(state, file, net_, recipe_.rule.rule,
                   [this](std::size_t h, std::size_t i, std::span<const float> numbers) {
                     std::ranges::copy(numbers, histories_[h][i].out());
                   });
  }

  void start_at(std::int64_t iteration, const std::vector<std::int64_t>& all) override {
    CHECK(!created_) << "a start at " << iteration << " when others had begun";
    start_ = iteration;
    iteration_ = start_ - 1;
    clocks_ = all;
  }

  WorkerTimes times() const override { return {waits_.seconds()}; }

 private:
  Status create() {
    if (created_) return {};
    const auto initial = [this](RowId row, Part part) {
      return std::span<const float>(place(row, part));
    };
    const auto destination = [this](RowId row, Part part) { return place(row, part); };
    const table::Plan plan =
        plan_of(recipe_, map_.rows(), table_.roster(), start_, clocks_, options_);
    if (Status status = table_.create(plan, initial, destination); !status.ok()) return status;
    for (const RowId row : all_) table_.get(row, start_, Part::kWeights);
    created_ = true;
    return {};
  }

  // Where the numbers of a row are, here; nothing for histories that nobody restored or asked for.
  std::span<float> place(RowId row, Part part) {
    if (part == Part::kWeights) return map_.weights(row);
    const std::size_t h = part == Part::kHistory ? 0 : 1;
    if (h >= histories_.size()) return {};
    const RowMap::Piece at = map_.piece(row);
    return histories_[h][at.param].host_mut().subspan(at.offset, map_.rows()[row].length);
  }

  void make_histories() {
    histories_.clear();
    for (int h = 0; h < optim::histories(recipe_.rule.rule); ++h) {
      histories_.emplace_back();
      for (const NetParam& param : net_.params())
        histories_.back().emplace_back(param.blob->shape());
    }
  }

  void push_held() {
    pushes_.clear();
    spending_ = spends_;
    for (const RowId row : held_) {
      const std::span<float> gradient = map_.gradient(row);
      pushes_.push_back({.row = row,
                         .clock = iteration_,
                         .weight = options_.weight,
                         .rate = rate_,
                         .payload = table::as_payload({gradient}),
                         .finite = finite_,
                         .clear_after = spends_ ? gradient : std::span<float>()});
    }
    table_.push(pushes_);
    held_.clear();
  }

  // Others wait for this worker's part: it says that there is none.
  void push_nothing() {
    spending_ = false;
    for (const RowId row : learning_)
      table_.push({.row = row, .clock = iteration_, .weight = 0, .rate = rate_});
  }

  Status read(Clock clock) {
    for (const RowId row : learning_) table_.get(row, clock, Part::kWeights);
    return waits_.wait(learning_);
  }

  const Recipe recipe_;
  const WorkerOptions options_;
  const table::Task task_;
  const bool bounded_, in_step_;
  Net& net_;
  table::Table& table_;
  const RowMap map_;
  // the server is here, and alone: it clears gradients as it takes them
  const bool spends_;
  // a layer's gradients leave as soon as they are there
  const bool early_;
  std::vector<RowId> all_, learning_;
  bool lockstep_ = false;
  bool created_ = false;
  Clock start_ = 0;  // the iteration from which this run goes on
  // from which each worker does, where there is no common one
  std::vector<Clock> clocks_;
  std::int64_t iteration_ = -1;  // under way, or the last
  float rate_ = 0;
  bool finite_ = true;    // this iteration's gradients, so far
  bool skipped_ = false;  // there are none
  // this iteration's gradients, and the last one's, are cleared by who merges them
  bool spending_ = false, spent_ = false;
  // whose gradients are complete and were not pushed
  std::vector<RowId> held_;
  std::vector<table::Push> pushes_;  // of them, while they are pushed
  // of the rule's history h and param i, between restore and create, and for a save
  std::vector<std::vector<Tensor>> histories_;
  Waits waits_;
  Questions questions_;
};

}  // namespace

int workers_of(const table::RosterBody& roster) {
  return static_cast<int>(std::ranges::count_if(
      roster.processes, [](const auto& process) { return process.worker >= 0; }));
}

bool is_alone(const table::RosterBody& roster) { return roster.processes.size() == 1; }

int servers_of(const table::RosterBody& roster) {
  return static_cast<int>(std::ranges::count_if(
      roster.processes, [](const auto& process) { return process.server >= 0; }));
}

std::vector<std::uint32_t> ranks_of(const table::RosterBody& roster) {
  std::vector<std::uint32_t> ranks;
  for (const auto& process : roster.processes)
    if (process.worker >= 0) ranks.push_back(process.rank);
  return ranks;
}

std::vector<Clock> clocks_of(const table::RosterBody& roster) {
  std::vector<Clock> clocks;
  for (const auto& process : roster.processes)
    if (process.worker >= 0) clocks.push_back(process.clock);
  return clocks;
}

table::Plan plan_of(const Recipe& recipe, std::span<const table::Row> rows,
                    const table::RosterBody& roster, Clock start, const std::vector<Clock>& clocks,
                    const WorkerOptions& options) {
  table::Plan plan;
  plan.workers = static_cast<std::uint16_t>(workers_of(roster));
  plan.servers = static_cast<std::uint16_t>(servers_of(roster));
  plan.start = start;
  plan.rule = recipe.rule;
  plan.regularization = recipe.regularization;
  plan.weight_decay = recipe.weight_decay;
  plan.clip = recipe.clip;
  plan.iter_size = static_cast<std::uint32_t>(recipe.iter_size);
  plan.scheme = options.scheme;
  plan.generation = options.generation;
  plan.ranks = ranks_of(roster);
  for (const auto& process : roster.processes)
    if (process.server >= 0) plan.server_ranks.push_back(process.rank);
  plan.clocks = clocks;
  if (!clocks.empty()) plan.start = std::ranges::min(clocks);
  plan.rows.assign(rows.begin(), rows.end());
  return plan;
}

std::unique_ptr<TableUpdater> make_gradient_updater(const SolverParameter& param, Net& net,
                                                    table::Table& table,
                                                    const WorkerOptions& options,
                                                    const table::Scheme& scheme) {
  return std::make_unique<Rows>(param, net, table, options, scheme);
}

std::unique_ptr<TableUpdater> make_table_updater(const SolverParameter& param, Net& net,
                                                 table::Table& table,
                                                 const WorkerOptions& options) {
  const auto scheme = options.maker(options.scheme);
  if (!scheme.ok())
    throw ConfigError(scheme.error().code, options.name, ": ", scheme.error().message);
  check_fit(param, options.name, *scheme.value(), options.scheme, workers_of(table.roster()));
  const bool gradients = scheme.value()->contribution() == table::ContributionKind::kGradient;
  return (gradients ? make_gradient_updater : make_local_steps_updater)(param, net, table, options,
                                                                        *scheme.value());
}

}  // namespace shoal::parallel
