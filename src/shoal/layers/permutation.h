// Base class of the layers that put the axes of their bottom in another order.
#pragma once

#include <cstdint>
#include <vector>

#include "shoal/layers/layer.h"

namespace shoal {

// Moves every number to another place. reshape of a subclass shapes the top and calls permute.
class Permutation : public Layer {
 public:
  using Layer::Layer;
  Reads reads() const override { return {.bottom_data = false, .top_data = false}; }
  void forward(Context& ctx, Bottoms bottoms, Tops tops) final;
  void backward(Context& ctx, Tops tops, const std::vector<bool>& propagate, Bottoms bottoms) final;

 protected:
  using Sizes = std::vector<std::int64_t>;
  // The bottom, seen as numbers of these sizes, has its axis order[i] as axis i of the top.
  void permute(const Sizes& bottom, const std::vector<std::size_t>& order);

 private:
  Sizes top_sizes_, bottom_steps_;  // by axes of the top
  Sizes bottom_sizes_, top_steps_;  // by axes of the bottom
};

}  // namespace shoal
