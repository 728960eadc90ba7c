#include "shoal/solver/solver_core.h"

#include <filesystem>
#include <numeric>
#include <system_error>
#include <utility>

#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/base/try.h"
#include "shoal/ops/tuning.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/hdf5_model.h"
#include "shoal/proto/io.h"
#include "shoal/solver/batch_scaling.h"
#include "shoal/solver/idle_fields.h"
#include "shoal/solver/net_params.h"
#include "shoal/solver/snapshot.h"

namespace shoal {
namespace {

// Names the outputs that would fill the log: a label map that nothing takes, say.
void warn_of_outputs(const Net& net, const char* when) {
  constexpr std::int64_t kMany = 1000;
  for (const Blob* output : net.outputs())
    if (output->data.count() > kMany)
      LOG(WARNING) << "output '" << output->name << "' of net '" << net.name() << "' has "
                   << output->data.count() << " numbers, a line of the log each at every " << when
                   << "; a Silence layer that takes it keeps them out of the log";
}

std::uint64_t pick_seed(const SolverParameter& param) {
  if (param.random_seed() >= 0) return static_cast<std::uint64_t>(param.random_seed());
  const std::uint64_t seed = random_seed() >> 1;  // fits random_seed, which has a sign
  LOG(INFO) << "random_seed is not set; this run's is " << seed;
  return seed;
}

// Makes the folder of the snapshots if it is missing; check_writable says why it could not.
void make_snapshot_folder(const std::string& prefix) {
  const std::filesystem::path folder = std::filesystem::path(prefix).parent_path();
  std::error_code error;
  if (!folder.empty() && std::filesystem::create_directories(folder, error))
    LOG(INFO) << "Made folder " << folder.string() << " for snapshots";
}

void check_prefix(const SolverParameter& param, const std::string& name) {
  if (param.snapshot_prefix().empty())
    throw ConfigError(Code::kConfig, name,
                      ": snapshots are asked for, but there is no snapshot_prefix");
  make_snapshot_folder(param.snapshot_prefix());
  remove_leftovers(param.snapshot_prefix());
  const Status writable = check_writable(latest_path(param.snapshot_prefix()), Code::kSnapshot);
  if (!writable.ok())
    throw ConfigError(Code::kSnapshot, name,
                      ": no snapshot could be written under snapshot_prefix '",
                      param.snapshot_prefix(), "': ", writable.error().message);
}

void check_hdf5_names(const Net& net) {
  std::vector<std::string> names;
  for (const auto& layer : net.layers())
    if (!layer->params().empty()) names.push_back(layer->name());
  for (const auto& layer : net.layers())
    if (!layer->params().empty())
      if (const std::string why = why_no_hdf5_group(layer->name(), names); !why.empty())
        throw config_error(layer->param(), why,
                           "; give it another name, or leave snapshot_format: HDF5 out");
}

}  // namespace

SolverCore::SolverCore(const SolverParameter& given, SolverOptions given_options,
                       const Progress& of_loop, std::function<Status()> catch_up)
    : param(given),
      progress(of_loop),
      options(std::move(given_options)),
      recipe(read_recipe(param, options.name)),
      team(options.team ? *options.team : alone),
      catch_up_(std::move(catch_up)) {
  if (param.deterministic() && !options.device && options.threads > 1) {
    LOG(INFO) << "deterministic: true computes on one thread, not " << options.threads
              << ": sums are then the same for any number";
    options.threads = 1;
  }
  options.share.batches = batches_of(param, options.name, options.share);
  if (team.chief() && (wants_snapshots() || !param.snapshot_best().empty()))
    check_prefix(param, options.name);
  if (!team.chief()) options.observer = nullptr;
  if (recipe.rate.policy == optim::Policy::kPlateau && in_team())
    throw ConfigError(Code::kConfig, options.name,
                      ": lr_policy \"plateau\" follows the loss of one "
                      "solver, and ",
                      team.size(),
                      " train together: give multistep with the "
                      "iterations at which the rate is to fall, or train on one machine");
  warn_of_idleness(param, options.name);
  const bool asked = param.has_solver_mode() && param.solver_mode() == SolverParameter::GPU;
  if (options.device)
    LOG(INFO) << "Training on " << options.device->name() << ", precision "
              << SolverParameter::Precision_Name(param.precision())
              << (param.has_precision()
                      ? ""
                      : ", the default; TF32 and BFLOAT16 are faster from Ampere on");
  else if (asked)
    LOG(WARNING) << "solver_mode is GPU, but no GPU can be used: training on the CPU, on "
                 << options.threads << " threads";
  else
    LOG(INFO) << "Training on the CPU, precision "
              << SolverParameter::Precision_Name(param.precision());
  if (!options.device) warn_of_gpu_fields(param, options.name);
  seed_ = pick_seed(param);
  tuned([this] { build_net(); });
  warn_of_no_loss(*net, options.name);
  updater = options.make_updater ? options.make_updater(*net)
                                 : make_local_updater(param, options.name, *net);
  policy = updater->policy();
  tuned([this] { build_test_nets(); });
  keep_tuning();
  // Workers that are not in step update each with its own items.
  const bool together = options.share.clients == 1 || options.share.in_step;
  const std::int64_t written = written_batch(param, options.name);
  rate_scaling =
      scaling_of(param, options.name, together ? items_per_update() : std::llround(own_items()),
                 written > 0 ? written : batch_size(*net));
}

Context& SolverCore::add_context(const Share& share) {
  contexts.push_back(std::make_unique<Context>(
      Context::Options{.device = options.device,
                       .threads = options.threads,
                       .seed = seed_,
                       .share = share,
                       .precision = precision_of(param.precision()),
                       .deterministic = param.deterministic(),
                       .direct_convolution = param.convolution() == SolverParameter::DIRECT,
                       .recordings = param.cuda_graphs(),
                       .tuning = options.tuning}));
  return *contexts.back();
}

// Builds nets with tuned kernels: the chief measures first, and the others take its choices.
void SolverCore::tuned(const std::function<void()>& build) {
  const bool shares = options.tuning && in_team();
  if (shares && !team.chief())
    options.tuning->add(or_throw(team.share("")), "the chief's choice of kernels");
  build();
  if (shares && team.chief()) or_throw(team.share(options.tuning->text()));
}

// Keeps the tuning: the chief's file has the choices of all processors of the team.
void SolverCore::keep_tuning() {
  if (!options.tuning) return;
  if (in_team())
    for (const std::string& text : or_throw(team.gather(options.tuning->text())))
      options.tuning->add(text, "a worker's choice of kernels");
  if (team.chief()) options.tuning->save();
}

void SolverCore::build_net() {
  if (param.has_net() || param.has_train_net())
    LOG(INFO) << "Creating training net from net file: "
              << (param.has_net() ? param.net() : param.train_net());
  net = std::make_unique<Net>(train_net_of(param, options.name, options.share),
                              add_context(options.share),
                              NetOptions{.fuse = !param.debug_info(),
                                         .interactive = options.interactive,
                                         .memory_limit = memory_limit_of(param)});
  if (snapshot_format(param) == SnapshotFormat::kHdf5) check_hdf5_names(*net);
  if (param.display() > 0) warn_of_outputs(*net, "display");
  const std::vector<std::int64_t>& batches = options.share.batches;
  if (batches.empty()) return;
  whole_batch =
      std::accumulate(batches.begin(), batches.end(), std::int64_t{0}) * options.share.replicas;
  weight = contribution_weight(param, options.name, options.share);
}

void SolverCore::build_test_nets() {
  Share one = options.share;  // a process tests with one net, however many it trains with
  one.replica = 0;
  one.replicas = 1;
  one.weights.clear();  // a test is divided among equals
  one.batches.clear();
  // A chief whose team is apart tests alone. A shared data set is then all its own, and one in
  // parts stays so.
  if (apart() && team.chief()) {
    if (one.suffix.empty()) one.suffix = std::to_string(one.client);
    one.in_parts = one.in_parts || one.clients > 1;
    one.client = 0;
    one.clients = 1;
  }
  for (const NetParameter& test_net : test_nets_of(param, options.name)) {
    const int index = static_cast<int>(test_nets.size());
    LOG(INFO) << "Creating test net (#" << index << ")";
    one.test_batches = test_batches(index);
    test_nets.push_back(std::make_unique<Net>(test_net, add_context(one),
                                              NetOptions{.forward_only = !options.interactive,
                                                         .interactive = options.interactive,
                                                         .memory_limit = memory_limit_of(param)}));
    test_nets.back()->share_weights(*net);
    if (param.eval_type() != "detection") warn_of_outputs(*test_nets.back(), "test");
  }
}

std::vector<std::int64_t> SolverCore::test_batches(int index) const {
  const int members = apart() ? 1 : team.size(), all = param.test_iter(index);
  std::vector<std::int64_t> batches;
  for (int member = 0; member < members; ++member)
    batches.push_back(all / members + (member < all % members ? 1 : 0));
  return batches;
}

std::vector<Net*> SolverCore::nets() const {
  std::vector<Net*> all = {net.get()};
  for (const auto& test_net : test_nets) all.push_back(test_net.get());
  return all;
}

std::int64_t SolverCore::items_per_update() const {
  return (whole_batch > 0 ? whole_batch : batch_size(*net) * options.share.count()) *
         recipe.iter_size;
}

double SolverCore::own_items() const {
  return weight * static_cast<double>(items_per_update()) / options.share.clients;
}

float Progress::smoothed_loss() const {
  if (recent_losses.empty()) return 0;
  return static_cast<float>(std::accumulate(recent_losses.begin(), recent_losses.end(), 0.0) /
                            static_cast<double>(recent_losses.size()));
}

void SolverCore::copy_weights(const std::string& model_file) const {
  LOG(INFO) << "Finetuning from " << model_file;
  const NetParameter model = read_weights(model_file);
  net->copy_weights(model, model_file);
  for (const auto& test_net : test_nets)  // layers of the test phase alone
    if (has_own_params(*test_net, *net)) test_net->copy_weights(model, model_file);
}

NetParameter own_layers(const Net& net, const Net& other) {
  NetParameter own = net.to_proto(false);
  auto& layers = *own.mutable_layer();
  layers.erase(
      std::remove_if(layers.begin(), layers.end(),
                     [&](const LayerParameter& layer) { return has_layer(other, layer.name()); }),
      layers.end());
  return own;
}

void SolverCore::share_test_weights() const {
  if (!in_team()) return;
  for (const auto& test_net : test_nets) {
    if (!has_own_params(*test_net, *net)) continue;
    NetParameter own;
    const std::string shared = or_throw(
        team.share(team.chief() ? own_layers(*test_net, *net).SerializePartialAsString() : ""));
    if (!team.chief() && own.ParsePartialFromString(shared))
      test_net->copy_weights(own, "the chief's weights");
  }
}

Status SolverCore::settle_all(bool together) const {
  TRY(catch_up_());
  TRY(updater->settle(Settle::kOwn));
  if (!together || !in_team()) return updater->settle(Settle::kTeams);
  const bool here = !policy.shares_running_sums;
  // The sums of the values that forward passes changed, each on its own part of the data. After
  // this sum all have settled.
  std::vector<double> sums = {1};
  if (here)
    for_each_running_sum(*net, [&](const Tensor& sum) {
      sums.insert(sums.end(), sum.host().begin(), sum.host().end());
    });
  TRY(team.sum(sums));
  auto from = sums.begin() + 1;
  if (here)
    for_each_running_sum(*net, [&](Tensor& sum) {
      for (float& number : sum.host_mut()) number = static_cast<float>(*from++ / sums[0]);
    });
  return updater->settle(Settle::kTeams);
}

Status SolverCore::share_outcome(Status chiefs) const {
  // A failure ends the job for all, in the chief's name; the others learn it in this round.
  if (!in_team() || !chiefs.ok()) return chiefs;
  const Result<std::string> shared = team.share("");
  return shared.ok() ? Status() : Status(shared.error());
}

}  // namespace shoal
