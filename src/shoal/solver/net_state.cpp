#include "shoal/solver/net_state.h"

#include <map>
#include <string>
#include <utility>

#include "shoal/base/log.h"
#include "shoal/net/net.h"
#include "shoal/proto/config_error.h"

namespace shoal {

void put_random(Net& net, RandomState& out) {
  const Random::State random = net.context().random().state();
  out.set_seed(random.seed);
  out.set_stream(random.stream);
  out.set_position(random.position);
}

void put_state(Net& net, NetRunState& out) {
  put_random(net, *out.mutable_random());
  for (const auto& layer : net.layers()) {
    std::string state = layer->save_state();
    if (state.empty()) continue;
    LayerState* entry = out.add_layer();
    entry->set_name(layer->name());
    entry->set_type(layer->type());
    entry->set_state(std::move(state));
  }
}

namespace {

// Finds the states of layers. Layers without params may have one name: the k-th of a name and type
// has the k-th state of these.
class Finder {
 public:
  explicit Finder(const Net& net) {
    std::map<std::pair<std::string, std::string>, int> seen;
    for (const auto& layer : net.layers())
      before_[layer.get()] = seen[{layer->name(), layer->type()}]++;
  }
  const LayerState* find(const NetRunState& from, const Layer& layer) const {
    int left = before_.at(&layer);
    for (const LayerState& entry : from.layer())
      if (entry.name() == layer.name() && entry.type() == layer.type() && left-- == 0)
        return &entry;
    return nullptr;
  }

 private:
  std::map<const Layer*, int> before_;  // layers of the same name and type
};

}  // namespace

void take_over_state(Net& net, const NetRunState* own, const std::vector<const NetRunState*>& all,
                     const std::string& file) {
  if (own && own->has_random())
    net.context().random() = Random(
        Random::State{own->random().seed(), own->random().stream(), own->random().position()});
  const Finder finder(net);
  for (const auto& layer : net.layers()) {
    std::vector<std::string_view> states;
    for (const NetRunState* state : all)
      if (const LayerState* entry = finder.find(*state, *layer))
        states.emplace_back(entry->state());
    const LayerState* mine = own ? finder.find(*own, *layer) : nullptr;
    if (states.empty()) continue;
    if (const Status status = layer->load_states(mine ? mine->state() : std::string_view(), states);
        !status.ok())
      throw ConfigError(status.error().code, file, ": layer '", layer->name(),
                        "': ", status.error().message);
  }
}

void take_state(Net& net, const NetRunState& from, const std::string& file) {
  if (from.has_random())
    net.context().random() = Random(
        Random::State{from.random().seed(), from.random().stream(), from.random().position()});
  const Finder finder(net);
  for (const auto& layer : net.layers()) {
    const LayerState* found = finder.find(from, *layer);
    if (found) {
      if (const Status status = layer->load_state(found->state()); !status.ok())
        throw ConfigError(status.error().code, file, ": layer '", layer->name(),
                          "': ", status.error().message);
    } else if (!layer->save_state().empty()) {
      LOG(WARNING) << file << " holds no state of layer '" << layer->name() << "' ("
                   << layer->type() << "): it starts anew";
    }
  }
}

MemberState member_state(const RunState& run) {
  MemberState member;
  *member.mutable_net() = run.net();
  *member.mutable_replica() = run.replica();
  *member.mutable_recent_loss() = run.recent_loss();
  member.set_iteration(run.iteration());
  return member;
}

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

namespace {

// Replaces the chief's own parts in `run`, its chief's, by the member's.
void put_member(const MemberState& member, RunState& run) {
  *run.mutable_net() = member.net();
  *run.mutable_replica() = member.replica();
  *run.mutable_recent_loss() = member.recent_loss();
}

// Keeps the member's own streams of random numbers; places in the data are the whole team's, and
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
  LOG(INFO) << "The snapshot is from " << saved_by << " workers, and now there are " << size
            << ": each goes on in its own part of the data, from the position that all had reached "
               "together, with "
            << (size > saved_by ? "new random numbers on new workers" : "its own random numbers");
  if (index == 0) return run;
  keep_own_random(index < saved_by ? &own : nullptr, *run.mutable_net());
  for (NetRunState& replica : *run.mutable_replica()) replica.clear_random();
  return run;
}

}  // namespace shoal
