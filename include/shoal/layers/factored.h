// Layers whose params' gradients are sums of outer products, of which the factors can be had in
// their place.
#pragma once

#include <cstdint>

#include "shoal/tensor/tensor.h"

namespace shoal {

// Takes the factors of each backward pass of a layer and of the same layer in other nets.
class FactorSink {
 public:
  virtual ~FactorSink() = default;
  // Is called on the thread of the net whose replica number it is. top_grad (rows, outputs), bottom
  // (rows, inputs); good until this returns.
  virtual void take(int replica, const Tensor& top_grad, const Tensor& bottom) = 0;
};

// The weight's gradient is top_grad^T bottom, the bias's the sum of the rows of top_grad.
class Factored {
 public:
  struct Sizes {
    std::int64_t rows = 0, outputs = 0, inputs = 0;  // rows: of a pass, at the present shapes
  };
  virtual ~Factored() = default;
  virtual Sizes factor_sizes() const = 0;
  // Makes backward hand its factors to the sink and add nothing to the params' gradients; null: it
  // adds to them again.
  virtual void give_factors_to(FactorSink* sink) = 0;
  virtual FactorSink* factors_go_to() const = 0;
  // Adds to the params' gradients what backward would for these factors, of any number of rows.
  virtual void add_gradients(Context& ctx, const Tensor& top_grad, const Tensor& bottom) = 0;
};

}  // namespace shoal
