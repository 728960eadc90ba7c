#include "shoal/solver/snapshots.h"

#include <algorithm>
#include <filesystem>

#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/base/try.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/solver/histories.h"
#include "shoal/solver/net_params.h"
#include "shoal/solver/net_state.h"
#include "shoal/solver/snapshot.h"

namespace shoal {
namespace {

constexpr std::uint32_t kRunVersion = 1;

// Returns the path of the model of a solver state: as written, or else beside the state.
std::string find_model(const std::string& written, const std::string& state_file) {
  if (file_exists(written)) return written;
  const std::filesystem::path folder = std::filesystem::path(state_file).parent_path();
  const std::string beside = (folder / std::filesystem::path(written).filename()).string();
  if (file_exists(beside)) return beside;
  throw ConfigError(Code::kConfig, state_file, ": its model does not exist, neither ", written,
                    " nor ", beside);
}

// Checks that no layer that learns lacks its numbers: a snapshot continues with the net it was made
// of.
void check_layers(const Net& net, const NetParameter& model, const std::string& file) {
  for (const auto& layer : net.layers()) {
    const auto holds = [&](const LayerParameter& source) {
      return source.name() == layer->name() && source.blobs_size() > 0;
    };
    const auto owned = [&](const NetParam& param) {
      return net.layers()[static_cast<std::size_t>(param.layer)] == layer;
    };
    if (std::ranges::any_of(net.params(), owned) && std::ranges::none_of(model.layer(), holds))
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

// Returns the format by the name of a solver state.
SnapshotFormat format_of(const std::string& state_file) {
  return state_file.ends_with(".h5") ? SnapshotFormat::kHdf5 : SnapshotFormat::kBinary;
}

std::string stem_of(const std::string& state_file) {
  const std::string ending = state_path("", format_of(state_file));
  if (state_file.size() <= ending.size() || !state_file.ends_with(ending)) return state_file;
  return state_file.substr(0, state_file.size() - ending.size());
}

// Returns the iterations that each of a team has finished, its chief first.
std::vector<std::int64_t> iterations_of(const RunState& run, std::int64_t chiefs) {
  std::vector<std::int64_t> iterations = {chiefs};
  for (const MemberState& member : run.member())
    iterations.push_back(member.has_iteration() ? member.iteration() : chiefs);
  return iterations;
}

}  // namespace

std::string Snapshots::own_state() const { return member_state(run_state()).SerializeAsString(); }

RunState Snapshots::net_states() const {
  RunState run;
  for (Net* net : core_.nets()) {
    NetRunState* out = run.add_net();
    out->set_name(run.net_size() == 1 ? "train" : str("test ", run.net_size() - 2));
    put_state(*net, *out);
  }
  for (Net* replica : updater_.replicas()) put_state(*replica, *run.add_replica());
  return run;
}

RunState Snapshots::run_state() const {
  // A run that goes on repeats the test that is under way.
  RunState run = before_ ? *before_ : net_states();
  updater_.put(run);
  run.set_version(kRunVersion);
  run.set_rule(optim::name_of(core_.recipe.rule.rule));
  run.set_iteration(progress_.iteration);
  run.mutable_recent_loss()->Add(progress_.recent_losses.begin(), progress_.recent_losses.end());
  if (progress_.plateau.least < optim::Plateau().least) run.set_least_loss(progress_.plateau.least);
  if (progress_.plateau.since > 0) run.set_least_loss_iteration(progress_.plateau.since);
  run.set_snapshot_best(param_.snapshot_best());
  if (best_) run.set_best_value(*best_);
  const auto keep =
      param_.snapshot_keep() > 0 ? static_cast<std::size_t>(param_.snapshot_keep()) : kept_.size();
  run.mutable_kept_iteration()->Add(
      kept_.end() - static_cast<std::ptrdiff_t>(std::min(keep, kept_.size())), kept_.end());
  return run;
}

SolverState Snapshots::solver_state() const {
  SolverState state;
  state.set_iter(static_cast<std::int32_t>(progress_.iteration));
  state.set_current_step(static_cast<std::int32_t>(progress_.steps));
  state.set_learned_net(model_path(snapshot_stem(param_.snapshot_prefix(), progress_.iteration),
                                   snapshot_format(param_)));
  for (const Tensor* history : updater_.state().histories()) {
    CHECK(history != nullptr) << "a param belongs to no exchange";
    put_history(history->shape(), history->host(), state);
  }
  return state;
}

Status Snapshots::write() {
  if (!core_.apart() && is_written()) return {};
  const auto start = SolverCore::Clock::now();
  if (param_.snapshot_prefix().empty())
    return Error{Code::kSnapshot,
                 str(options_.name, ": a snapshot is asked for, but there is no snapshot_prefix")};
  TRY(core_.settle_all(true));
  if (team_.chief()) TRY(updater_.state().prepare_save());
  std::erase(kept_, progress_.iteration);
  kept_.push_back(progress_.iteration);
  RunState run = run_state();
  TRY(gather_states(run));
  Status own = own_file_.write(param_, progress_.iteration, team_.index(), updater_.state());
  const Status status = core_.share_outcome(own.ok() && team_.chief() ? write_files(run) : own);
  if (status.ok()) written_at_ = progress_.iteration;
  reporter_.away(seconds_since(start));
  return status;
}

Status Snapshots::write_files(const RunState& run) {
  const auto model = [this] { return net_.to_proto(param_.snapshot_diff()); };
  Status status = write_snapshot(
      param_.snapshot_prefix(), progress_.iteration, snapshot_format(param_), model,
      [this] { return solver_state(); }, run);
  if (status.ok()) return remove_old_snapshots();
  kept_.pop_back();
  return status;
}

Status Snapshots::remove_old_snapshots() {
  const auto keep = static_cast<std::size_t>(param_.snapshot_keep());
  while (keep > 0 && kept_.size() > keep) {
    const std::string stem = snapshot_stem(param_.snapshot_prefix(), kept_.front());
    kept_.erase(kept_.begin());
    TRY(remove_snapshot(stem));
  }
  return {};
}

void Snapshots::restore_histories(const SolverState& state, const std::string& file) {
  const std::vector<Tensor*> histories = updater_.state().histories();
  take_histories(state, file, net_, core_.recipe.rule.rule,
                 [&](std::size_t h, std::size_t i, std::span<const float> numbers) {
                   std::ranges::copy(numbers, histories[h * net_.params().size() + i]->out());
                 });
}

void Snapshots::take_replica_states(const RunState& run, const std::string& file) {
  const std::vector<Net*> replicas = updater_.replicas();
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

void Snapshots::take_states(const RunState& run, const std::string& file, Progress& now) {
  const std::vector<Net*> nets = core_.nets();
  const int wanted = static_cast<int>(nets.size());
  if (run.net_size() != wanted && team_.chief())
    LOG(WARNING) << file << " is from a run with " << run.net_size() - 1
                 << " test nets; now there are " << wanted - 1
                 << ". Those without a state start their data anew";
  for (int i = 0; i < std::min(wanted, run.net_size()); ++i)
    take_state(*nets[static_cast<std::size_t>(i)], run.net(i), file);
  take_replica_states(run, file);
  updater_.take(run, file);
  take_history(run, now);
}

void Snapshots::take_history(const RunState& run, Progress& now) {
  now.recent_losses.assign(run.recent_loss().begin(), run.recent_loss().end());
  if (run.has_least_loss()) now.plateau = {run.least_loss(), run.least_loss_iteration()};
  if (run.has_best_value() && run.snapshot_best() == param_.snapshot_best())
    best_ = run.best_value();
  kept_.assign(run.kept_iteration().begin(), run.kept_iteration().end());
}

std::vector<std::int64_t> saved_iterations(const std::string& state_file) {
  const std::string run_file = run_path(stem_of(state_file));
  return iterations_of(file_exists(run_file) ? read_run_state(run_file) : RunState(),
                       read_solver_state(state_file).iter());
}

Progress Snapshots::restore(const std::string& state_file) {
  Progress now = progress_;
  RunState run;
  std::string run_file = team_.chief() ? read_files(state_file, run, now) : "";
  RunState all = share_resumption(run_file, std::move(run), now);
  // The iterations of members that keep to no common clock: each goes on from its own.
  std::vector<std::int64_t> iterations;
  if (core_.apart() && 1 + all.member_size() == team_.size())
    iterations = iterations_of(all, now.iteration);
  if (!iterations.empty()) now.iteration = iterations[static_cast<std::size_t>(team_.index())];
  updater_.state().start_at(now.started_iteration = now.iteration, iterations);
  if (run_file.empty()) return now;
  take_states(run_of_member(std::move(all), team_.index(), team_.size()), run_file, now);
  read_own_file(run_file, team_.index(), updater_.state());
  written_at_ = now.iteration;
  return now;
}

// Reads weights, history, iteration and rate steps; and `run` from the file whose name it returns,
// or "" if there is none.
std::string Snapshots::read_files(const std::string& state_file, RunState& run, Progress& now) {
  LOG(INFO) << "Resuming from " << state_file;
  for (const SnapshotFormat format : {SnapshotFormat::kHdf5, SnapshotFormat::kBinary})
    if (!file_exists(state_file) && file_exists(state_path(state_file, format)))
      throw ConfigError(Code::kConfig, "cannot open ", state_file, "; did you mean ",
                        state_path(state_file, format), "?");
  const SolverState state = read_solver_state(state_file);
  if (state.iter() < 0 || state.current_step() < 0)
    throw ConfigError(Code::kConfig, state_file, " is damaged: it says that it is of iteration ",
                      state.iter(), " and rate step ", state.current_step());
  const std::string stem = stem_of(state_file);
  const bool ours = file_exists(manifest_path(stem)) || file_exists(run_path(stem));
  if (ours)
    if (const std::string why = why_damaged(stem); !why.empty())
      throw ConfigError(Code::kConfig, "the snapshot ", stem, " is not whole: ", why,
                        ". A copy needs all four files; without the .run and the .manifest it is "
                        "restored as one of BVLC Caffe");
  if (!state.learned_net().empty()) {
    const std::string model = ours ? model_path(stem, format_of(state_file))
                                   : find_model(state.learned_net(), state_file);
    const NetParameter weights = read_weights(model);
    check_layers(net_, weights, model);
    net_.copy_weights(weights, model);
  }
  if (ours) run = read_run_state(run_path(stem));
  check_rule(run.rule(), state, state_file, core_.recipe.rule.rule);
  restore_histories(state, state_file);
  now.iteration = state.iter();
  now.steps = steps_by_solver(core_.recipe.rate, state, state_file);
  if (ours) {
    check_run(run, now.iteration, run_path(stem));
    return run_path(stem);
  }
  LOG(WARNING)
      << state_file << " has no " << run_path(stem)
      << " beside it (BVLC Caffe writes none): params, history, iteration and rate "
      << "are restored, but the data starts from its beginning and random numbers from the seed";
  return "";
}

struct SolverMemory {
  bool has_params = false;     // model, tests and state
  bool has_histories = false;  // of those that may lead the next segment: in the state
  NetParameter model;
  std::vector<NetParameter> tests;  // layers of the test nets alone
  SolverState state;
  RunState run;
  std::shared_ptr<const OwnState> own;
  std::int64_t steps = 0;  // of the rate
  double seconds = 0;
};

Result<std::shared_ptr<const SolverMemory>> Snapshots::save_state() {
  TRY(core_.settle_all(true));
  if (team_.may_lead()) TRY(updater_.state().prepare_save());
  const auto memory = std::make_shared<SolverMemory>();
  memory->run = run_state();
  memory->own = updater_.state().own_state();
  memory->steps = progress_.steps;
  TRY(gather_states(memory->run));
  memory->seconds = reporter_.seconds();
  if (is_recovered_ && !team_.may_lead()) return std::shared_ptr<const SolverMemory>(memory);
  memory->has_params = true;
  memory->model = net_.to_proto(false);
  for (const auto& test_net : core_.test_nets) memory->tests.push_back(own_layers(*test_net, net_));
  memory->has_histories = team_.may_lead();
  if (memory->has_histories) memory->state = solver_state();
  return std::shared_ptr<const SolverMemory>(memory);
}

Progress Snapshots::restore_state(const SolverMemory* memory, const Solver::Continuation& how) {
  Progress now = progress_;
  std::string name = "the state of the last part of the run";
  RunState run;
  now.goes_on = true;
  if (memory) now.seconds_before = memory->seconds;
  if (team_.chief()) {
    if (memory == nullptr || !memory->has_params)
      throw ConfigError(Code::kPeer,
                        "all workers that had the params of the last part of the run are lost");
    net_.copy_weights(memory->model, name);
    for (std::size_t i = 0; i < core_.test_nets.size(); ++i)
      if (has_own_params(*core_.test_nets[i], net_))
        core_.test_nets[i]->copy_weights(memory->tests[i], name);
    if (memory->has_histories)
      restore_histories(memory->state, name);
    else
      LOG(WARNING) << "The workers that had the update rule's histories are lost: zeros again";
    now.steps = memory->steps;
    run = memory->run;
  }
  now.iteration = how.iteration;
  core_.share_test_weights();
  const RunState all = share_resumption(name, std::move(run), now);
  if (memory) now.steps = memory->steps;
  now.iteration = now.started_iteration = how.iteration;
  updater_.state().start_at(now.iteration, how.iterations);
  if (how.same_scheme) updater_.state().take_own_state(memory ? memory->own : nullptr);
  if (how.same_members && memory)
    take_states(memory->run, name, now);
  else
    take_over_states(memory, all, name, now);
  return now;
}

// Returns the state with which each net of this member continues: its own, if it has one, among
// those of all nets that trained together.
void Snapshots::take_over_states(const SolverMemory* own, const RunState& all,
                                 const std::string& file, Progress& now) {
  int at = 0;
  for (Net* net : core_.nets()) {
    take_over_state(*net, own && at < own->run.net_size() ? &own->run.net(at) : nullptr,
                    states_of_all(all, at), file);
    ++at;
  }
  const std::vector<Net*> replicas = updater_.replicas();
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    const bool known = own && static_cast<int>(i) < own->run.replica_size();
    take_over_state(*replicas[i], known ? &own->run.replica(static_cast<int>(i)) : nullptr,
                    states_of_all(all, 0), file);
  }
  updater_.take(all, file);
  // All must judge a test alike: a new member has the chief's best score.
  take_history(own ? own->run : all, now);
}

Status Snapshots::gather_states(RunState& run) {
  if (!core_.in_team()) return {};
  const Result<std::vector<std::string>> states =
      team_.gather(member_state(run).SerializeAsString());
  TRY(states);
  for (std::size_t i = 0; i < states.value().size(); ++i)
    if (static_cast<int>(i) != team_.index() && (i > 0 || !states.value()[i].empty()) &&
        !run.add_member()->ParseFromString(states.value()[i]))
      return Error{Code::kPeer,
                   str("the state that worker ", i,
                       " sent cannot be read: do all processes run the same program?")};
  return {};
}

// Shares the iteration and the run with all. The chief has read `run` from `file` (neither, if
// there was no such file). Returns the run.
RunState Snapshots::share_resumption(std::string& file, RunState run, Progress& now) {
  Resumption resumption;
  if (team_.chief()) {
    resumption.set_iteration(now.iteration);
    resumption.set_step(now.steps);
    resumption.set_file(file);
    *resumption.mutable_run() = std::move(run);
  }
  if (core_.in_team()) {
    const std::string shared = or_throw(team_.share(resumption.SerializeAsString()));
    if (!team_.chief() && !resumption.ParseFromString(shared))
      throw ConfigError(
          Code::kPeer,
          "the snapshot that worker 0 sent cannot be read: do all processes run the same program?");
  }
  now.iteration = resumption.iteration();
  now.steps = resumption.step();
  file = resumption.file();
  return std::move(*resumption.mutable_run());
}

}  // namespace shoal
