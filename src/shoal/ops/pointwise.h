// Functions of one number, applied to each element of a tensor, and two that need a little more (a
// slope a channel, a coin an element). Counts must agree (CHECK). A NaN stays a NaN. y may be x and
// dx may be dy wherever both are named.
#pragma once

#include "shoal/base/random.h"
#include "shoal/tensor/context.h"

namespace shoal::ops {

// The formula of y for each function of x, and the meaning of a, b and c:
enum class MapKind {
  kRelu,     // x > 0: x, else a x
  kElu,      // x > 0: x, else a (e^x - 1)
  kSigmoid,  // 1 / (1 + e^-x)
  kTanh,
  kAbs,        // |x|; slope 0 at 0
  kPower,      // (c + b x)^a; slope 0 everywhere if a b = 0
  kExp,        // b e^(a x)
  kLog,        // c ln(b + a x)
  kSoftplus,   // ln(1 + e^x)
  kThreshold,  // x > a: 1, else 0; no slope
  kClip,       // x cut to [a, b]; slope 1 at both ends
  kSwish,      // x / (1 + e^(-a x))
  kCapped,     // x > 0: the smaller of x and b, else a x; slope 0 from b on
};
struct Map {
  MapKind kind;
  float a = 0, b = 0, c = 0;
};

// The tensor that the slope is worked out from. At a kink the slope is that of the left side where
// the table says nothing else.
enum class MapReads { kNothing, kX, kY };
MapReads reads(const Map& map);

void map(Context& ctx, const Map& map, const Tensor& x, Tensor& y);
// Computes dx = dy times the slope; `read` is x or y as reads(map) says, and not looked at for
// kNothing.
void map_backward(Context& ctx, const Map& map, const Tensor& read, const Tensor& dy, Tensor& dx);

// Computes y: x if x > 0, else slope[c] x, for x (outer, C, inner) with C = slope.count().
void prelu(Context& ctx, const Tensor& x, const Tensor& slope, std::int64_t inner, Tensor& y);
// Computes dx: dy if x > 0, else slope[c] dy.
void prelu_backward(Context& ctx, const Tensor& x, const Tensor& slope, std::int64_t inner,
                    const Tensor& dy, Tensor& dx);
// Adds to dslope[c] the sum of dy x over the channel's x <= 0.
void prelu_slope_backward(Context& ctx, const Tensor& x, std::int64_t inner, const Tensor& dy,
                          Tensor& dslope);

// Computes y[i] = 0 with probability `ratio`, else x[i] / (1 - ratio). The coin of element i is
// word i of `coins`, which takes count() words: the same state throws the same coins, so backward
// is the same call on the gradients.
void dropout(Context& ctx, const Random::State& coins, float ratio, const Tensor& x, Tensor& y);

}  // namespace shoal::ops
