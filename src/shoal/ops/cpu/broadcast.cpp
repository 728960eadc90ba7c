#include "shoal/ops/broadcast.h"

#include <algorithm>
#include <vector>

#include "shoal/base/log.h"
#include "shoal/ops/cpu/broadcast_blocked.h"
#include "shoal/ops/cpu/pair_sums.h"
#include "shoal/ops/cpu/parallel.h"
#include "shoal/ops/cpu/sum_target.h"

namespace shoal::ops::cpu {
namespace {

void check(const BroadcastDims& s, const Tensor& x, const Tensor& y, std::int64_t numbers) {
  CHECK(x.count() == s.outer * s.dim * s.inner && y.count() == x.count() && numbers == s.dim)
      << s.outer << " x " << s.dim << " x " << s.inner << " for shapes " << x.shape().str() << ", "
      << y.shape().str() << " and " << numbers << " numbers";
}

// Calls f(d, begin, n) for each stretch of inner numbers that share their d; with inner 1, g(begin,
// n) for stretches of dim numbers.
template <class Row, class Vector>
void for_rows(Context& ctx, const BroadcastDims& s, Row row, Vector vector) {
  const bool flat = s.inner == 1;
  const std::int64_t length = flat ? s.dim : s.inner, rows = flat ? s.outer : s.outer * s.dim;
  parallel_for(ctx.threads(), rows, grain_of(length),
               [&](int, std::int64_t begin, std::int64_t end) {
                 for (std::int64_t r = begin; r < end; ++r) {
                   if (flat)
                     vector(r * length, length);
                   else
                     row(r % s.dim, r * length, length);
                 }
               });
}

// Numbers that stay in the first cache from the sums to the product.
constexpr std::int64_t kBlock = 2048;

// One call's pointers; x is g where no products are wanted.
struct Backward {
  const float *g, *x, *factor;
  float* gx;
  SumTarget g_factor, g_shift;
  bool sums() const { return g_factor.numbers != nullptr || g_shift.numbers != nullptr; }
};

// Goes backward through the numbers of d, which lie in stretches of inner.
void backward_rows(const BroadcastDims& s, const Backward& b, std::int64_t d) {
  PairSums sums;
  for (std::int64_t o = 0; o < s.outer; ++o) {
    const std::int64_t start = (o * s.dim + d) * s.inner;
    for (std::int64_t i = 0; i < s.inner; i += kBlock) {
      const std::int64_t at = start + i, n = std::min(kBlock, s.inner - i);
      if (b.sums()) sums.add(b.g + at, 0, b.x + at, 0, n);
      if (b.gx != nullptr)
        for (std::int64_t k = at; k < at + n; ++k) b.gx[k] = b.g[k] * b.factor[d];
    }
  }
  b.g_factor.put(d, sums.products);
  b.g_shift.put(d, sums.plain);
}

// The same for inner 1: several d side by side.
void backward_columns(const BroadcastDims& s, const Backward& b, std::int64_t begin,
                      std::int64_t end) {
  constexpr std::int64_t kWide = 64;
  const bool sums = b.sums();
  for (std::int64_t d = begin; d < end; d += kWide) {
    double products[kWide] = {}, grads[kWide] = {};
    const std::int64_t n = std::min(kWide, end - d);
    for (std::int64_t o = 0; o < s.outer; ++o) {
      const std::int64_t at = o * s.dim + d;
      for (std::int64_t k = 0; sums && k < n; ++k) {
        products[k] += double{b.g[at + k]} * b.x[at + k];
        grads[k] += b.g[at + k];
      }
      for (std::int64_t k = 0; b.gx != nullptr && k < n; ++k)
        b.gx[at + k] = b.g[at + k] * b.factor[d + k];
    }
    for (std::int64_t k = 0; k < n; ++k)
      b.g_factor.put(d + k, products[k]), b.g_shift.put(d + k, grads[k]);
  }
}

// A single number against all: the sums are cut into blocks for the threads to share.
void backward_scalar(Context& ctx, const Backward& b, std::int64_t count) {
  constexpr std::int64_t kPart = 8 * kBlock;
  const std::int64_t parts = (count + kPart - 1) / kPart;
  std::vector<PairSums> sums(static_cast<std::size_t>(parts));
  parallel_for(ctx.threads(), parts, 1, [&](int, std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) {
      const std::int64_t last = std::min(count, (p + 1) * kPart);
      for (std::int64_t at = p * kPart; at < last; at += kBlock) {
        const std::int64_t n = std::min(kBlock, last - at);
        if (b.sums()) sums[static_cast<std::size_t>(p)].add(b.g + at, 0, b.x + at, 0, n);
        for (std::int64_t k = at; b.gx != nullptr && k < at + n; ++k)
          b.gx[k] = b.g[k] * b.factor[0];
      }
    }
  });
  PairSums all;
  for (const PairSums& part : sums) all.products += part.products, all.plain += part.plain;
  b.g_factor.put(0, all.products);
  b.g_shift.put(0, all.plain);
}

void backward(Context& ctx, const BroadcastDims& s, const Backward& b) {
  if (s.dim == 1) return backward_scalar(ctx, b, s.outer * s.inner);
  parallel_for(ctx.threads(), s.dim, grain_of(s.outer * s.inner),
               [&](int, std::int64_t begin, std::int64_t end) {
                 if (s.inner == 1) return backward_columns(s, b, begin, end);
                 for (std::int64_t d = begin; d < end; ++d) backward_rows(s, b, d);
               });
}

}  // namespace

void scale_and_shift(Context& ctx, const BroadcastDims& dims, const Tensor& x, const Tensor& factor,
                     const Tensor* shift, Tensor& y) {
  check(dims, x, y, factor.count());
  CHECK(shift == nullptr || shift->count() == dims.dim);
  if (const LayoutPtr layout = blocks_of(dims, x))
    return BlockedBroadcast(ctx, dims, layout).scale_and_shift(x, &factor, shift, y);
  const float *in = x.in(), *scale = factor.in(), *add = shift != nullptr ? shift->in() : nullptr;
  float* out = y.mut();
  for_rows(
      ctx, dims,
      [=](std::int64_t d, std::int64_t begin, std::int64_t n) {
        const float a = scale[d], b = add != nullptr ? add[d] : 0;
        for (std::int64_t i = begin; i < begin + n; ++i) out[i] = a * in[i] + b;
      },
      [=](std::int64_t begin, std::int64_t n) {
        if (add != nullptr) {
          for (std::int64_t d = 0; d < n; ++d) out[begin + d] = scale[d] * in[begin + d] + add[d];
        } else {
          for (std::int64_t d = 0; d < n; ++d) out[begin + d] = scale[d] * in[begin + d];
        }
      });
}

void shift(Context& ctx, const BroadcastDims& dims, const Tensor& x, const Tensor& shift,
           Tensor& y) {
  check(dims, x, y, shift.count());
  if (const LayoutPtr layout = blocks_of(dims, x))
    return BlockedBroadcast(ctx, dims, layout).scale_and_shift(x, nullptr, &shift, y);
  const float *in = x.in(), *add = shift.in();
  float* out = y.mut();
  for_rows(
      ctx, dims,
      [=](std::int64_t d, std::int64_t begin, std::int64_t n) {
        const float b = add[d];
        for (std::int64_t i = begin; i < begin + n; ++i) out[i] = in[i] + b;
      },
      [=](std::int64_t begin, std::int64_t n) {
        for (std::int64_t d = 0; d < n; ++d) out[begin + d] = in[begin + d] + add[d];
      });
}

void scale_backward(Context& ctx, const BroadcastDims& dims, const Tensor& g, const Tensor& x,
                    const Tensor& factor, Tensor* gx, SumInto g_factor, SumInto g_shift) {
  check(dims, g, g, factor.count());
  for (const SumInto& into : {g_factor, g_shift})
    CHECK(into.tensor == nullptr || into.tensor->count() == dims.dim);
  const bool products = g_factor.tensor != nullptr;
  CHECK(!products || x.count() == g.count())
      << "shapes " << x.shape().str() << " and " << g.shape().str();
  if (const LayoutPtr layout = blocks_of(dims, products ? x : g))
    return BlockedBroadcast(ctx, dims, layout).scale_backward(g, x, &factor, gx, g_factor, g_shift);
  backward(ctx, dims,
           {.g = g.in(),
            .x = products ? x.in() : g.in(),
            .factor = factor.in(),
            .gx = gx != nullptr ? gx->mut() : nullptr,
            .g_factor = SumTarget(g_factor),
            .g_shift = SumTarget(g_shift)});
}

void shift_backward(Context& ctx, const BroadcastDims& dims, const Tensor& g, SumInto g_shift) {
  check(dims, g, g, g_shift.tensor->count());
  if (const LayoutPtr layout = blocks_of(dims, g))
    return BlockedBroadcast(ctx, dims, layout).scale_backward(g, g, nullptr, nullptr, {}, g_shift);
  backward(ctx, dims,
           {.g = g.in(),
            .x = g.in(),
            .factor = nullptr,
            .gx = nullptr,
            .g_factor = SumTarget({}),
            .g_shift = SumTarget(g_shift)});
}

}  // namespace shoal::ops::cpu
