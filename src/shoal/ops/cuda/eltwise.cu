// Several tensors of one shape, element by element, on a CUDA device.
#include "shoal/ops/eltwise.h"

#include <vector>

#include "shoal/base/log.h"
#include "shoal/ops/cuda/device_layout.h"
#include "shoal/ops/cuda/elementary.h"
#include "shoal/ops/cuda/elementwise.h"
#include "shoal/ops/cuda/relu.h"

namespace shoal::ops::cuda {
namespace {

// Returns the layout in which all of x are, and g, if the call reads it.
LayoutPtr layout_of(Tensors x, const Tensor* g = nullptr) {
  std::vector<const Tensor*> all(x.begin(), x.end());
  if (g != nullptr) all.push_back(g);
  return common_layout(all);
}

// The tensors of one call, by value among a launch's arguments.
struct Inputs {
  static constexpr int kMost = 128;
  Inputs(Context& ctx, Tensors x, const Tensor& y, const LayoutPtr& layout)
      : count(static_cast<int>(x.size())), type(type_of(layout)) {
    CHECK(count > 0 && count <= kMost) << "of " << count << " tensors; at most " << kMost;
    for (int k = 0; k < count; ++k) {
      const Tensor& one = *x[static_cast<std::size_t>(k)];
      CHECK(one.count() == y.count())
          << "shapes " << one.shape().str() << " and " << y.shape().str();
      data[k] = one.read(ctx, layout);
    }
  }
  __host__ __device__ float at(int k, std::int64_t i) const { return Reader{data[k], type}[i]; }
  int count;
  ElementType type;
  const void* data[kMost];
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

void weighted_sum(Context& ctx, Tensors x, std::span<const float> weights, Tensor& y,
                  std::optional<float> relu) {
  constexpr const char* kName = "weighted sum";
  const LayoutPtr layout = layout_of(x);
  const Inputs in(ctx, x, y, layout);
  const Weights w(weights, in.count);
  const Relu end(relu);
  void* const out = y.write(ctx, layout);
  if (in.count == 2)
    return map_each(
        ctx, kName, in.type, y.count(),
        [=] __host__ __device__(std::int64_t, float a, float b) {
          return end(w.at[0] * a + w.at[1] * b);
        },
        out, in.data[0], in.data[1]);
  if (in.count == 4)
    return map_each(
        ctx, kName, in.type, y.count(),
        [=] __host__ __device__(std::int64_t, float a, float b, float c, float d) {
          return end(w.at[0] * a + w.at[1] * b + w.at[2] * c + w.at[3] * d);
        },
        out, in.data[0], in.data[1], in.data[2], in.data[3]);
  map_each(
      ctx, kName, in.type, y.count(),
      [=] __host__ __device__(std::int64_t i, float first) {
        float sum = w.at[0] * first;
        for (int k = 1; k < in.count; ++k) sum += w.at[k] * in.at(k, i);
        return end(sum);
      },
      out, in.data[0]);
}

void product(Context& ctx, Tensors x, Tensor& y) {
  const LayoutPtr layout = layout_of(x);
  const Inputs in(ctx, x, y, layout);
  map_each(
      ctx, "product", in.type, y.count(),
      [=] __host__ __device__(std::int64_t i, float all) {
        for (int k = 1; k < in.count; ++k) all *= in.at(k, i);
        return all;
      },
      y.write(ctx, layout), in.data[0]);
}

void product_but_one(Context& ctx, Tensors x, int skip, const Tensor& g, Tensor& y) {
  const LayoutPtr layout = layout_of(x, &g);
  const Inputs in(ctx, x, y, layout);
  CHECK(g.count() == y.count());
  const void* const grad = g.read(ctx, layout);
  map_each(
      ctx, "product of the others", in.type, y.count(),
      [=] __host__ __device__(std::int64_t i, float slope) {
        float others = 1;
        for (int k = 0; k < in.count; ++k)
          if (k != skip) others *= in.at(k, i);
        return others * slope;
      },
      y.write(ctx, layout), grad);
}

void product_over(Context& ctx, const Tensor& g, const Tensor& p, const Tensor& x, Tensor& y) {
  CHECK(g.count() == y.count() && p.count() == y.count() && x.count() == y.count());
  const LayoutPtr layout = common_layout(g, p, x);
  const void *const grad = g.read(ctx, layout), *const product = p.read(ctx, layout),
                    *const factor = x.read(ctx, layout);
  map_each(
      ctx, "product over a factor", type_of(layout), y.count(),
      [] __host__ __device__(std::int64_t, float slope, float all, float one) {
        return all / one * slope;
      },
      y.write(ctx, layout), grad, product, factor);
}

void maximum(Context& ctx, Tensors x, Tensor& y, Tensor& winner) {
  const LayoutPtr layout = layout_of(x);
  const Inputs in(ctx, x, y, layout);
  CHECK(in.count >= 2 && winner.count() == y.count());
  void *const out = y.write(ctx, layout), *const best = winner.write(ctx, layout);
  map_each(
      ctx, "maximum", in.type, y.count(),
      [=] __host__ __device__(std::int64_t i, float a, float b) {
        const bool first = a > b;
        float largest = first ? a : b;
        int index = first ? 0 : 1;  // 16 bits hold each up to kMost
        for (int k = 2; k < in.count; ++k)
          if (const float one = in.at(k, i); one > largest) {
            largest = one;
            index = k;
          }
        return TwoFloats{largest, static_cast<float>(index)};
      },
      TwoTargets<void>{out, best}, in.data[0], in.data[1]);
}

void take_where(Context& ctx, const Tensor& winner, int index, const Tensor& g, Tensor& y) {
  CHECK(winner.count() == y.count() && g.count() == y.count());
  const LayoutPtr layout = common_layout(winner, g);
  const void *const best = winner.read(ctx, layout), *const grad = g.read(ctx, layout);
  const float want = static_cast<float>(index);
  map_each(
      ctx, "gradient of the winner", type_of(layout), y.count(),
      [=] __host__ __device__(std::int64_t, float won, float slope) {
        return won == want ? slope : 0.0f;
      },
      y.write(ctx, layout), best, grad);
}

}  // namespace shoal::ops::cuda
