// Several tensors of one shape, element by element, on a CUDA device.
#include "shoal/ops/eltwise.h"

#include "shoal/base/log.h"
#include "shoal/ops/cuda/channels_last.h"
#include "shoal/ops/cuda/elementary.h"
#include "shoal/ops/cuda/launch.h"

namespace shoal::ops::cuda {
namespace {

// The layout in which all of x are, and g, if the call reads it; plain if they differ.
LayoutPtr layout_of(Tensors x, const Tensor* g = nullptr) {
  LayoutPtr layout = x.empty() ? nullptr : x[0]->layout();
  for (const Tensor* one : x) layout = same_layout(one->layout(), layout) ? layout : nullptr;
  return g == nullptr || same_layout(g->layout(), layout) ? layout : nullptr;
}

// The tensors of one call, by value among a launch's arguments.
struct Inputs {
  static constexpr int kMost = 128;
  Inputs(Context& ctx, Tensors x, const Tensor& y, const LayoutPtr& layout)
      : count(static_cast<int>(x.size())) {
    CHECK(count > 0 && count <= kMost) << "of " << count << " tensors; at most " << kMost;
    for (int k = 0; k < count; ++k) {
      const Tensor& one = *x[static_cast<std::size_t>(k)];
      CHECK(one.count() == y.count())
          << "shapes " << one.shape().str() << " and " << y.shape().str();
      data[k] = read(ctx, one, layout);
    }
  }
  int count;
  const float* data[kMost];
};

struct Weights {
  Weights(std::span<const float> weights, int count) {
    CHECK(weights.empty() || static_cast<int>(weights.size()) == count)
        << weights.size() << " weights for " << count << " tensors";
    for (int k = 0; k < count; ++k)
      at[k] = weights.empty() ? 1.0f : weights[static_cast<std::size_t>(k)];
  }
  float at[Inputs::kMost];
};

}  // namespace

void weighted_sum(Context& ctx, Tensors x, std::span<const float> weights, Tensor& y) {
  const LayoutPtr layout = layout_of(x);
  const Inputs in(ctx, x, y, layout);
  const Weights weight(weights, in.count);
  float* const out = write(ctx, y, layout);
  each(ctx, "weighted sum", y.count(), [=] __host__ __device__(std::int64_t i) {
    float sum = weight.at[0] * in.data[0][i];
    for (int k = 1; k < in.count; ++k) sum += weight.at[k] * in.data[k][i];
    out[i] = sum;
  });
}

void product(Context& ctx, Tensors x, Tensor& y) {
  const LayoutPtr layout = layout_of(x);
  const Inputs in(ctx, x, y, layout);
  float* const out = write(ctx, y, layout);
  each(ctx, "product", y.count(), [=] __host__ __device__(std::int64_t i) {
    float all = in.data[0][i];
    for (int k = 1; k < in.count; ++k) all *= in.data[k][i];
    out[i] = all;
  });
}

void product_but_one(Context& ctx, Tensors x, int skip, const Tensor& g, Tensor& y) {
  const LayoutPtr layout = layout_of(x, &g);
  const Inputs in(ctx, x, y, layout);
  CHECK(g.count() == y.count());
  const float* const grad = read(ctx, g, layout);
  float* const out = write(ctx, y, layout);
  each(ctx, "product of the others", y.count(), [=] __host__ __device__(std::int64_t i) {
    float others = 1;
    for (int k = 0; k < in.count; ++k)
      if (k != skip) others *= in.data[k][i];
    out[i] = others * grad[i];
  });
}

void product_over(Context& ctx, const Tensor& g, const Tensor& p, const Tensor& x, Tensor& y) {
  CHECK(g.count() == y.count() && p.count() == y.count() && x.count() == y.count());
  const LayoutPtr layout = common_layout(g, p, x);
  const float *const grad = read(ctx, g, layout), *const product = read(ctx, p, layout),
                     *const factor = read(ctx, x, layout);
  float* const out = write(ctx, y, layout);
  each(ctx, "product over a factor", y.count(),
       [=] __host__ __device__(std::int64_t i) { out[i] = product[i] / factor[i] * grad[i]; });
}

void maximum(Context& ctx, Tensors x, Tensor& y, Tensor& winner) {
  const LayoutPtr layout = layout_of(x);
  const Inputs in(ctx, x, y, layout);
  CHECK(in.count >= 2 && winner.count() == y.count());
  float *const out = write(ctx, y, layout), *const best = write(ctx, winner, layout);
  each(ctx, "maximum", y.count(), [=] __host__ __device__(std::int64_t i) {
    const bool first = in.data[0][i] > in.data[1][i];
    float largest = in.data[first ? 0 : 1][i];
    int index = first ? 0 : 1;
    for (int k = 2; k < in.count; ++k)
      if (in.data[k][i] > largest) {
        largest = in.data[k][i];
        index = k;
      }
    out[i] = largest;
    best[i] = static_cast<float>(index);
  });
}

void take_where(Context& ctx, const Tensor& winner, int index, const Tensor& g, Tensor& y) {
  CHECK(winner.count() == y.count() && g.count() == y.count());
  const LayoutPtr layout = common_layout(winner, g);
  const float *const best = read(ctx, winner, layout), *const grad = read(ctx, g, layout);
  const float want = static_cast<float>(index);
  float* const out = write(ctx, y, layout);
  each(ctx, "gradient of the winner", y.count(),
       [=] __host__ __device__(std::int64_t i) { out[i] = best[i] == want ? grad[i] : 0.0f; });
}

}  // namespace shoal::ops::cuda
