// The plain CPU kernels that impls.cpp lists, and what they have in common.
#pragma once

#include <cstdint>
#include <memory>

#include "shoal/base/numbers.h"
#include "shoal/ops/gemm.h"
#include "shoal/ops/normalize.h"
#include "shoal/ops/softmax.h"
#include "shoal/ops/window.h"

namespace shoal::ops::cpu {

extern const DenseImpl kDense;
extern const ConvImpl kConvDirect;
extern const ConvImpl kConv;
extern const Im2colImpl kIm2col;
extern const PoolImpl kPool;
extern const LrnImpl kLrn;
extern const BatchNormImpl kBatchNorm;
extern const SoftmaxImpl kSoftmax;

// Makes the part of kPool that does the methods kSampled and kExpected.
std::unique_ptr<PoolKernel> make_weighted_pool(const PoolDesc& desc);

template <class Desc>
Why serves_all(const Desc&, const Context&) {
  return kYes;
}

template <class Made, class Kernel, class Desc>
std::unique_ptr<Kernel> make_kernel(const Desc& desc, Context&) {
  return std::make_unique<Made>(desc);
}

// Returns the sum of n numbers in kLanes interleaved parts, which is faster and more exact than
// adding them one after the other.
inline float sum(const float* x, std::int64_t n) {
  float lanes[kLanes] = {}, total = 0;
  for (std::int64_t i = add_in_lanes(lanes, 0, n, [=](std::int64_t at) { return x[at]; }); i < n;
       ++i)
    total += x[i];
  for (const float lane : lanes) total += lane;
  return total;
}

}  // namespace shoal::ops::cpu
