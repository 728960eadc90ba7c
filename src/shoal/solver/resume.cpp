// The solver's snapshots, and how it goes on from one.
#include <algorithm>
#include <filesystem>

#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/run.pb.h"
#include "shoal/solver/histories.h"
#include "shoal/solver/net_state.h"
#include "shoal/solver/recipe.h"
#include "shoal/solver/snapshot.h"
#include "shoal/solver/solver.h"

namespace shoal {
namespace {

constexpr std::uint32_t kRunVersion = 1;
constexpr const char* kStateEnding = ".solverstate";

// The model of a solver state: as written, or else beside the state.
std::string find_model(const std::string& written, const std::string& state_file) {
  if (file_exists(written)) return written;
  const std::filesystem::path folder = std::filesystem::path(state_file).parent_path();
  const std::string beside = (folder / std::filesystem::path(written).filename()).string();
  if (file_exists(beside)) return beside;
  throw ConfigError(Code::kConfig, state_file, ": its model, ", written,
                    ", is neither there nor beside it (", beside, ")");
}

// A snapshot goes on with the net it was made of: no layer that learns may be without its numbers.
void check_layers(const Net& net, const NetParameter& model, const std::string& file) {
  for (const auto& layer : net.layers()) {
    const auto holds = [&](const LayerParameter& source) {
      return source.name() == layer->name() && source.blobs_size() > 0;
    };
    if (!layer->params().empty() && std::ranges::none_of(model.layer(), holds))
      throw config_error(
          layer->param(), file,
          " holds nothing for this layer, and a snapshot goes on with the net it was made of; "
          "to start another net from its model, give that to --weights");
  }
}

void check_run(const RunState& run, std::int64_t iteration, const std::string& file) {
  if (run.version() != kRunVersion)
    throw ConfigError(Code::kConfig, file, " is of version ", run.version(),
                      ", and this program knows version ", kRunVersion);
  if (run.iteration() != iteration)
    throw ConfigError(Code::kConfig, file, " is from iteration ", run.iteration(),
                      ", and the solver state beside it from ", iteration,
                      ": they are not of one snapshot");
}

std::string stem_of(const std::string& state_file) {
  const std::string ending = kStateEnding;
  if (state_file.size() <= ending.size() ||
      state_file.compare(state_file.size() - ending.size(), ending.size(), ending) != 0)
    return state_file;
  return state_file.substr(0, state_file.size() - ending.size());
}

}  // namespace

void Solver::put_states(RunState& run) const {
  put_state(*net_, *run.add_net());
  run.mutable_net(0)->set_name("train");
  for (std::size_t i = 0; i < test_nets_.size(); ++i) {
    NetRunState* out = run.add_net();
    out->set_name(str("test ", i));
    put_state(*test_nets_[i], *out);
  }
  for (Net* replica : updater_->replicas()) put_state(*replica, *run.add_replica());
  updater_->state().put(run);
}

RunState Solver::run_state() const {
  RunState run;
  // a test under way is not finished by who goes on: it is done again
  if (before_test_)
    run = *before_test_;
  else
    put_states(run);
  run.set_version(kRunVersion);
  run.set_iteration(iteration_);
  run.mutable_recent_loss()->Add(recent_losses_.begin(), recent_losses_.end());
  run.set_snapshot_best(param_->snapshot_best());
  if (best_.value) run.set_best_value(*best_.value);
  const auto keep = param_->snapshot_keep() > 0 ? static_cast<std::size_t>(param_->snapshot_keep())
                                                : kept_.size();
  run.mutable_kept_iteration()->Add(
      kept_.end() - static_cast<std::ptrdiff_t>(std::min(keep, kept_.size())), kept_.end());
  return run;
}

SolverState Solver::solver_state() const {
  SolverState state;
  state.set_iter(static_cast<std::int32_t>(iteration_));
  state.set_current_step(static_cast<std::int32_t>(steps_));
  state.set_learned_net(model_path(snapshot_stem(param_->snapshot_prefix(), iteration_)));
  for (const Tensor* history : updater_->state().histories()) {
    CHECK(history != nullptr) << "a param belongs to no exchange";
    put_history(history->shape(), history->host(), state);
  }
  return state;
}

Status Solver::snapshot() {
  if (!apart() && snapshot_at_ == iteration_) return {};
  const auto start = Clock::now();
  if (param_->snapshot_prefix().empty())
    return Error{Code::kSnapshot,
                 str(options_.name, ": a snapshot is asked for, but there is no snapshot_prefix")};
  if (Status status = settle_all(true); !status.ok()) return status;
  if (Status status = updater_->state().prepare_save(); !status.ok()) return status;
  std::erase(kept_, iteration_);
  kept_.push_back(iteration_);
  RunState run = run_state();
  if (Status status = gather_states(run); !status.ok()) return status;
  const Status status = share_outcome(team().chief() ? write_files(run) : Status());
  if (status.ok()) snapshot_at_ = iteration_;
  away_seconds_ += std::chrono::duration<double>(Clock::now() - start).count();
  return status;
}

Status Solver::write_files(const RunState& run) {
  const auto model = [this] { return net_->to_proto(param_->snapshot_diff()); };
  Status status = write_snapshot(
      param_->snapshot_prefix(), iteration_, model, [this] { return solver_state(); }, run);
  if (status.ok()) return remove_old_snapshots();
  kept_.pop_back();
  return status;
}

Status Solver::remove_old_snapshots() {
  const auto keep = static_cast<std::size_t>(param_->snapshot_keep());
  while (keep > 0 && kept_.size() > keep) {
    const std::string stem = snapshot_stem(param_->snapshot_prefix(), kept_.front());
    kept_.erase(kept_.begin());
    if (Status status = remove_snapshot(stem); !status.ok()) return status;
  }
  return {};
}

void Solver::restore_histories(const SolverState& state, const std::string& file) {
  const std::vector<Tensor*> histories = updater_->state().histories();
  take_histories(state, file, *net_, recipe_->rule.rule,
                 [&](std::size_t h, std::size_t i, std::span<const float> numbers) {
                   std::ranges::copy(numbers, histories[h * net_->params().size() + i]->out());
                 });
}

void Solver::take_replica_states(const RunState& run, const std::string& file) {
  const std::vector<Net*> replicas = updater_->replicas();
  const int known = run.replica_size();
  const int wanted = static_cast<int>(replicas.size());
  if (wanted > 0 && known != wanted)
    LOG(WARNING)
        << file << " is from a run with " << known + 1 << " replicas; now there are " << wanted + 1
        << ": the data goes on where it was, divided anew, with random numbers from the seed";
  for (int i = 0; i < wanted; ++i) {
    Net& net = *replicas[static_cast<std::size_t>(i)];
    NetRunState state = known == wanted ? run.replica(i) : run.net(0);
    if (known != wanted) put_random(net, *state.mutable_random());
    take_state(net, state, file);
  }
}

void Solver::take_states(const RunState& run, const std::string& file) {
  const int nets = 1 + static_cast<int>(test_nets_.size());
  if (run.net_size() != nets && team().chief())
    LOG(WARNING) << file << " is from a run with " << run.net_size() - 1
                 << " test nets; now there are " << nets - 1
                 << ". Those without a state start their data anew";
  for (int i = 0; i < std::min(nets, run.net_size()); ++i)
    take_state(i == 0 ? *net_ : *test_nets_[static_cast<std::size_t>(i) - 1], run.net(i), file);
  take_replica_states(run, file);
  updater_->state().take(run, file);
  recent_losses_.assign(run.recent_loss().begin(), run.recent_loss().end());
  if (run.has_best_value() && run.snapshot_best() == param_->snapshot_best())
    best_.value = run.best_value();
  kept_.assign(run.kept_iteration().begin(), run.kept_iteration().end());
}

std::vector<std::int64_t> saved_iterations(const std::string& state_file) {
  std::vector<std::int64_t> iterations = {read_solver_state(state_file).iter()};
  const std::string run_file = run_path(stem_of(state_file));
  if (!file_exists(run_file)) return iterations;
  const RunState run = read_run_state(run_file);
  for (const MemberState& member : run.member())
    iterations.push_back(member.has_iteration() ? member.iteration() : iterations[0]);
  return iterations;
}

void Solver::restore(const std::string& state_file) {
  RunState run;
  std::string run_file = team().chief() ? read_files(state_file, run) : "";
  RunState all = share_resumption(run_file, std::move(run));
  const std::vector<std::int64_t> iterations = own_iterations(all);
  if (!iterations.empty()) iteration_ = iterations[static_cast<std::size_t>(team().index())];
  updater_->state().start_at(iteration_, iterations);
  started_iteration_ = shown_iteration_ = iteration_;
  if (run_file.empty()) return;
  take_states(run_of_member(std::move(all), team().index(), team().size()), run_file);
  snapshot_at_ = iteration_;
}

// Weights, history, iteration and rate steps; and `run` from the file whose name it returns, or ""
// if there is none.
std::string Solver::read_files(const std::string& state_file, RunState& run) {
  LOG(INFO) << "Resuming from " << state_file;
  if (!file_exists(state_file) && file_exists(state_path(state_file)))
    throw ConfigError(Code::kConfig, "cannot open ", state_file, "; did you mean ",
                      state_path(state_file), "?");
  const SolverState state = read_solver_state(state_file);
  if (state.iter() < 0 || state.current_step() < 0)
    throw ConfigError(Code::kConfig, state_file, " is damaged: it says that it is of iteration ",
                      state.iter(), " and rate step ", state.current_step());
  const std::string stem = stem_of(state_file);
  const bool ours = file_exists(manifest_path(stem)) || file_exists(run_path(stem));
  if (ours)
    if (const std::string why = why_damaged(stem); !why.empty())
      throw ConfigError(Code::kConfig, "the snapshot ", stem, " is not whole: ", why);
  if (!state.learned_net().empty()) {
    const std::string model = ours ? model_path(stem) : find_model(state.learned_net(), state_file);
    const NetParameter weights = read_weights(model);
    check_layers(*net_, weights, model);
    net_->copy_weights(weights, model);
  }
  restore_histories(state, state_file);
  iteration_ = state.iter();
  steps_ = state.current_step();
  if (ours) {
    run = read_run_state(run_path(stem));
    check_run(run, iteration_, run_path(stem));
    return run_path(stem);
  }
  LOG(WARNING)
      << state_file << " has no " << run_path(stem)
      << " beside it (BVLC Caffe writes none): params, history, iteration and rate "
      << "are restored, but the data starts from its beginning and random numbers from the seed";
  return "";
}

}  // namespace shoal
