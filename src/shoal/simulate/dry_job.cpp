#include "shoal/simulate/dry_job.h"

#include <algorithm>
#include <numeric>

#include "shoal/parallel/exchange/factor_exchange.h"
#include "shoal/parallel/job/plan.h"
#include "shoal/parallel/rows/fragments.h"
#include "shoal/parallel/rows/row_codecs.h"
#include "shoal/parallel/sums/allreduce.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"

namespace shoal::simulate {

using parallel::Way;

DryJob::DryJob(const WorkerSetup& setup)
    : setup_(setup), recipe_(read_recipe(setup.spec.solver, setup.spec.name)) {
  Context context(
      Context::Options{.threads = 1, .share = {.client = 0, .clients = setup.job.workers()}});
  Net net(train_net_of(setup.spec.solver, setup.spec.name, context.share()), context);
  std::uint32_t longest = 0;
  for (const parallel::Phase& given : setup.spec.phases) {
    const DryPhase& phase = phases.emplace_back(phase_of(net, given));
    asks = asks || phase.task.paced || phase.task.judged || setup.spec.phases.size() > 1;
    for (const table::Row& row : phase.plan.rows) longest = std::max(longest, row.length);
  }
  samples = static_cast<double>(batch_size(net)) * recipe_.iter_size;
  numbers_ = std::make_shared<std::vector<float>>(longest);
}

DryPhase DryJob::phase_of(Net& net, const parallel::Phase& given) const {
  const SolverParameter& solver = setup_.spec.solver;
  const std::string& name = setup_.spec.name;
  const SimulatedJob& job = setup_.job;
  const auto scheme = or_throw(given.scheme.make());
  parallel::check_fit(solver, name, *scheme, job.workers());
  const table::Task task = scheme->task;
  const bool gradients = task.contribution == table::ContributionKind::kGradient;
  const bool averages = task.momentum == table::MomentumPolicy::kAverage;
  const auto local = !gradients && averages ? make_local_updater(solver, name, net) : nullptr;
  const parallel::Rates rates = parallel::rates_of(solver);
  const std::vector<parallel::LayerCodecs> codecs =
      parallel::choose_codecs(net, solver, name, *scheme, job.workers(), rates);
  const std::vector<Way> ways = parallel::ways_of(
      net, parallel::choose_exchanges(net, solver, name, *scheme,
                                      parallel::job_size_of(job.roster(), 1), rates, codecs));
  for (std::size_t layer = 0; layer < ways.size(); ++layer)
    if (ways[layer] != Way::kTable && codecs[layer].sum != table::CodecSpec())
      throw ConfigError(Code::kConfig, name, ": --dry knows codecs by TABLE alone, and layer '",
                        net.layers()[layer]->name(), "' goes by ", name_of(ways[layer]));
  const parallel::RowMap map(
      net, setup_.servers,
      {.running_sums = !gradients,
       .histories = local ? local->state().histories() : std::vector<Tensor*>(),
       .stays = gradients && parallel::is_alone(job.roster()),
       .pieces = task.is_streamed() ? parallel::kPiecesOfFragment * task.fragments : 1,
       .replicated = parallel::replicated_by(ways)});
  const Clock start = phases.empty() ? 0 : phases.back().end;
  DryPhase phase{
      .plan = parallel::plan_of(recipe_, map.rows(), job.roster(), start, {},
                                {.name = name,
                                 .scheme = given.scheme,
                                 .generation = static_cast<table::Generation>(phases.size())}),
      .task = task,
      .bounded = scheme->bounded(),
      .slices = {},
      .all = std::vector<RowId>(map.rows().size()),
      .learning = map.learning(),
      .rest = {},
      .fragments = {},
      .sums = {},
      .end = given.end};
  parallel::RowCodecs(net, map, codecs, parallel::least_coded(solver)).put(phase.plan);
  if (parallel::factor_timing(given.scheme).value_or(parallel::FactorTiming()).staleness > 0 &&
      std::ranges::count(ways, Way::kFactors) > 0)
    throw ConfigError(Code::kConfig, name,
                      ": --dry knows factors under bsp alone, and the scheme "
                      "is '",
                      scheme->name(), "'");
  if (!gradients || phase.learning.empty()) phase.plan.clip = -1;  // workers clip
  std::iota(phase.all.begin(), phase.all.end(), RowId{0});
  // A layer's rows are pushed as soon as its gradients are complete.
  const bool early = !task.judged && (gradients || (recipe_.clip < 0 && !task.pull_first));
  const std::vector<std::size_t> sends = add_slices(net, map, phase);
  if (task.is_streamed()) {
    const parallel::Fragments fragments(map, task.fragments, name);
    for (int fragment = 0; fragment < task.fragments; ++fragment)
      phase.fragments.push_back(fragments.rows(fragment));
    return phase;
  }
  for (const RowId row : phase.learning) {
    const bool with_layer = early && (gradients || map.is_param(row) || map.is_history(row));
    (with_layer ? phase.slices[sends[map.rows()[row].priority]].sends : phase.rest).push_back(row);
  }
  for (std::size_t i = 0; i < ways.size(); ++i)
    if (ways[i] == Way::kFactors) add_factors(net, static_cast<int>(i), sends[i], phase);
  for (const parallel::Bucket& bucket :
       parallel::buckets_of(net, ways, parallel::bucket_bytes(rates)))
    add_sum(bucket, sends, phase);
  phase.slices.front().needs_sums =
      phase.learning.empty() && parallel::clips_all(solver, name, *scheme);
  return phase;
}

// Returns, by layer, the slice that begins when its gradients are complete.
std::vector<std::size_t> DryJob::add_slices(const Net& net, const parallel::RowMap& map,
                                            DryPhase& phase) const {
  const ComputeSlices shares = slices_of(setup_.job, 0, net, recipe_.iter_size);
  const std::size_t layers = shares.has_params.size();
  std::vector<std::size_t> complete(layers);
  phase.slices = {{.share = shares.begin}};
  for (std::size_t i = 0; i < layers; ++i) {
    const auto needed = map.needed_by(static_cast<int>(i));
    if (shares.has_params[i])
      phase.slices.push_back({{needed.begin(), needed.end()}, {}, shares.forward[i]});
  }
  for (std::size_t i = layers; i-- > 0;) {
    if (!shares.has_params[i]) continue;
    complete[i] = phase.slices.size();
    phase.slices.push_back({.share = shares.backward[i]});
  }
  return complete;
}

// Adds the layer's messages, asked for before its forward pass and sent after its backward pass.
void DryJob::add_factors(const Net& net, int layer, std::size_t sends, DryPhase& phase) const {
  const auto before = static_cast<std::size_t>(layer);
  Factored::Sizes sizes = dynamic_cast<const Factored&>(*net.layers()[before]).factor_sizes();
  sizes.rows *= recipe_.iter_size;
  std::vector<std::vector<RowId>> messages;
  for (const std::uint16_t server : parallel::servers_by_worker(setup_.job.roster()))
    messages.push_back(
        parallel::add_message(sizes, layer, messages.size(), server, 0, phase.plan.rows.edit()));
  phase.slices[phase.slices.size() - sends].asks = messages;
  phase.slices[sends].tells = std::move(messages);
}

// Adds a bucket's sum. Of its layers, the lowest one's forward pass comes first, and its backward
// pass last.
void DryJob::add_sum(const parallel::Bucket& bucket, const std::vector<std::size_t>& sends,
                     DryPhase& phase) const {
  const std::vector<std::uint16_t> servers = parallel::servers_by_worker(setup_.job.roster());
  const auto lowest = static_cast<std::size_t>(bucket.layers.back());
  const std::vector<table::Row> rows =
      parallel::rows_of(bucket.way, bucket.count, static_cast<std::uint32_t>(lowest), servers);
  DrySum sum{
      .first = static_cast<RowId>(phase.plan.rows.size()),
      .strips = parallel::steps_of(bucket.way, static_cast<int>(servers.size()), bucket.count),
      .writes = std::vector<std::vector<RowId>>(servers.size()),
      .reads = std::vector<std::vector<RowId>>(servers.size())};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const RowId row = sum.first + static_cast<RowId>(i);
    sum.writes[static_cast<std::size_t>(rows[i].writer)].push_back(row);
    sum.reads[static_cast<std::size_t>(rows[i].reader)].push_back(row);
  }
  std::ranges::copy(rows, std::back_inserter(phase.plan.rows.edit()));
  const int number = static_cast<int>(phase.sums.size());
  phase.slices[phase.slices.size() - sends[lowest]].expects = number;
  phase.slices[sends[lowest]].starts = number;
  phase.sums.push_back(std::move(sum));
}

}  // namespace shoal::simulate
