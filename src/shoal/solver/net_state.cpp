#include "net_state.h"

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

void take_state(Net& net, const NetRunState& from, const std::string& file) {
  if (from.has_random()) net.context().random() = Random(Random::State{from.random().seed(), from.random().stream(), from.random().position()});
  for (const auto& layer : net.layers()) {
    const LayerState* found = nullptr;
    for (const LayerState& entry : from.layer())
      if (entry.name() == layer->name() && entry.type() == layer->type()) found = &entry;
    if (found) {
      if (const Status status = layer->load_state(found->state()); !status.ok())
        throw ConfigError(status.error().code, file, ": layer '", layer->name(), "': ", status.error().message);
    } else if (!layer->save_state().empty()) {
      LOG(WARNING) << file << " holds no state of layer '" << layer->name() << "' (" << layer->type() << "): it starts anew";
    }
  }
}

}  // namespace shoal
