// Finds the params of a layer that learn, params that no rule updates, and params that not every
// net of a solver has.
#pragma once

#include <algorithm>
#include <span>
#include <type_traits>
#include <vector>

#include "shoal/net/net.h"

namespace shoal {

// Returns the params of a layer that learn: indices into net.params().
inline std::vector<std::size_t> learning_of(const Net& net, int layer) {
  std::vector<std::size_t> params;
  for (std::size_t p = 0; p < net.params().size(); ++p)
    if (net.params()[p].layer == layer && net.params()[p].lr_mult != 0) params.push_back(p);
  return params;
}

// Returns their gradients, for several layers in order.
inline std::vector<Tensor*> gradients_of(const Net& net, std::span<const int> layers) {
  std::vector<Tensor*> gradients;
  for (const int layer : layers)
    for (const std::size_t p : learning_of(net, layer))
      gradients.push_back(&net.params()[p].blob->grad);
  return gradients;
}
inline std::vector<Tensor*> gradients_of(const Net& net, int layer) {
  return gradients_of(net, std::span(&layer, 1));
}

// Returns whether a forward pass changes param i of the layer, and no rule does: a running mean,
// say.
inline bool is_running_sum(const Net& net, std::size_t layer, std::size_t i) {
  return net.layers()[layer]->default_lr_mult(static_cast<int>(i)) == 0;
}

// Calls f(tensor), or f(tensor, layer, i), for each running sum, in the net's order.
template <class F>
void for_each_running_sum(const Net& net, F f) {
  for (std::size_t layer = 0; layer < net.layers().size(); ++layer)
    for (std::size_t i = 0; i < net.layers()[layer]->params().size(); ++i) {
      if (!is_running_sum(net, layer, i)) continue;
      Tensor& sum = net.layers()[layer]->params()[i]->data;
      if constexpr (std::is_invocable_v<F, Tensor&, std::size_t, std::size_t>)
        f(sum, layer, i);
      else
        f(sum);
    }
}

inline bool has_layer(const Net& net, const std::string& name) {
  return std::ranges::any_of(net.layers(),
                             [&](const auto& layer) { return layer->name() == name; });
}

// Returns whether `net` has a layer with params that `other` has not.
inline bool has_own_params(const Net& net, const Net& other) {
  return std::ranges::any_of(net.layers(), [&](const auto& layer) {
    return !layer->params().empty() && !has_layer(other, layer->name());
  });
}

}  // namespace shoal
