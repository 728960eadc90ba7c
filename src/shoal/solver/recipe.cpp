#include "shoal/solver/recipe.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "shoal/base/beside.h"
#include "shoal/base/log.h"
#include "shoal/base/part_bounds.h"
#include "shoal/base/text.h"
#include "shoal/net/graph.h"
#include "shoal/net/net.h"
#include "shoal/proto/fields.h"
#include "shoal/proto/hdf5.h"
#include "shoal/proto/io.h"

namespace shoal {
namespace {

template <class... Args>
ConfigError wrong(const std::string& name, const Args&... args) {
  return ConfigError(Code::kConfig, name, ": ", args...);
}

optim::RuleOptions read_rule(const SolverParameter& param, const std::string& name) {
  const auto rule = optim::rule_named(param.type());
  const std::vector<std::string> known = optim::rule_names();
  if (!rule)
    throw wrong(name, "no solver type '", param.type(), "'", known_words(param.type(), known));
  const optim::RuleOptions options{*rule, param.momentum(), param.momentum2(), param.rms_decay(),
                                   param.delta()};
  if (const std::string why = optim::validate(options); !why.empty()) throw wrong(name, why);
  return options;
}

optim::RateOptions read_rate(const SolverParameter& param, const std::string& name) {
  const auto policy = optim::policy_named(param.lr_policy());
  const std::vector<std::string> known = optim::policy_names();
  if (param.lr_policy().empty()) throw wrong(name, "lr_policy is not given; known: ", join(known));
  if (!policy)
    throw wrong(name, "no lr_policy '", param.lr_policy(), "'",
                known_words(param.lr_policy(), known));
  const optim::RateOptions options{
      *policy,
      param.base_lr(),
      param.gamma(),
      param.power(),
      param.stepsize(),
      param.max_iter(),
      {param.stepvalue().begin(), param.stepvalue().end()},
      {param.plateau_winsize().begin(), param.plateau_winsize().end()}};
  if (const std::string why = optim::validate(options); !why.empty()) throw wrong(name, why);
  return options;
}

void check_counts(const SolverParameter& param, const std::string& name) {
  const struct {
    const char* field;
    int value, least;
  } counts[] = {
      {"iter_size", param.iter_size(), 1},
      {"average_loss", param.average_loss(), 1},
      {"max_iter", param.max_iter(), 0},
      {"test_interval", param.test_interval(), 0},
      {"display", param.display(), 0},
      {"snapshot", param.snapshot(), 0},
      {"snapshot_keep", param.snapshot_keep(), 0},
  };
  for (const auto& count : counts)
    if (count.value < count.least)
      throw wrong(name, count.field, " is ", count.value, "; it must be ", count.least, " or more");
  if (!(param.global_grad_scale() > 0) || std::isinf(param.global_grad_scale()))
    throw wrong(name, "global_grad_scale is ", param.global_grad_scale(),
                "; it must be a number above 0");
  for (const int batches : param.test_iter())
    if (batches < 1) throw wrong(name, "test_iter is ", batches, "; it must be 1 or more");
}

// Reads a net from a file that a field of the solver names.
NetParameter read_named_net(const char* field, const std::string& file, const std::string& name) {
  try {
    return read_net(file);
  } catch (const ConfigError& error) {
    if (error.error().message.starts_with(file + ":")) throw;
    throw wrong(name, field, ": ", error.error().message, beside(file, name));
  }
}

void set_state(NetParameter& net, Phase phase, const NetState* from_solver) {
  NetState state;
  state.set_phase(phase);
  state.MergeFrom(net.state());
  if (from_solver) state.MergeFrom(*from_solver);
  *net.mutable_state() = state;
}

// Calls f(layer, read, write) for the batch_size of each layer that has one.
template <class F>
void for_each_batch_size(NetParameter& net, F f) {
  for (LayerParameter& layer : *net.mutable_layer()) {
    if (reads_data_param(layer)) f(layer, *layer.mutable_data_param());
    if (layer.type() == "ImageData") f(layer, *layer.mutable_image_data_param());
    if (layer.type() == "MemoryData") f(layer, *layer.mutable_memory_data_param());
    if (layer.type() == "HDF5Data") f(layer, *layer.mutable_hdf5_data_param());
    if (layer.type() == "WindowData") f(layer, *layer.mutable_window_data_param());
  }
}

// Calls f(data_param) for each layer that reads a source which the solver may name.
template <class F>
int for_each_source(NetParameter& net, F f) {
  int layers = 0;
  for (LayerParameter& layer : *net.mutable_layer()) {
    if (reads_data_param(layer)) f(*layer.mutable_data_param());
    if (layer.type() == "ImageData") f(*layer.mutable_image_data_param());
    if (layer.type() == "HDF5Data") f(*layer.mutable_hdf5_data_param());
    if (layer.type() == "WindowData") f(*layer.mutable_window_data_param());
    layers += reads_data_param(layer) || layer.type() == "ImageData" ||
              layer.type() == "HDF5Data" || layer.type() == "WindowData";
  }
  return layers;
}

// Merges `field`, train_source or test_source, and shared_file_system into a net. A layer of
// another phase may be among those that are changed; it is left out when the net is built.
void merge_sources(NetParameter& net, const char* field, const std::string& source,
                   const SolverParameter& param, const std::string& name) {
  if (!source.empty() && set_data_source(net, source) == 0)
    throw wrong(name, field, " is given, but net '", net.name(),
                "' has no layer that reads a source");
  if (!param.has_shared_file_system()) return;
  for_each_source(net,
                  [&](auto& data) { data.set_shared_file_system(param.shared_file_system()); });
}

// Returns the train net as it is written, without the solver's state but with its sources.
NetParameter written_train_net(const SolverParameter& param, const std::string& name) {
  const int sources =
      param.has_net() + param.has_net_param() + param.has_train_net() + param.has_train_net_param();
  if (sources != 1)
    throw wrong(name,
                "exactly one of net, net_param, train_net and train_net_param must be given, and ",
                sources, " are");
  NetParameter net;
  if (param.has_train_net_param())
    net = param.train_net_param();
  else if (param.has_net_param())
    net = param.net_param();
  else
    net = param.has_train_net() ? read_named_net("train_net", param.train_net(), name)
                                : read_named_net("net", param.net(), name);
  merge_sources(net, "train_source", param.train_source(), param, name);
  return net;
}

// Returns the test nets likewise, one for each test_iter.
std::vector<NetParameter> written_test_nets(const SolverParameter& param, const std::string& name) {
  const int named = param.test_net_param_size() + param.test_net_size();
  const bool generic = param.has_net() || param.has_net_param();
  const int total = param.test_iter_size();
  if (generic ? total < named : total != named)
    throw wrong(name, "test_iter has ", total, " values for the ", named,
                " test nets named by test_net and test_net_param");
  if (param.test_state_size() > 0 && param.test_state_size() != total)
    throw wrong(name, "test_state has ", param.test_state_size(), " values for ", total,
                " test nets; give one for each or none");
  const auto tests = [](int batches) { return batches != 0; };
  if (std::ranges::any_of(param.test_iter(), tests) && param.test_interval() == 0)
    throw wrong(name, "test_iter is given, but test_interval is not: when to test?");
  std::vector<NetParameter> nets(param.test_net_param().begin(), param.test_net_param().end());
  for (const std::string& file : param.test_net())
    nets.push_back(read_named_net("test_net", file, name));
  if (static_cast<int>(nets.size()) < total)
    nets.resize(static_cast<std::size_t>(total),
                param.has_net_param() ? param.net_param() : read_net(param.net()));
  for (NetParameter& net : nets)
    merge_sources(net, "test_source", param.test_source(), param, name);
  return nets;
}

bool is_global(const SolverParameter& param, const Share& share) {
  return param.batch_semantics() == SolverParameter::GLOBAL && share.count() > 1;
}

// Returns whether clients have batches by their weights.
bool by_weights(const SolverParameter& param, const Share& share) {
  if (share.weights.empty() || share.clients == 1) return false;
  return param.has_batch_by() ? param.batch_by() != SolverParameter::EQUAL : share.in_step;
}

}  // namespace

std::size_t memory_limit_of(const SolverParameter& param) {
  return std::size_t{1000 * 1000} * param.memory_limit();
}

Precision precision_of(SolverParameter::Precision precision) {
  switch (precision) {
    case SolverParameter::FLOAT32: return Precision::kFloat32;
    case SolverParameter::TF32: return Precision::kTf32;
    case SolverParameter::BFLOAT16: return Precision::kBfloat16;
    case SolverParameter::FLOAT16: return Precision::kFloat16;
  }
  return Precision::kFloat32;
}

Recipe read_recipe(const SolverParameter& param, const std::string& name) {
  check_counts(param, name);
  Recipe recipe;
  recipe.rule = read_rule(param, name);
  recipe.rate = read_rate(param, name);
  recipe.weight_decay = param.weight_decay();
  recipe.clip = param.clip_gradients();
  recipe.iter_size = param.iter_size();
  recipe.may_skip =
      param.on_nan() == SolverParameter::SKIP || param.on_nan() == SolverParameter::SNAPSHOT;
  if (!std::isfinite(recipe.weight_decay))
    throw wrong(name, "weight_decay is ", recipe.weight_decay, "; it must be finite");
  if (std::isnan(recipe.clip)) throw wrong(name, "clip_gradients is nan; it must be a number");
  if (param.regularization_type() == "L1")
    recipe.regularization = optim::Regularization::kL1;
  else if (param.regularization_type() != "L2")
    throw wrong(name, "no regularization_type '", param.regularization_type(), "'; known: L1, L2");
  if (param.snapshot_format() == SolverParameter::HDF5 && !why_no_hdf5().empty())
    throw wrong(name, "snapshot_format is HDF5, and ", why_no_hdf5(),
                "; or leave it out for .caffemodel and .solverstate files");
  return recipe;
}

NetParameter train_net_of(const SolverParameter& param, const std::string& name) {
  NetParameter net = written_train_net(param, name);
  set_state(net, TRAIN, &param.train_state());
  return net;
}

namespace {

// Divides a layer's batch: returns the part of each client's nets.
std::vector<std::int64_t> divide_batch(const SolverParameter& param, const std::string& name,
                                       const Share& share, const std::string& layer,
                                       std::int64_t written) {
  const bool global = is_global(param, share);
  if (global && written < share.count())
    throw wrong(name, "batch_semantics is GLOBAL, and the batch_size of layer '", layer, "', ",
                written, ", is less than the ", share.count(), " nets that divide it (",
                share.clients, " workers x ", share.replicas, " replicas)");
  if (global && share.replicas > 1 && written % share.count() != 0)
    throw wrong(name, "batch_semantics is GLOBAL, and the batch_size of layer '", layer, "', ",
                written, ", is no multiple of the ", share.count(),
                " nets that divide it; replicas of one process have batches of one size");
  const std::int64_t whole = global ? written / share.replicas : written * share.clients;
  std::vector<double> weights(static_cast<std::size_t>(share.clients), 1.0);
  if (by_weights(param, share) && whole >= 2 * share.clients) {
    weights = share.weights;
    const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
    // Each weight is large enough for an item.
    for (double& weight : weights) weight = std::max(weight, 2 * all / static_cast<double>(whole));
  }
  const PartBounds bounds = or_throw(bounds_by_weights(static_cast<std::uint64_t>(whole), weights));
  std::vector<std::int64_t> batches;
  for (std::size_t i = 1; i < bounds.size(); ++i)
    batches.push_back(static_cast<std::int64_t>(bounds[i] - bounds[i - 1]));
  return batches;
}

}  // namespace

std::vector<std::int64_t> batches_of(const SolverParameter& param, const std::string& name,
                                     const Share& share) {
  std::vector<std::int64_t> first;
  if (!is_global(param, share) && !by_weights(param, share)) return first;
  NetParameter net = filter_net(train_net_of(param, name));
  for_each_batch_size(net, [&](const LayerParameter& layer, const auto& data) {
    const auto own = divide_batch(param, name, share, layer.name(), data.batch_size());
    if (first.empty()) first = own;
    if (own != first && by_weights(param, share))
      throw wrong(name, "workers have batches by weight, and the batch_size of layer '",
                  layer.name(), "', ", data.batch_size(),
                  ", differs from that of the first data layer; make them equal");
  });
  if (first.empty())
    throw wrong(
        name,
        is_global(param, share) ? "batch_semantics is GLOBAL" : "workers have batches by weight",
        ", and the train net has no layer with a batch_size to divide",
        is_global(param, share) ? "" : "; batch_by: EQUAL leaves its batches as they are");
  return first;
}

NetParameter train_net_of(const SolverParameter& param, const std::string& name,
                          const Share& share) {
  NetParameter net = train_net_of(param, name);
  if (batches_of(param, name, share).empty()) return net;
  net = filter_net(net);
  for_each_batch_size(net, [&](const LayerParameter& layer, auto& data) {
    const auto batches = divide_batch(param, name, share, layer.name(), data.batch_size());
    data.set_batch_size(
        static_cast<std::uint32_t>(batches[static_cast<std::size_t>(share.client)]));
  });
  return net;
}

std::int64_t written_batch(const SolverParameter& param, const std::string& name) {
  NetParameter net = filter_net(train_net_of(param, name));
  std::optional<std::int64_t> first;
  for_each_batch_size(net, [&](const LayerParameter&, const auto& data) {
    first = first.value_or(data.batch_size());
  });
  return first.value_or(0);
}

int set_data_source(NetParameter& net, const std::string& source) {
  for (LayerParameter& layer : *net.mutable_layer())
    if (reads_data_param(layer)) layer.mutable_data_param()->set_backend(DataParameter::ANY);
  return for_each_source(net, [&](auto& data) { data.set_source(source); });
}

void set_batch_size(NetParameter& net, std::uint32_t items) {
  int layers = 0;
  for_each_batch_size(net, [&](const LayerParameter&, auto& data) {
    data.set_batch_size(items);
    ++layers;
  });
  if (layers == 0)
    throw ConfigError(Code::kConfig, "net '", net.name(),
                      "' has no layer whose batch_size could be set to ", items);
}

std::int64_t batch_size(const Net& net) {
  for (int i = 0; i < static_cast<int>(net.layers().size()); ++i)
    if (net.bottoms(i).empty() && !net.tops(i).empty() && net.tops(i)[0]->shape().axes() > 0)
      return net.tops(i)[0]->shape()[0];
  return 0;
}

float contribution_weight(const SolverParameter& param, const std::string& name,
                          const Share& share) {
  const std::vector<std::int64_t> batches = batches_of(param, name, share);
  if (batches.empty()) return 1;
  const std::int64_t all = std::accumulate(batches.begin(), batches.end(), std::int64_t{0});
  return static_cast<float>(batches[static_cast<std::size_t>(share.client)] * share.clients) /
         static_cast<float>(all);
}

std::vector<NetParameter> test_nets_of(const SolverParameter& param, const std::string& name) {
  std::vector<NetParameter> nets = written_test_nets(param, name);
  for (std::size_t i = 0; i < nets.size(); ++i)
    set_state(nets[i], TEST,
              param.test_state_size() > 0 ? &param.test_state(static_cast<int>(i)) : nullptr);
  return nets;
}

namespace {

// Leaves out the test nets of which no batch is to be tested, with their test_iter and test_state.
void drop_idle_tests(SolverParameter& param, std::vector<NetParameter>& nets,
                     const std::string& name) {
  const bool states = param.test_state_size() > 0;
  for (int i = param.test_iter_size() - 1; i >= 0; --i) {
    if (param.test_iter(i) != 0) continue;
    LOG(INFO) << name << ": test_iter is 0: test net #" << i << " is left out";
    nets.erase(nets.begin() + i);
    param.mutable_test_iter()->erase(param.mutable_test_iter()->begin() + i);
    if (states) param.mutable_test_state()->erase(param.mutable_test_state()->begin() + i);
    if (param.test_iter_size() == 0) param.clear_test_interval();
  }
}

}  // namespace

SolverParameter with_nets(const SolverParameter& param, const std::string& name) {
  SolverParameter with = param;
  NetParameter train = written_train_net(param, name);
  std::vector<NetParameter> tests = written_test_nets(param, name);
  if (param.has_net() || param.has_train_net())
    LOG(INFO) << "Creating training net from net file: "
              << (param.has_net() ? param.net() : param.train_net());
  for (const auto clear :
       {&SolverParameter::clear_net, &SolverParameter::clear_net_param,
        &SolverParameter::clear_train_net, &SolverParameter::clear_test_net,
        &SolverParameter::clear_test_net_param, &SolverParameter::clear_train_source,
        &SolverParameter::clear_test_source, &SolverParameter::clear_shared_file_system})
    (with.*clear)();
  drop_idle_tests(with, tests, name);
  *with.mutable_train_net_param() = std::move(train);
  for (NetParameter& test : tests) *with.add_test_net_param() = std::move(test);
  return with;
}

}  // namespace shoal
