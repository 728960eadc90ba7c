#include "shoal/ops/eltwise.h"

#include <algorithm>
#include <vector>

#include "shoal/base/log.h"
#include "shoal/ops/cpu/elementwise.h"
#include "shoal/ops/cpu/parallel.h"
#include "shoal/ops/cpu/relu.h"

namespace shoal::ops::cpu {
namespace {

// Pieces that stay in the first cache while one input after the other is read.
constexpr std::int64_t kBlock = 1024;

std::vector<const float*> pointers(Tensors x, const Tensor& y) {
  std::vector<const float*> all;
  for (const Tensor* tensor : x) {
    CHECK(tensor->count() == y.count())
        << "shapes " << tensor->shape().str() << " and " << y.shape().str();
    all.push_back(tensor->in());
  }
  CHECK(!all.empty());
  return all;
}

// Calls f(begin, end) for small pieces of [0, n).
template <class F>
void for_blocks(Context& ctx, std::int64_t n, F f) {
  const std::int64_t blocks = (n + kBlock - 1) / kBlock;
  parallel_for(ctx.threads(), blocks, grain_of(kBlock),
               [&](int, std::int64_t begin, std::int64_t end) {
                 for (std::int64_t b = begin; b < end; ++b)
                   f(b * kBlock, std::min(n, (b + 1) * kBlock));
               });
}

}  // namespace

namespace {

// The tensors of a sum in the layout of the first, if all have y's shape; else plain.
struct Terms {
  Terms(Context& ctx, Tensors x, Tensor& y) {
    CHECK(!x.empty());
    LayoutPtr layout = x[0]->layout();
    for (const Tensor* tensor : x) {
      CHECK(tensor->count() == y.count())
          << "shapes " << tensor->shape().str() << " and " << y.shape().str();
      if (tensor->shape() != y.shape()) layout = nullptr;
    }
    type = number_type(layout);
    for (const Tensor* tensor : x) in.push_back(tensor->read(ctx, layout));
    out = y.write(ctx, layout);
    count = y.count();
    if (layout) count = static_cast<std::int64_t>(layout->bytes(y.shape())) / size_of(type);
  }
  NumberType type = NumberType::kFloat32;
  std::vector<const std::byte*> in;
  std::byte* out;
  std::int64_t count;
};

template <class N>
void sum_terms(Context& ctx, const Terms& terms, std::span<const float> weights,
               std::optional<float> relu) {
  const auto weight = [&](std::size_t k) { return weights.empty() ? 1.0f : weights[k]; };
  N* const out = numbers<N>(terms.out);
  for_blocks(ctx, terms.count, [&](std::int64_t begin, std::int64_t end) {
    float sum[kBlock];
    const std::int64_t n = end - begin;
    const N* const first = numbers<N>(terms.in[0]) + begin;
    if (terms.in.size() > 1) {
      const N* const second = numbers<N>(terms.in[1]) + begin;
      const float a = weight(0), b = weight(1);
      for (std::int64_t i = 0; i < n; ++i) sum[i] = a * value(first[i]) + b * value(second[i]);
    } else {
      const float a = weight(0);
      for (std::int64_t i = 0; i < n; ++i) sum[i] = a * value(first[i]);
    }
    for (std::size_t k = 2; k < terms.in.size(); ++k) {
      const N* const next = numbers<N>(terms.in[k]) + begin;
      const float w = weight(k);
      for (std::int64_t i = 0; i < n; ++i) sum[i] += w * value(next[i]);
    }
    if (relu) relu_in_place(*relu, sum, n);
    for (std::int64_t i = 0; i < n; ++i) out[begin + i] = number<N>(sum[i]);
  });
}

}  // namespace

void weighted_sum(Context& ctx, Tensors x, std::span<const float> weights, Tensor& y,
                  std::optional<float> relu) {
  CHECK(weights.empty() || weights.size() == x.size())
      << weights.size() << " weights for " << x.size() << " tensors";
  const Terms terms(ctx, x, y);
  with_type(terms.type, [&](auto one) { sum_terms<decltype(one)>(ctx, terms, weights, relu); });
}

void product(Context& ctx, Tensors x, Tensor& y) {
  const std::vector<const float*> in = pointers(x, y);
  float* out = y.out();
  for_blocks(ctx, y.count(), [&](std::int64_t begin, std::int64_t end) {
    std::copy(in[0] + begin, in[0] + end, out + begin);
    for (std::size_t k = 1; k < in.size(); ++k)
      for (std::int64_t i = begin; i < end; ++i) out[i] *= in[k][i];
  });
}

void product_but_one(Context& ctx, Tensors x, int skip, const Tensor& g, Tensor& y) {
  const std::vector<const float*> in = pointers(x, y);
  CHECK(g.count() == y.count());
  const float* grad = g.in();
  float* out = y.out();
  for_blocks(ctx, y.count(), [&](std::int64_t begin, std::int64_t end) {
    float others[kBlock];
    const std::int64_t n = end - begin;
    std::fill(others, others + n, 1.0f);
    for (std::size_t k = 0; k < in.size(); ++k)
      for (std::int64_t i = 0; k != static_cast<std::size_t>(skip) && i < n; ++i)
        others[i] *= in[k][begin + i];
    for (std::int64_t i = 0; i < n; ++i) out[begin + i] = others[i] * grad[begin + i];
  });
}

void product_over(Context& ctx, const Tensor& g, const Tensor& p, const Tensor& x, Tensor& y) {
  CHECK(g.count() == y.count() && p.count() == y.count() && x.count() == y.count());
  const float *grad = g.in(), *product = p.in(), *factor = x.in();
  float* out = y.out();
  for_blocks(ctx, y.count(), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) out[i] = product[i] / factor[i] * grad[i];
  });
}

void maximum(Context& ctx, Tensors x, Tensor& y, Tensor& winner) {
  const std::vector<const float*> in = pointers(x, y);
  CHECK(in.size() >= 2 && winner.count() == y.count());
  float *out = y.out(), *best = winner.out();
  for_blocks(ctx, y.count(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const bool first = in[0][i] > in[1][i];
      float largest = first ? in[0][i] : in[1][i], index = first ? 0.0f : 1.0f;
      for (std::size_t k = 2; k < in.size(); ++k)
        if (in[k][i] > largest) largest = in[k][i], index = static_cast<float>(k);
      out[i] = largest;
      best[i] = index;
    }
  });
}

void take_where(Context& ctx, const Tensor& winner, int index, const Tensor& g, Tensor& y) {
  CHECK(winner.count() == y.count() && g.count() == y.count());
  const float *best = winner.in(), *grad = g.in(), want = static_cast<float>(index);
  float* out = y.out();
  for_blocks(ctx, y.count(), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) out[i] = best[i] == want ? grad[i] : 0.0f;
  });
}

}  // namespace shoal::ops::cpu
