#include "shoal/parallel/table_exchange.h"

#include <numeric>

#include "shoal/base/log.h"
#include "shoal/net/net.h"
#include "shoal/parallel/exchange_choice.h"
#include "shoal/parallel/plan.h"
#include "shoal/parallel/replicated_layers.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/loss_scaling.h"

namespace shoal::parallel {

using table::Part;
using table::RowId;

TableExchange::TableExchange(const TableSetup& setup, const RowExtras& extras)
    : recipe_(read_recipe(setup.param, setup.options.name)),
      options_(setup.options),
      task_(setup.scheme.task),
      lockstep_(setup.scheme.lockstep),
      policy_{.bounded = setup.scheme.bounded(),
              .in_step = task_.contribution == table::ContributionKind::kGradient &&
                         !setup.scheme.spec().groups.empty(),
              .shares_iterations = task_.shared,
              .shares_running_sums = extras.running_sums},
      net_(setup.net),
      table_(setup.table),
      map_(setup.net, options_.servers.value_or(servers_of(table_.roster())), extras),
      staging_(map_, in_place(setup)),
      early_(setup.param.on_nan() != SolverParameter::SKIP &&
             !skips_steps(setup.param, net_.context()) && !setup.param.debug_info() &&
             !net_.definition().debug_info() && !task_.judged && !task_.pull_first),
      all_(map_.rows().size()),
      learning_(map_.learning()),
      waits_(table_),
      pacer_(table_, task_, waits_, options_.until) {
  std::iota(all_.begin(), all_.end(), RowId{0});
  if (!net_.context().device().is_host()) pin_params(setup);
}

// By row. On a device: of params that the servers alone update.
std::vector<bool> TableExchange::in_place(const TableSetup& setup) const {
  if (net_.context().device().is_host()) return std::vector<bool>(map_.rows().size(), true);
  std::vector<bool> rows;
  for (RowId row = 0; row < map_.rows().size(); ++row) {
    const NetParam& param = net_.params()[map_.piece(row).param];
    rows.push_back(task_.contribution == table::ContributionKind::kGradient && map_.is_param(row) &&
                   setup.ways[static_cast<std::size_t>(param.layer)] == Way::kTable);
  }
  return rows;
}

// Params that come and gradients that leave through the host in each task: by a collective
// gradients alone, by factors and NCCL neither.
void TableExchange::pin_params(const TableSetup& setup) {
  const bool gradients = task_.contribution == table::ContributionKind::kGradient;
  const Device& device = net_.context().device();
  for (const NetParam& param : net_.params()) {
    const Way way = setup.ways[static_cast<std::size_t>(param.layer)];
    if (way == Way::kTable || !gradients) param.blob->data.pin(device);
    if (gradients && param.lr_mult != 0 && way != Way::kFactors && way != Way::kNccl)
      param.blob->grad.pin(device);
  }
}

Result<Permission> TableExchange::wait_to_begin(std::int64_t iteration) {
  if (!task_.paced) return Permission{Begin::kBegin, iteration};
  // a worker that the others are told to have finished has its numbers in the rows, where that
  // matters to them
  if (Status status = task_.asks_early ? create() : settle(Settle::kOwn); !status.ok())
    return status.error();
  const Result<Begin> begin = pacer_.begin(iteration);
  if (!begin.ok()) return begin.error();
  if (begin.value() == Begin::kBegin && pacer_.start().reread)
    if (Status status = reread(); !status.ok()) return status.error();
  return Permission{begin.value(), task_.shared ? pacer_.start().at : iteration};
}

Status TableExchange::settle(Settle how) {
  if (Status status = create(); !status.ok()) return status;
  if (Status status = receive_all(); !status.ok()) return status;
  return how == Settle::kTeams ? refresh() : Status();
}

void TableExchange::start_at(std::int64_t iteration, const std::vector<std::int64_t>& all) {
  CHECK(!created_) << "a start at " << iteration << " after the rows were made";
  start_ = iteration;
  iteration_ = start_ - 1;
  clocks_ = all;
  resumed_ = true;
}

Status TableExchange::create() {
  if (created_) return {};
  staging_.fix();
  const auto initial = [this](RowId row, Part part) {
    return part != Part::kWeights && !resumed_ ? std::span<const float>()
                                               : std::span<const float>(place(row, part).numbers);
  };
  const auto destinations = [this](RowId row, Part part) { return place(row, part); };
  table::Plan plan = plan_of(recipe_, map_.rows(), table_.roster(), start_, clocks_, options_);
  const std::vector<table::Row> more = more_rows(static_cast<RowId>(plan.rows.size()));
  std::ranges::copy(more, std::back_inserter(plan.rows.edit()));
  if (task_.contribution != table::ContributionKind::kGradient || learning_.empty())
    plan.clip = -1;  // each worker clips its own, or the same sums
  if (Status status = table_.create(plan, initial, destinations); !status.ok()) return status;
  created_ = true;
  return first_read(plan);
}

// Nothing for histories that nothing was restored into, nor asked for.
table::Destination TableExchange::place(RowId row, Part part) {
  if (part == Part::kWeights) return destination(row);
  const RowMap::Piece at = map_.piece(row);
  const std::size_t h = part == Part::kHistory ? 0 : 1;
  const std::size_t index = h * net_.params().size() + at.param;
  if (map_.is_history(row) || index >= histories_.size() || histories_[index].empty())
    return std::span<float>();
  return histories_[index].subspan(at.offset, map_.rows()[row].length);
}

Status TableExchange::begin_task(std::int64_t iteration, float rate) {
  if (Status status = create(); !status.ok()) return status;
  CHECK(iteration >= start_) << "iteration " << iteration << " of rows that begin at " << start_;
  iteration_ = iteration;
  rate_ = rate;
  return {};
}

Status TableExchange::receive(std::span<const RowId> rows) {
  if (Status status = waits_.wait(rows); !status.ok()) return status;
  staging_.upload(rows);
  return {};
}

void TableExchange::get(RowId row, table::Clock clock) {
  staging_.expect(row);
  table_.get(row, clock, Part::kWeights);
}

Status TableExchange::read(table::Clock clock) {
  for (const RowId row : learning_) get(row, clock);
  return receive(learning_);
}

void TableExchange::push(std::span<const table::Push> pushes) {
  for (const table::Push& one : pushes) staging_.expect(one.row);
  table_.push(pushes);
}

void TableExchange::step_done() {
  pacer_.step_done(static_cast<double>(batch_size(net_)) * recipe_.iter_size *
                   net_.context().share().replicas);
}

void TableExchange::fix_histories(const std::vector<Tensor*>& histories) {
  histories_.clear();
  for (Tensor* history : histories)
    histories_.push_back(history ? history->host_mut() : std::span<float>());
}

ExchangeOffer table_offer(const SolverParameter& param, table::Table& table,
                          const WorkerOptions& options) {
  const auto make = [param, &table, options](Net& net, const Layers& layers) {
    const auto scheme = options.maker(options.scheme);
    if (!scheme.ok())
      throw ConfigError(scheme.error().code, options.name, ": ", scheme.error().message);
    check_fit(param, options.name, *scheme.value(), workers_of(table.roster()));
    const JobSize job = job_size_of(table.roster(), net.context().share().replicas);
    std::vector<Way> ways = ways_of(
        net, choose_exchanges(net, param, options.name, *scheme.value(), job, options.rates));
    for (std::size_t layer = 0; layer < layers.size(); ++layer)
      if (!layers[layer]) ways[layer] = Way::kTable;
    const bool gradients = scheme.value()->contribution() == table::ContributionKind::kGradient;
    return (gradients ? make_gradient_exchange : make_local_steps_exchange)(
        {param, net, layers, table, options, *scheme.value(), ways});
  };
  return {[](const Layer&) { return true; }, make};
}

}  // namespace shoal::parallel
