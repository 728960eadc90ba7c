#include "shoal/parallel/rows/table_side.h"

#include <iterator>
#include <numeric>

#include "shoal/base/log.h"
#include "shoal/base/try.h"
#include "shoal/net/net.h"
#include "shoal/parallel/job/plan.h"
#include "shoal/parallel/tuning/link_times.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/loss_scaling.h"

namespace shoal::parallel {

using table::ContributionKind;
using table::Part;
using table::RowId;

TableSide::TableSide(const TableSetup& setup)
    : net(setup.net),
      table(setup.table),
      options(setup.options),
      recipe(read_recipe(setup.param, setup.options.name)),
      task(setup.scheme.task),
      lockstep(setup.scheme.lockstep),
      sends_early(setup.param.on_nan() != SolverParameter::SKIP &&
                  !skips_steps(setup.param, net.context()) && !setup.param.debug_info() &&
                  !net.definition().debug_info() && !task.judged && !task.pull_first),
      waits(table),
      pacer(table, task, waits, options.until) {}

TeamPolicy TableSide::policy(const TableSetup& setup) const {
  const bool gradients = task.contribution == ContributionKind::kGradient;
  return {.bounded = setup.scheme.bounded(),
          .in_step = gradients && setup.scheme.spec().groups.has_value(),
          .shares_iterations = task.shared,
          .shares_running_sums = !gradients,
          .is_interrupted = !messages_.empty()};
}

// ---- before the rows exist ----

void TableSide::map_rows(const TableSetup& setup, const RowExtras& extras) {
  map_.emplace(net, options.servers.value_or(servers_of(table.roster())), extras);
  all_.resize(map_->rows().size());
  std::iota(all_.begin(), all_.end(), RowId{0});
  learning_ = map_->learning();
  staging_.emplace(*map_, in_place(setup));
  codecs_ = RowCodecs(net, *map_, setup.codecs, least_coded(setup.param));
  states_.emplace(*map_, codecs_);
  left_out_.resize(all_.size());
  table.hold_states([this](RowId row, std::size_t length) { return states_->of(row, length); });
  if (!net.context().device().is_host()) pin_params(setup);
}

// Returns, by row, whether it is in place. On a device these are the rows of params that the
// servers alone update.
std::vector<bool> TableSide::in_place(const TableSetup& setup) const {
  if (net.context().device().is_host()) return std::vector<bool>(all_.size(), true);
  std::vector<bool> rows;
  for (const RowId row : all_) {
    const NetParam& param = net.params()[map_->piece(row).param];
    rows.push_back(task.contribution == ContributionKind::kGradient && map_->is_param(row) &&
                   setup.ways[static_cast<std::size_t>(param.layer)] == Way::kTable);
  }
  return rows;
}

// Pins the params that come and the gradients that leave through the host in each task: by a
// collective gradients alone, by factors and NCCL neither.
void TableSide::pin_params(const TableSetup& setup) {
  const bool gradients = task.contribution == ContributionKind::kGradient;
  const Device& device = net.context().device();
  for (const NetParam& param : net.params()) {
    const Way way = setup.ways[static_cast<std::size_t>(param.layer)];
    if (way == Way::kTable || !gradients) param.blob->data.pin(device);
    if (gradients && param.lr_mult != 0 && way != Way::kFactors && way != Way::kNccl)
      param.blob->grad.pin(device);
  }
}

void TableSide::start_at(std::int64_t iteration, const std::vector<std::int64_t>& all) {
  CHECK(!created_) << "a start at " << iteration << " after the rows were made";
  start_ = iteration;
  iteration_ = start_ - 1;
  if (!lockstep) clocks_ = all;  // in lockstep there is one clock, and an update for each
  resumed_ = true;
}

// ---- rows ----

Status TableSide::create() {
  if (created_) return {};
  staging_->fix();
  const auto initial = [this](RowId row, Part part) {
    if (part == Part::kLeftOut) return std::span<const float>(left_out_[row]);
    return part != Part::kWeights && !resumed_ ? std::span<const float>()
                                               : std::span<const float>(place(row, part).numbers);
  };
  const auto destinations = [this](RowId row, Part part) { return place(row, part); };
  table::Plan plan = plan_of(recipe, map_->rows(), table.roster(), start_, clocks_, options);
  for (Messages& messages : messages_) {
    const auto rows = messages.rows->rows(static_cast<RowId>(plan.rows.size()));
    std::ranges::copy(rows, std::back_inserter(plan.rows.edit()));
    messages.end = static_cast<RowId>(plan.rows.size());
  }
  codecs_.put(plan);
  if (task.contribution != ContributionKind::kGradient || learning_.empty())
    plan.clip = -1;  // each worker clips its own, or the same sums
  plan.why_none = why_none_;
  if (task.is_streamed()) plan_momentum(task, plan);
  // The rows of params that workers update themselves are read once.
  if (learning_.empty()) plan.copies = 1;
  TRY(table.create(plan, initial, destinations));
  created_ = true;
  return first_read(plan);
}

// Reads the first numbers. Histories that were not restored are as the chief's: zeros. Where
// workers apply the rule, all go on with the chief's.
Status TableSide::first_read(const table::Plan& plan) {
  if (task.is_planned()) {
    const Result<double> seconds = measure_exchange(table, plan);
    TRY(seconds);
    pacer.exchange_takes(seconds.value());
  }
  const bool gradients = task.contribution == ContributionKind::kGradient;
  for (const RowId row : all_) {
    if (map_->rows()[row].learns || !map_->is_history(row) || resumed_) get(row, start_);
    if (gradients || !resumed_ || !map_->is_param(row)) continue;
    if (task.is_streamed() && place(row, Part::kHistory).numbers.empty()) continue;
    table.get(row, start_, Part::kHistory);
    if (optim::histories(plan.rule.rule) > 1) table.get(row, start_, Part::kHistory2);
  }
  return {};
}

// Returns nothing for histories that nothing was restored into, nor asked for.
table::Destination TableSide::place(RowId row, Part part) {
  if (row >= all_.size())
    return std::ranges::upper_bound(messages_, row, {}, &Messages::end)->rows->destination(row);
  if (part == Part::kWeights)
    return diverted_ && !(*diverted_)[row].empty() ? std::span<float>((*diverted_)[row])
                                                   : staging_->weights(row);
  if (part == Part::kLeftOut) return std::span<float>(left_out_[row]);
  const RowMap::Piece at = map_->piece(row);
  const std::size_t h = part == Part::kHistory ? 0 : 1;
  const std::size_t index = h * net.params().size() + at.param;
  if (map_->is_history(row) || index >= histories_.size() || histories_[index].empty())
    return std::span<float>();
  return histories_[index].subspan(at.offset, map_->rows()[row].length);
}

void TableSide::get(RowId row, table::Clock clock) {
  staging_->expect(row);
  table.get(row, clock, Part::kWeights);
}

void TableSide::push(std::span<const table::Push> pushes) {
  for (const table::Push& one : pushes) staging_->expect(one.row);
  table.push(pushes);
}

Status TableSide::receive(std::span<const RowId> rows) {
  TRY(waits.wait(rows));
  staging_->upload(rows);
  return {};
}

Status TableSide::read(table::Clock clock) {
  for (const RowId row : learning_) get(row, clock);
  return receive(learning_);
}

Status TableSide::fetch_left_out() {
  std::vector<RowId> rows;
  for (const RowId row : learning_)
    if (answers_changes(row)) rows.push_back(row);
  for (const RowId row : rows) {
    left_out_[row].resize(map_->rows()[row].length);
    table.get(row, next(), Part::kLeftOut);
  }
  return waits.wait(rows);
}

namespace {

// The states of pushes, then, where they are known, those of answers, each by param.
struct OwnStates final : OwnState {
  ParamStates states;
};

}  // namespace

ParamStates TableSide::all_states() const {
  ParamStates states = states_->save(net.params().size());
  for (const RowId row : all_) {
    if (left_out_[row].empty()) continue;
    const RowMap::Piece at = map_->piece(row);
    states.resize(2 * net.params().size());
    std::vector<float>& left = states[net.params().size() + at.param].left_out;
    left.resize(std::max(left.size(), at.offset + left_out_[row].size()));
    std::ranges::copy(left_out_[row], left.begin() + static_cast<std::ptrdiff_t>(at.offset));
  }
  return states;
}

void TableSide::take_all_states(const ParamStates& states) {
  states_->take(states);
  for (const RowId row : all_) {
    const RowMap::Piece at = map_->piece(row);
    const std::size_t length = map_->rows()[row].length;
    if (!answers_changes(row) || states.size() <= net.params().size() + at.param) continue;
    const std::span<const float> left = states[net.params().size() + at.param].left_out;
    if (at.offset + length > left.size()) continue;
    const auto part = left.subspan(at.offset, length);
    left_out_[row].assign(part.begin(), part.end());
  }
}

std::shared_ptr<const OwnState> TableSide::own_state() const {
  const auto own = std::make_shared<OwnStates>();
  own->states = all_states();
  return own;
}

void TableSide::take_own_state(const OwnState* own) {
  if (own) take_all_states(static_cast<const OwnStates*>(own)->states);
}

std::string TableSide::own_bytes() const {
  const auto is_change = [this](RowId row) { return answers_changes(row); };
  return states_->any() || std::ranges::any_of(all_, is_change) ? encode(all_states()) : "";
}

Status TableSide::take_own_bytes(std::string_view bytes) {
  const Result<ParamStates> states = decode_param_states(bytes);
  TRY(states);
  take_all_states(states.value());
  return {};
}

void TableSide::fix_histories(const std::vector<Tensor*>& histories) {
  histories_.clear();
  for (Tensor* history : histories)
    histories_.push_back(history ? history->host_mut() : std::span<float>());
}

void TableSide::fix_momentum(std::vector<std::vector<float>>& momentum) {
  histories_.assign(momentum.begin(), momentum.end());
}

std::vector<StateRow> TableSide::state_rows() const {
  std::vector<StateRow> rows;
  for (const RowId row : all_) {
    const RowMap::Piece at = map_->piece(row);
    if (!map_->is_history(row))
      rows.push_back(
          {at.param, at.offset, map_->rows()[row].length, created_ ? table.version(row) : start_});
  }
  return rows;
}

// ---- tasks ----

// Before a worker reports a task as complete, its updates must be in the rows, unless the scheme
// lets it ask early.
Result<Permission> TableSide::wait_to_begin(std::int64_t iteration, Exchange& exchange) {
  if (!task.paced) return Permission{Begin::kBegin, iteration};
  TRY(task.asks_early ? create() : exchange.settle(Settle::kOwn));
  const Result<Begin> begin = pacer.begin(iteration);
  TRY(begin);
  if (begin.value() == Begin::kBegin && pacer.start().reread &&
      task.contribution != ContributionKind::kWeights)
    TRY(read(next()));
  return Permission{begin.value(), task.shared ? pacer.start().at : iteration};
}

Status TableSide::begin(std::int64_t iteration, float rate) {
  TRY(create());
  CHECK(iteration >= start_) << "iteration " << iteration << " of rows that begin at " << start_;
  iteration_ = iteration;
  rate_ = rate;
  return {};
}

void TableSide::step_done() {
  pacer.step_done(static_cast<double>(batch_size(net)) * recipe.iter_size *
                  net.context().share().replicas);
}

}  // namespace shoal::parallel
