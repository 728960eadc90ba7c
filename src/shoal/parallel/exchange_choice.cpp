#include "shoal/parallel/exchange_choice.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "shoal/base/number.h"
#include "shoal/base/text.h"
#include "shoal/net/net.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/recipe.h"

namespace shoal::parallel {
namespace {

using Way = ExchangeParameter::Way;

bool is_shared(const Net& net, int layer) {
  const auto& own = net.layers()[static_cast<std::size_t>(layer)]->params();
  for (std::size_t other = 0; other < net.layers().size(); ++other)
    for (const auto& blob : net.layers()[other]->params())
      for (const auto& mine : own)
        if (static_cast<int>(other) != layer && blob->data.shares_with(mine->data)) return true;
  return false;
}

// Why no layer's gradients can travel as factors; "" if they can.
std::string why_none(const SolverParameter& solver, const std::string& name,
                     const table::Scheme& scheme, const Crowd& crowd) {
  if (!factor_timing(scheme.spec()))
    return str("scheme '", scheme.name(),
               "' has no update that takes all workers' gradients of a clock; bsp, and ssp with a "
               "staleness and a factor alone, have");
  if (crowd.replicas > 1) return "a process has several replicas";
  if (read_recipe(solver, name).clip >= 0)
    return "clip_gradients needs the norm of all gradients at the servers";
  return "";
}

// The same of one layer.
std::string why_not(const Net& net, int layer) {
  const Layer& of = *net.layers()[static_cast<std::size_t>(layer)];
  if (dynamic_cast<const Factored*>(&of) == nullptr)
    return str("the gradient of a ", of.type(), " is no product of two factors");
  if (!of.param_propagates(0)) return "its weight does not learn (lr_mult: 0)";
  if (is_shared(net, layer)) return "another layer shares its params";
  return "";
}

Way wanted(const ExchangeParameter& parameter, const Layer& layer, bool& by_name) {
  Way way = parameter.way();
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
                        ": exchange: a layer has either a name or a type, and the way it goes");
    if (std::ranges::none_of(net.layers(), matches))
      throw ConfigError(
          Code::kConfig, name, ": exchange: the net has no layer ",
          one.name().empty() ? "of type '" + one.type() + "'" : "'" + one.name() + "'");
  }
}

}  // namespace

std::optional<FactorTiming> factor_timing(const table::SchemeSpec& scheme) {
  FactorTiming timing;
  if (scheme.name == "bsp") return timing;
  if (scheme.name != "ssp") return std::nullopt;
  for (const std::string& word : scheme.parameters) {
    if (word.starts_with("factor="))
      timing.sum = "ssp 0 " + word;
    else if (const auto staleness = number_in<table::Clock>(word))  // "ssp 2", its shortest form
      timing.staleness = *staleness;
    else
      return std::nullopt;
  }
  return timing;
}

double table_traffic(std::int64_t params, const Crowd& crowd) {
  return 2.0 * static_cast<double>(params) *
         static_cast<double>(crowd.workers + crowd.servers - 2) /
         static_cast<double>(crowd.servers);
}

double factor_traffic(const Factored::Sizes& sizes, const Crowd& crowd) {
  return 2.0 * static_cast<double>(sizes.rows * (crowd.workers - 1)) *
         static_cast<double>(sizes.outputs + sizes.inputs);
}

bool factors_are_fewer(const Factored::Sizes& sizes, const Crowd& crowd) {
  return sizes.rows * (crowd.workers - 1) * (sizes.outputs + sizes.inputs) * crowd.servers <=
         sizes.outputs * sizes.inputs * (crowd.workers + crowd.servers - 2);
}

std::vector<LayerExchange> choose_exchanges(const Net& net, const SolverParameter& solver,
                                            const std::string& name, const table::Scheme& scheme,
                                            const Crowd& crowd) {
  const ExchangeParameter& parameter = solver.exchange();
  check_names(net, parameter, name);
  const bool asked = solver.has_exchange() && crowd.workers > 1;
  const std::string none = asked ? why_none(solver, name, scheme, crowd) : "";
  std::vector<LayerExchange> choices;
  for (std::size_t i = 0; i < net.layers().size(); ++i) {
    const Layer& layer = *net.layers()[i];
    LayerExchange choice{.layer = static_cast<int>(i), .why = "as the solver says"};
    std::int64_t params = 0;
    for (const NetParam& param : net.params())
      if (param.layer == choice.layer && param.lr_mult != 0) params += param.blob->data.count();
    if (params == 0) continue;
    choice.table = table_traffic(params, crowd);
    bool by_name = false;
    const Way way = asked ? wanted(parameter, layer, by_name) : ExchangeParameter::TABLE;
    const std::string reason = none.empty() ? why_not(net, choice.layer) : none;
    if (const auto* factored = dynamic_cast<const Factored*>(&layer); factored && reason.empty()) {
      Factored::Sizes sizes = factored->factor_sizes();
      sizes.rows *= solver.iter_size();
      choice.factors = factor_traffic(sizes, crowd);
      choice.by_factors = way == ExchangeParameter::FACTORS ||
                          (way == ExchangeParameter::AUTO && factors_are_fewer(sizes, crowd));
      if (way == ExchangeParameter::AUTO)
        choice.why = choice.by_factors ? "fewer numbers" : "more numbers as factors";
    } else if (way == ExchangeParameter::FACTORS && (by_name || !none.empty())) {
      throw ConfigError(Code::kConfig, name, ": exchange: layer '", layer.name(),
                        "' cannot send factors: ", reason);
    } else if (way != ExchangeParameter::TABLE) {
      choice.why = reason;
    }
    choices.push_back(std::move(choice));
  }
  return choices;
}

Layers by_factors(const Net& net, const std::vector<LayerExchange>& choices) {
  Layers layers(net.layers().size());
  for (const LayerExchange& choice : choices)
    layers[static_cast<std::size_t>(choice.layer)] = choice.by_factors;
  return layers;
}

namespace {

double megabytes(double numbers) { return numbers * sizeof(float) / 1e6; }

}  // namespace

std::string summary_of(const Net& net, const std::vector<LayerExchange>& choices) {
  std::vector<std::string> names;
  double all = 0, table = 0;
  for (const LayerExchange& choice : choices) {
    table += choice.table;
    all += choice.by_factors ? choice.factors : choice.table;
    if (choice.by_factors)
      names.push_back(net.layers()[static_cast<std::size_t>(choice.layer)]->name());
  }
  if (names.empty()) return "";
  std::ostringstream out;
  out << std::setprecision(4) << "the gradients of " << join(names)
      << " travel as factors: " << megabytes(all)
      << " MB an iteration to and from a process, where the table alone takes " << megabytes(table);
  return out.str();
}

std::string table_of(const Net& net, const std::vector<LayerExchange>& choices) {
  std::ostringstream out;
  out << std::left << std::setw(24) << "layer" << std::right << std::setw(12) << "table MB"
      << std::setw(12) << "factors MB"
      << "  travels by\n"
      << std::fixed << std::setprecision(3);
  for (const LayerExchange& choice : choices) {
    out << std::left << std::setw(24)
        << net.layers()[static_cast<std::size_t>(choice.layer)]->name() << std::right
        << std::setw(12) << megabytes(choice.table) << std::setw(12);
    if (choice.factors > 0)
      out << megabytes(choice.factors);
    else
      out << "-";
    out << (choice.by_factors ? "  factors: " : "  table: ") << choice.why << "\n";
  }
  return out.str();
}

}  // namespace shoal::parallel
