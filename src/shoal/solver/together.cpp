// What a solver does together with the others of its team. Alone all of this is nothing.
#include <algorithm>

#include "shoal/base/log.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/run.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/net_params.h"
#include "shoal/solver/net_state.h"
#include "shoal/solver/solver.h"

namespace shoal {
namespace {

MemberState member_state(const RunState& run) {
  MemberState member;
  *member.mutable_net() = run.net();
  *member.mutable_replica() = run.replica();
  *member.mutable_recent_loss() = run.recent_loss();
  member.set_iteration(run.iteration());
  return member;
}

// `run` is its chief's; the member's own parts take the place of the chief's.
void put_member(const MemberState& member, RunState& run) {
  *run.mutable_net() = member.net();
  *run.mutable_replica() = member.replica();
  *run.mutable_recent_loss() = member.recent_loss();
}

// The layers of `net` that `other` has not, with their numbers.
NetParameter own_layers(const Net& net, const Net& other) {
  NetParameter own = net.to_proto(false);
  auto& layers = *own.mutable_layer();
  layers.erase(
      std::remove_if(layers.begin(), layers.end(),
                     [&](const LayerParameter& layer) { return has_layer(other, layer.name()); }),
      layers.end());
  return own;
}

// Of net `index` on all members, in the order in which they divide the data; of the train net their
// replicas' too.
std::vector<const NetRunState*> states_of_all(const RunState& run, int index) {
  std::vector<const NetRunState*> states;
  const auto add = [&](const auto& member) {
    if (index < member.net_size()) states.push_back(&member.net(index));
    for (int i = 0; index == 0 && i < member.replica_size(); ++i)
      states.push_back(&member.replica(i));
  };
  add(run);
  for (const MemberState& member : run.member()) add(member);
  return states;
}

// Streams of random numbers are of one member each; places in the data are the whole team's, and
// layers find their own from them.
void keep_own_random(const MemberState* own,
                     google::protobuf::RepeatedPtrField<NetRunState>& nets) {
  for (int i = 0; i < nets.size(); ++i) {
    nets[i].clear_random();
    if (own && i < own->net_size()) *nets[i].mutable_random() = own->net(i).random();
  }
}

}  // namespace

RunState run_of_member(RunState run, int index, int size) {
  const int saved_by = 1 + run.member_size();
  const MemberState own = index > 0 && index < saved_by ? run.member(index - 1) : MemberState();
  run.clear_member();
  if (saved_by == size) {
    if (index > 0) put_member(own, run);
    return run;
  }
  LOG(INFO) << "The snapshot is of " << saved_by << " workers, and now there are " << size
            << ": each goes on in its own part of the data where all together had come to, with "
            << (size > saved_by ? "new streams of random numbers on those that are new"
                                : "its own random numbers");
  if (index == 0) return run;
  keep_own_random(index < saved_by ? &own : nullptr, *run.mutable_net());
  for (NetRunState& replica : *run.mutable_replica()) replica.clear_random();
  return run;
}

// What all do between two iterations.
Status Solver::at_boundary() {
  agreed_at_ = iteration_;
  if (apart()) return stop_for_others();
  const Result<Action> action = team().agree(iteration_, ask());
  if (!action.ok()) return action.error();
  const bool due = falls_on(param_->snapshot()) && iteration_ > started_iteration_;
  if (due && action.value() != Action::kSnapshot && action.value() != Action::kRequeue)
    if (Status status = snapshot(); !status.ok()) return status;
  return act(action.value());
}

// Between two iterations of this member, somewhere between others' iterations. Whoever wants
// something stops at once, and the others when they hear of it. The chief wants a snapshot at its
// interval.
Status Solver::stop_for_others() {
  const bool due = team().chief() && falls_on(param_->snapshot()) &&
                   iteration_ > started_iteration_ && snapshot_at_ != iteration_;
  Action mine = ask();
  if (mine == Action::kNone && due) mine = Action::kSnapshot;
  for (;; mine = Action::kNone) {
    if (mine == Action::kLeave) {
      const Result<bool> left = leave();
      if (!left.ok()) return left.error();
      if (left.value()) return {};
      mine = Action::kNone;
    }
    bool last = mine != Action::kNone && mine != Action::kSnapshot;
    if (mine == Action::kNone || policy_.in_step) {
      const Result<Action> action = team().agree(iteration_, mine);
      if (!action.ok()) return action.error();
      if (action.value() == Action::kNone) return {};
      last = action.value() != Action::kSnapshot;
      mine = Action::kNone;
    }
    if (Status status = updater_->settle(Settle::kOwn); !status.ok()) return status;
    const Result<Action> action = team().meet(iteration_, mine, false, last);
    if (!action.ok()) return action.error();
    if (Status status = act(action.value()); !status.ok() || ending_) return status;
  }
}

// At the end of this member's task, without the others: what it has read of its data is handed
// over.
Result<bool> Solver::leave() {
  if (Status status = updater_->settle(Settle::kOwn); !status.ok()) return status.error();
  Result<bool> left = team().leave(iteration_, member_state(run_state()).SerializeAsString());
  if (left.ok() && left.value()) ending_ = Ending::kLeft;
  return left;
}

// After the last iteration of this member: until all have come to theirs it has its part in
// whatever they do together. What follows is done together.
Status Solver::end_apart() {
  while (!ending_) {
    if (Status status = updater_->settle(Settle::kOwn); !status.ok()) return status;
    const Result<Action> action = team().meet(iteration_, Action::kNone, true, true);
    if (!action.ok()) return action.error();
    if (action.value() == Action::kNone) return {};
    if (Status status = act(action.value()); !status.ok()) return status;
  }
  return {};
}

// The chief's word: others of a team that is apart are at other iterations than the snapshot.
Result<bool> Solver::wants_last_snapshot() {
  bool wants = param_->snapshot_after_train() && snapshot_at_ != iteration_;
  if (!apart() || !param_->snapshot_after_train()) return wants;
  const Result<std::string> shared = team().share(wants ? "yes" : "");
  if (!shared.ok()) return shared.error();
  return shared.value() == "yes";
}

// Returns when the next iteration may begin. False: the run has ended.
Result<bool> Solver::wait_to_begin() {
  while (!ending_) {
    const Result<Permission> permission = updater_->wait_to_begin(iteration_);
    if (!permission.ok()) return permission.error();
    rate_iteration_ = permission.value().rate_iteration;
    if (permission.value().begin == Begin::kBegin) return true;
    if (permission.value().begin == Begin::kOver) return false;
    if (Status status = at_boundary(); !status.ok()) return status.error();
  }
  return false;
}

// Params with everybody's updates in them, the same on all members if they do this together.
Status Solver::settle_all(bool together) {
  if (Status status = updater_->settle(Settle::kOwn); !status.ok()) return status;
  if (!together || !in_team()) return updater_->settle(Settle::kTeams);
  const bool here = !policy_.shares_running_sums;
  // of what forward passes changed, each on its own part of the data; with it all have settled
  std::vector<double> sums = {1};
  if (here)
    for_each_running_sum(*net_, [&](const Tensor& sum) {
      sums.insert(sums.end(), sum.host().begin(), sum.host().end());
    });
  if (Status status = team().sum(sums); !status.ok()) return status;
  auto from = sums.begin() + 1;
  if (here)
    for_each_running_sum(*net_, [&](Tensor& sum) {
      for (float& number : sum.host_mut()) number = static_cast<float>(*from++ / sums[0]);
    });
  return updater_->settle(Settle::kTeams);
}

// The chief's, on all.
Status Solver::share_outcome(Status chiefs) {
  if (!in_team()) return chiefs;
  const Result<std::string> shared = team().share(chiefs.ok() ? "" : chiefs.error().message);
  if (!shared.ok()) return shared.error();
  if (!chiefs.ok() || shared.value().empty()) return chiefs;
  return Error{Code::kSnapshot, "the chief of the team: " + shared.value()};
}

// The updater brings what the train net learns; layers of the test phase alone are left.
void Solver::share_test_weights() {
  if (!in_team()) return;
  for (const auto& test_net : test_nets_) {
    if (!has_own_params(*test_net, *net_)) continue;
    NetParameter own;
    const std::string shared = or_throw(team().share(
        team().chief() ? own_layers(*test_net, *net_).SerializePartialAsString() : ""));
    if (!team().chief() && own.ParsePartialFromString(shared))
      test_net->copy_weights(own, "the chief's weights");
  }
}

struct SolverMemory {
  NetParameter model;
  std::vector<NetParameter> tests;  // layers of the test nets alone
  SolverState state;
  RunState run;
  std::shared_ptr<const OwnState> own;
  std::int64_t steps = 0;  // of the rate
  double seconds = 0;
};

Result<std::shared_ptr<const SolverMemory>> Solver::save_state() {
  if (Status status = settle_all(true); !status.ok()) return status.error();
  if (Status status = updater_->state().prepare_save(); !status.ok()) return status.error();
  const auto memory = std::make_shared<SolverMemory>();
  memory->run = run_state();
  memory->own = updater_->state().own_state();
  memory->steps = steps_;
  if (Status status = gather_states(memory->run); !status.ok()) return status.error();
  memory->seconds = seconds();
  if (!team().chief()) return std::shared_ptr<const SolverMemory>(memory);
  memory->model = net_->to_proto(false);
  for (const auto& test_net : test_nets_) memory->tests.push_back(own_layers(*test_net, *net_));
  memory->state = solver_state();
  return std::shared_ptr<const SolverMemory>(memory);
}

void Solver::restore_state(const SolverMemory* memory, const Continuation& how) {
  std::string name = "the state of the last part of the run";
  RunState run;
  goes_on_ = true;
  if (memory) seconds_before_ = memory->seconds;
  if (team().chief()) {
    CHECK(memory != nullptr) << "the chief goes on from nothing";
    net_->copy_weights(memory->model, name);
    for (std::size_t i = 0; i < test_nets_.size(); ++i)
      if (has_own_params(*test_nets_[i], *net_))
        test_nets_[i]->copy_weights(memory->tests[i], name);
    restore_histories(memory->state, name);
    steps_ = memory->steps;
    run = memory->run;
  }
  iteration_ = how.iteration;
  share_test_weights();
  const RunState all = share_resumption(name, std::move(run));
  if (memory) steps_ = memory->steps;
  iteration_ = started_iteration_ = shown_iteration_ = how.iteration;
  updater_->state().start_at(iteration_, how.iterations);
  if (how.same_scheme) updater_->state().take_own_state(memory ? memory->own : nullptr);
  if (how.same_members && memory)
    take_states(memory->run, name);
  else
    take_over_states(memory, all, name);
}

// What each net of this member goes on with: its own state, if it has one, among those of all nets
// that trained together.
void Solver::take_over_states(const SolverMemory* own, const RunState& all,
                              const std::string& file) {
  for (int i = 0; i < 1 + static_cast<int>(test_nets_.size()); ++i) {
    Net& net = i == 0 ? *net_ : *test_nets_[static_cast<std::size_t>(i) - 1];
    take_over_state(net, own && i < own->run.net_size() ? &own->run.net(i) : nullptr,
                    states_of_all(all, i), file);
  }
  const std::vector<Net*> replicas = updater_->replicas();
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    const bool known = own && static_cast<int>(i) < own->run.replica_size();
    take_over_state(*replicas[i], known ? &own->run.replica(static_cast<int>(i)) : nullptr,
                    states_of_all(all, 0), file);
  }
  if (!own) return;
  recent_losses_.assign(own->run.recent_loss().begin(), own->run.recent_loss().end());
  if (own->run.has_best_value()) best_.value = own->run.best_value();
  kept_.assign(own->run.kept_iteration().begin(), own->run.kept_iteration().end());
}

Status Solver::gather_states(RunState& run) {
  if (!in_team()) return {};
  const Result<std::vector<std::string>> states =
      team().gather(member_state(run).SerializeAsString());
  if (!states.ok()) return states.error();
  for (std::size_t i = 1; i < states.value().size(); ++i)
    if (!run.add_member()->ParseFromString(states.value()[i]))
      return Error{
          Code::kPeer,
          str("what worker ", i,
              " says of its state cannot be read: do all processes run the same program?")};
  return {};
}

// By index, where members that keep to no common clock go on each from where it was; else none.
std::vector<std::int64_t> Solver::own_iterations(const RunState& run) const {
  if (!apart() || 1 + run.member_size() != team().size()) return {};
  std::vector<std::int64_t> iterations = {iteration_};
  for (const MemberState& member : run.member())
    iterations.push_back(member.has_iteration() ? member.iteration() : iteration_);
  return iterations;
}

// From the chief, which read `run` from `file` (neither, if there was no such file), to all: the
// iteration and their own part of the run.
RunState Solver::share_resumption(std::string& file, RunState run) {
  Resumption resumption;
  if (team().chief()) {
    resumption.set_iteration(iteration_);
    resumption.set_step(steps_);
    resumption.set_file(file);
    *resumption.mutable_run() = std::move(run);
  }
  if (in_team()) {
    const std::string shared = or_throw(team().share(resumption.SerializeAsString()));
    if (!team().chief() && !resumption.ParseFromString(shared))
      throw ConfigError(Code::kPeer,
                        "what the chief says of its snapshot cannot be read: do all processes run "
                        "the same program?");
  }
  iteration_ = resumption.iteration();
  steps_ = resumption.step();
  file = resumption.file();
  return std::move(*resumption.mutable_run());
}

}  // namespace shoal
