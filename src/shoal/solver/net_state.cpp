#include "shoal/solver/net_state.h"

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

const LayerState* find(const NetRunState& from, const Layer& layer) {
  for (const LayerState& entry : from.layer())
    if (entry.name() == layer.name() && entry.type() == layer.type()) return &entry;
  return nullptr;
}

}  // namespace

void take_over_state(Net& net, const NetRunState* own, const std::vector<const NetRunState*>& all,
                     const std::string& file) {
  if (own && own->has_random())
    net.context().random() = Random(
        Random::State{own->random().seed(), own->random().stream(), own->random().position()});
  for (const auto& layer : net.layers()) {
    std::vector<std::string_view> states;
    for (const NetRunState* state : all)
      if (const LayerState* entry = find(*state, *layer)) states.emplace_back(entry->state());
    const LayerState* mine = own ? find(*own, *layer) : nullptr;
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
  for (const auto& layer : net.layers()) {
    const LayerState* found = find(from, *layer);
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

}  // namespace shoal
