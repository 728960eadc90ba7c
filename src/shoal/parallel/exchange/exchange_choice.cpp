#include "shoal/parallel/exchange/exchange_choice.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "shoal/base/error.h"
#include "shoal/base/text.h"
#include "shoal/net/net.h"
#include "shoal/parallel/sums/mpi_sum.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/net_params.h"
#include "shoal/solver/recipe.h"

namespace shoal::parallel {
namespace {

using Wanted = ExchangeParameter::Way;

bool is_shared(const Net& net, int layer) {
  const auto& own = net.layers()[layer]->params();
  for (std::size_t other = 0; other < net.layers().size(); ++other)
    for (const auto& blob : net.layers()[other]->params())
      for (const auto& mine : own)
        if (static_cast<int>(other) != layer && blob->data.shares_with(mine->data)) return true;
  return false;
}

// Returns why no layer can go by a way; "" if layers can.
std::string why_none(Way way, const table::Scheme& scheme) {
  if (way == Way::kTable) return "";
  if (way == Way::kMpi && !why_no_mpi().empty()) return why_no_mpi();
  if (is_collective(way) && scheme.spec().name == "local_steps")
    return scheme.task.momentum == table::MomentumPolicy::kAverage
               ? "momentum_policy AVERAGE averages the histories too, which only the table does"
               : "";
  const auto timing = factor_timing(scheme.spec());
  if (!timing)
    return str(
        "scheme '", scheme.name(),
        "' makes no update of all workers' gradients of a clock. bsp does, and ssp with no other "
        "parameters than staleness and factor; local_steps sums deltas by the ways that sum");
  if (is_collective(way) && timing->staleness > 0)
    return str("scheme '", scheme.name(),
               "' lets workers be at different clocks, and a sum takes them at one clock");
  return "";
}

// Returns why one layer cannot go by a way; "" if it can.
std::string why_not(Way way, const Net& net, int layer) {
  const Layer& of = *net.layers()[layer];
  if (way != Way::kFactors) return "";
  if (dynamic_cast<const Factored*>(&of) == nullptr)
    return str("the gradient of a ", of.type(), " is no product of two factors");
  if (net.varies(layer)) return "its number of items differs from pass to pass";
  if (!of.param_propagates(0)) return "its weight does not learn (lr_mult: 0)";
  return is_shared(net, layer) ? "another layer shares its params" : "";
}

Wanted wanted(const ExchangeParameter& parameter, const Layer& layer, bool& by_name) {
  Wanted way = parameter.way();
  by_name = false;
  for (const ExchangeParameter::Override& one : parameter.layer()) {
    const bool is_named = !one.name().empty() && one.name() == layer.name();
    if (!is_named && (one.type().empty() || one.type() != layer.type())) continue;
    way = one.way();
    by_name = true;
  }
  return way;
}

void check_names(const Net& net, const ExchangeParameter& parameter, const std::string& name) {
  for (const ExchangeParameter::Override& one : parameter.layer()) {
    const auto matches = [&](const auto& layer) {
      return layer->name() == one.name() || layer->type() == one.type();
    };
    if (one.name().empty() == one.type().empty())
      throw ConfigError(Code::kConfig, name,
                        ": exchange: each layer { } needs a name or a type, not both");
    if (std::ranges::none_of(net.layers(), matches))
      throw ConfigError(
          Code::kConfig, name, ": exchange: the net has no layer ",
          one.name().empty() ? "of type '" + one.type() + "'" : "'" + one.name() + "'");
  }
}

std::optional<Way> way_of(Wanted wanted) {
  for (const Way way : kWays)
    if (ExchangeParameter::Way_Name(wanted) == name_of(way)) return way;
  return std::nullopt;  // AUTO
}

LayerSize size_of(const Net& net, int layer, int passes, std::int64_t least,
                  const std::vector<LayerCodecs>& codecs, const Rates& rates) {
  LayerSize size;
  for (const std::size_t p : learning_of(net, layer))
    size.params += net.params()[p].blob->data.count();
  if (!codecs.empty()) {
    const CodecBytes bytes = bytes_of(net, layer, codecs[static_cast<std::size_t>(layer)], least);
    size.push_bytes = bytes.push / static_cast<double>(std::max<std::int64_t>(1, size.params));
    size.pull_bytes = bytes.pull / static_cast<double>(std::max<std::int64_t>(1, size.params));
    size.sum_bytes = sum_bytes_of(net, layer, codecs[static_cast<std::size_t>(layer)]);
    size.codec_seconds = seconds_a_number(codecs[static_cast<std::size_t>(layer)], rates);
  }
  if (const auto* of = dynamic_cast<const Factored*>(net.layers()[layer].get())) {
    size.factors = of->factor_sizes();
    size.factors->rows *= passes;
  }
  return size;
}

double measure(const Cost& cost, const Rates& rates) {
  return rates.bandwidth > 0 ? cost.seconds() : cost.numbers;
}
double measure(const std::vector<LayerExchange>& choices, const Rates& rates) {
  double sum = 0;
  for (const LayerExchange& choice : choices) sum += measure(choice.cost(), rates);
  return sum;
}

constexpr double kClearly = 0.99;

// Returns the cheapest way, other than the table, by which every layer can go.
Way cheapest_sum(const LayerExchange& choice, const Rates& rates) {
  Way best = Way::kTable;
  for (const auto& [way, cost] : choice.costs) {
    if (way == Way::kTable || is_of_library(way)) continue;
    if (best == Way::kTable || measure(cost, rates) < measure(choice.costs.at(best), rates))
      best = way;
  }
  return best;
}

// Makes all layers go by the table, or none: the norm for a clip is known at the servers or in
// every worker. `said`: the ways that the solver says, by choice.
void keep_together(std::vector<LayerExchange>& choices, const std::vector<std::optional<Way>>& said,
                   const Net& net, const std::string& name, const Rates& rates) {
  const auto layer_of = [&](bool table) {
    for (std::size_t i = 0; i < choices.size(); ++i)
      if (said[i] == choices[i].way && (choices[i].way == Way::kTable) == table)
        return net.layers()[static_cast<std::size_t>(choices[i].layer)]->name();
    return std::string();
  };
  const std::string fixed = layer_of(true), summed = layer_of(false);
  std::vector<LayerExchange> table = choices, sums = choices;
  for (LayerExchange& choice : table) choice.way = Way::kTable;
  for (LayerExchange& choice : sums)
    if (choice.way == Way::kTable) choice.way = cheapest_sum(choice, rates);
  const bool by_table = summed.empty() && (!fixed.empty() || measure(sums, rates) >=
                                                                 kClearly * measure(table, rates));
  if (!fixed.empty() && !summed.empty())
    throw ConfigError(Code::kConfig, name, ": exchange: layer '", fixed, "' goes by TABLE and '",
                      summed,
                      "' does not, and clip_gradients takes the norm of all gradients in "
                      "one place: let all layers go by TABLE, or none");
  const std::vector<LayerExchange> before = std::exchange(choices, by_table ? table : sums);
  for (std::size_t i = 0; i < choices.size(); ++i)
    if (choices[i].way != before[i].way)
      choices[i].why = "with clip_gradients all layers go by the table, or none";
}

// Chooses the way for AUTO, and says why.
void choose(LayerExchange& choice, const JobSize& job, const Rates& rates) {
  choice.way = Way::kTable;
  if (rates.bandwidth <= 0) {
    const bool factors = choice.costs.contains(Way::kFactors);
    const bool fewer = factors && factors_are_fewer(*choice.size.factors, job);
    choice.way = fewer ? Way::kFactors : Way::kTable;
    choice.why = fewer ? "fewer numbers" : factors ? "more numbers as factors" : "";
    return;
  }
  choice.why = "least time";
  for (const auto& [way, cost] : choice.costs) {
    const double limit = choice.cost().seconds() * (choice.way == Way::kTable ? kClearly : 1);
    if (!is_of_library(way) && cost.seconds() < limit) choice.way = way;
  }
}

// Returns whether the way makes too many rows for AUTO. A way that cuts a vector into a part for
// each worker has 2 P (P - 1) rows a strip, which every process records.
bool has_many_rows(Way way, const JobSize& job) {
  constexpr std::int64_t kMostWorkers = 64;
  return (way == Way::kRing || way == Way::kDirect) && job.workers > kMostWorkers;
}

// Returns the bytes of a number that workers send each other of a layer.
double sum_bytes_of(const std::vector<LayerExchange>& choices, int layer) {
  return std::ranges::find(choices, layer, &LayerExchange::layer)->size.sum_bytes;
}

double megabytes(double numbers) { return numbers * sizeof(float) / 1e6; }
std::string_view name_of_layer(const Net& net, const LayerExchange& choice) {
  return net.layers()[choice.layer]->name();
}

}  // namespace

std::optional<FactorTiming> factor_timing(const table::SchemeSpec& scheme) {
  using table::SchemeSpec;
  if (scheme == SchemeSpec()) return FactorTiming();
  FactorTiming timing{scheme, scheme.staleness.value_or(table::kUnbounded)};
  timing.sum.staleness = 0;
  const bool is_sum =
      timing.sum == SchemeSpec{.name = "ssp", .staleness = 0, .factor = scheme.factor};
  return is_sum && timing.staleness != table::kUnbounded ? std::optional(timing) : std::nullopt;
}

std::vector<LayerExchange> choose_exchanges(const Net& net, const SolverParameter& solver,
                                            const std::string& name, const table::Scheme& scheme,
                                            const JobSize& job, const Rates& rates,
                                            const std::vector<LayerCodecs>& codecs) {
  const ExchangeParameter& parameter = solver.exchange();
  check_names(net, parameter, name);
  const bool asked = solver.has_exchange() && job.workers > 1;
  std::vector<LayerExchange> choices;
  std::vector<std::optional<Way>> all_said;
  for (int i = 0; i < static_cast<int>(net.layers().size()); ++i) {
    const Layer& layer = *net.layers()[i];
    LayerExchange choice{.layer = i,
                         .size = size_of(net, i, solver.iter_size() * job.replicas,
                                         least_coded(solver), codecs, rates),
                         .why = ""};
    if (choice.size.params == 0) continue;
    bool by_name = false;
    const Wanted want = asked ? wanted(parameter, layer, by_name) : ExchangeParameter::TABLE;
    const std::optional<Way> said = way_of(want);
    std::string why_no_other;  // than the way that is said, or than the table
    for (const Way way : kWays) {
      const std::string none = asked ? why_none(way, scheme) : "";
      const std::string reason = none.empty() ? why_not(way, net, i) : none;
      if (reason.empty() && (way == said || !has_many_rows(way, job)))
        choice.costs[way] = cost_of(way, choice.size, job, rates);
      else if (!reason.empty() && way == said.value_or(Way::kFactors))
        why_no_other = reason;
      // If the way is said for a whole net, its layers that cannot use it go by the table.
      if (way == said && !reason.empty() && (by_name || !none.empty()))
        throw ConfigError(Code::kConfig, name, ": exchange: layer '", layer.name(), "' cannot ",
                          way == Way::kFactors ? "send factors" : str("go by ", name_of(way)), ": ",
                          reason);
    }
    if (said) {
      choice.way = why_no_other.empty() ? *said : Way::kTable;
      choice.why = why_no_other.empty() ? "as the solver says" : why_no_other;
    } else {
      choose(choice, job, rates);
      if (choice.why.empty()) choice.why = why_no_other;
    }
    if (said && !codecs.empty())
      check_sum_codec(codecs[static_cast<std::size_t>(i)], choice.way, layer.name(), name);
    choices.push_back(std::move(choice));
    all_said.push_back(said);
  }
  const auto by_table = [](const LayerExchange& choice) { return choice.way == Way::kTable; };
  if (clips_all(solver, name, scheme) && !std::ranges::all_of(choices, by_table))
    keep_together(choices, all_said, net, name, rates);
  return choices;
}

bool clips_all(const SolverParameter& solver, const std::string& name,
               const table::Scheme& scheme) {
  return scheme.contribution() == table::ContributionKind::kGradient &&
         read_recipe(solver, name).clip >= 0;
}

Rates rates_of(const SolverParameter& solver, const Rates& others) {
  const ExchangeParameter& said = solver.exchange();
  Rates rates = others;
  if (said.has_bandwidth()) rates.bandwidth = said.bandwidth();
  if (said.has_latency_ms()) rates.latency = said.latency_ms() / 1e3;
  if (said.has_multiply_adds()) rates.multiply_adds = said.multiply_adds();
  return rates;
}

bool needs_rates(const SolverParameter& solver) {
  const ExchangeParameter& said = solver.exchange();
  const auto is_auto = [](const auto& one) { return one.way() == ExchangeParameter::AUTO; };
  return solver.has_exchange() && (is_auto(said) || std::ranges::any_of(said.layer(), is_auto)) &&
         !(said.has_bandwidth() && said.has_latency_ms() && said.has_multiply_adds());
}

std::vector<Bucket> buckets_of(const Net& net, const std::vector<Way>& ways, std::size_t enough) {
  std::vector<Bucket> buckets;
  for (int layer = static_cast<int>(ways.size()); layer-- > 0;) {
    const Way way = ways[layer];
    if (!is_collective(way)) continue;
    const bool joins = !buckets.empty() && buckets.back().way == way &&
                       buckets.back().count * sizeof(float) < enough;
    if (!joins) buckets.push_back({.way = way, .layers = {}, .count = 1});
    buckets.back().layers.push_back(layer);
    for (const std::size_t p : learning_of(net, layer))
      buckets.back().count += static_cast<std::size_t>(net.params()[p].blob->data.count());
  }
  return buckets;
}

std::vector<Way> ways_of(const Net& net, const std::vector<LayerExchange>& choices) {
  std::vector<Way> ways(net.layers().size(), Way::kTable);
  for (const LayerExchange& choice : choices) ways[choice.layer] = choice.way;
  return ways;
}

Layers replicated_by(const std::vector<Way>& ways) {
  Layers layers;
  for (const Way way : ways) layers.push_back(way != Way::kTable);
  return layers;
}

Layers collective_by(const std::vector<Way>& ways) {
  Layers layers;
  for (const Way way : ways) layers.push_back(is_collective(way));
  return layers;
}

// Returns "the gradients of fc6, fc7 travel by FACTORS: 3.4 MB an iteration to and from a process,
// where the table alone takes 234".
std::string summary_of(const Net& net, const std::vector<LayerExchange>& choices) {
  std::vector<std::string> ways;
  for (const Way way : kWays) {
    std::vector<std::string> names;
    for (const LayerExchange& choice : choices)
      if (choice.way == way) names.emplace_back(name_of_layer(net, choice));
    if (way != Way::kTable && !names.empty())
      ways.push_back(str(names.size() == choices.size() ? "all layers" : join(names), " travel by ",
                         name_of(way)));
  }
  if (ways.empty()) return "";
  double all = 0, table = 0;
  for (const LayerExchange& choice : choices) {
    table += choice.costs.at(Way::kTable).numbers;
    all += choice.cost().numbers;
  }
  std::ostringstream out;
  out << std::setprecision(4) << "the gradients of " << join(ways, "; those of ") << ": "
      << megabytes(all) << " MB an iteration to and from a process, where the table alone takes "
      << megabytes(table);
  return out.str();
}

std::string table_of(const Net& net, const std::vector<LayerExchange>& choices,
                     const Rates& rates) {
  const bool timed = rates.bandwidth > 0;
  std::ostringstream out;
  out << std::setprecision(3) << "MB that a process sends and receives in an iteration";
  if (timed)
    out << " / ms, of links with " << rates.bandwidth / 1e6 << " MB/s and " << rates.latency * 1e3
        << " ms, and processors with " << rates.multiply_adds / 1e9
        << " G multiply-adds a second:\n";
  else
    out << "; the links' rates are unknown:\n";
  out << std::left << std::setw(22) << "layer" << std::right;
  for (const Way way : kPredictedWays) out << std::setw(20) << name_of(way);
  out << "  travels by\n";
  for (const LayerExchange& choice : choices) {
    out << std::left << std::setw(22) << name_of_layer(net, choice) << std::right;
    for (const Way way : kPredictedWays) {
      const auto known = choice.costs.find(way);
      std::ostringstream cell;
      cell << std::fixed << std::setprecision(3);
      if (known == choice.costs.end()) {
        cell << "-";
      } else {
        const Cost& cost = known->second;
        cell << megabytes(cost.numbers);
        if (timed) cell << " /" << std::setw(9) << cost.seconds() * 1e3;
      }
      out << std::setw(20) << cell.str();
    }
    out << "  " << name_of(choice.way) << ": " << choice.why << "\n";
  }
  return out.str();
}

Forecast forecast_of(const Net& net, const std::vector<LayerExchange>& choices, const JobSize& job,
                     const Rates& rates, int passes, bool clips) {
  Forecast forecast{
      .slices = slices_of(net, estimated_shares(net), passes, true), .legs = {}, .clips = clips};
  for (auto choice = choices.rbegin(); choice != choices.rend(); ++choice)
    if (!is_collective(choice->way))
      forecast.legs.push_back(
          {.layers = {choice->layer},
           .cost = choice->cost(),
           .answers = choice->way == Way::kTable ? choice->cost().link / 2 : 0});
  for (const Bucket& bucket : buckets_of(net, ways_of(net, choices), bucket_bytes(rates)))
    forecast.legs.push_back(
        {.layers = bucket.layers,
         .cost = cost_of(bucket.way,
                         {.params = static_cast<std::int64_t>(bucket.count),
                          .sum_bytes = sum_bytes_of(choices, bucket.layers.front())},
                         job, rates)});
  std::ranges::sort(forecast.legs, std::ranges::greater(),
                    [](const Leg& leg) { return leg.layers.back(); });
  return forecast;
}

}  // namespace shoal::parallel
