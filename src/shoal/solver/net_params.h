// Params that no rule updates, or that not every net of a solver has.
#pragma once

#include <algorithm>

#include "shoal/net/net.h"

namespace shoal {

// Calls f(tensor) for each param that a forward pass changes, running means and the like, in the
// net's order.
template <class F>
void for_each_running_sum(const Net& net, F f) {
  for (const auto& layer : net.layers())
    for (std::size_t i = 0; i < layer->params().size(); ++i)
      if (layer->default_lr_mult(static_cast<int>(i)) == 0) f(layer->params()[i]->data);
}

inline bool has_layer(const Net& net, const std::string& name) {
  return std::ranges::any_of(net.layers(),
                             [&](const auto& layer) { return layer->name() == name; });
}

// Whether `net` has a layer with params that `other` has not.
inline bool has_own_params(const Net& net, const Net& other) {
  return std::ranges::any_of(net.layers(), [&](const auto& layer) {
    return !layer->params().empty() && !has_layer(other, layer->name());
  });
}

}  // namespace shoal
