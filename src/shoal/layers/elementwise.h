// Base class of the layers that apply one function to each number.
#pragma once

#include "shoal/layers/layer.h"
#include "shoal/ops/pointwise.h"

namespace shoal {

// Computes top = map(bottom), of the bottom's shape. In place always works: where backward needs
// what stood in the bottom, forward keeps a copy of it, in phase TRAIN only; a backward pass in
// phase TEST then fails and says so.
class Elementwise final : public Layer {
 public:
  Elementwise(const LayerParameter& param, const ops::Map& map) : Layer(param), map_(map) {}
  bool can_be_in_place() const override { return true; }
  Reads reads() const override;
  KeepsLayout keeps_layout() const override { return {.data = true, .grad = true}; }
  Propagates propagates(int bottom) const override;
  void reshape(Context&, Bottoms bottoms, Tops tops) override;
  void forward(Context& ctx, Bottoms bottoms, Tops tops) override;
  void backward(Context& ctx, Tops tops, const std::vector<bool>& propagate,
                Bottoms bottoms) override;

 private:
  ops::Map map_;
  bool in_place_ = false;
  Tensor kept_;  // the bottom as it was, where the top took its place and backward reads it
};

// Returns the natural logarithm of the `base` of Exp and Log: -1 stands for e. Throws ConfigError
// unless base is -1 or above 0.
float log_of_base(const LayerParameter& param, float base);

// Fails the pass of a layer that works in place in phase TEST, where no copy of the bottom is kept
// for backward.
void fail_backward_in_place(Context& ctx);

}  // namespace shoal
