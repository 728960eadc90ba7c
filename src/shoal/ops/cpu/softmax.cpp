#include <algorithm>
#include <cmath>
#include <cstdint>

#include "shoal/ops/cpu/impls.h"
#include "shoal/ops/cpu/parallel.h"

namespace shoal::ops::cpu {
namespace {

// Strips of inner places, all channels of each.
class Softmax final : public SoftmaxKernel {
 public:
  explicit Softmax(const SoftmaxDesc& desc) : desc_(desc) {}

  void forward(Context& ctx, const Tensor& x, Tensor& y) override {
    const float* in = x.in();
    float* out = y.out();
    each_strip(ctx, [&](std::int64_t first, std::int64_t width) {
      float most[kStrip], total[kStrip] = {};
      std::copy(in + first, in + first + width, most);
      each_channel(first, [&](std::int64_t at) {
        for (std::int64_t i = 0; i < width; ++i) most[i] = std::max(most[i], in[at + i]);
      });
      each_channel(first, [&](std::int64_t at) {
        for (std::int64_t i = 0; i < width; ++i)
          total[i] += out[at + i] = std::exp(in[at + i] - most[i]);
      });
      for (std::int64_t i = 0; i < width; ++i) total[i] = 1 / total[i];
      each_channel(first, [&](std::int64_t at) {
        for (std::int64_t i = 0; i < width; ++i) out[at + i] *= total[i];
      });
    });
  }

  void backward(Context& ctx, const Tensor& y, const Tensor& dy, Tensor& dx) override {
    const float *value = y.in(), *slope = dy.in();
    float* out = dx.out();
    each_strip(ctx, [&](std::int64_t first, std::int64_t width) {
      float dot[kStrip] = {};
      each_channel(first, [&](std::int64_t at) {
        for (std::int64_t i = 0; i < width; ++i) dot[i] += value[at + i] * slope[at + i];
      });
      each_channel(first, [&](std::int64_t at) {
        for (std::int64_t i = 0; i < width; ++i)
          out[at + i] = value[at + i] * (slope[at + i] - dot[i]);
      });
    });
  }

 private:
  template <class F>
  void each_strip(Context& ctx, F f) const {
    for_strips(ctx.threads(), desc_.outer, desc_.channels, desc_.inner,
               [&](int, std::int64_t first, std::int64_t width) { f(first, width); });
  }
  // Calls f(place) for the places of all channels, `first` being channel 0's.
  template <class F>
  void each_channel(std::int64_t first, F f) const {
    for (std::int64_t c = 0; c < desc_.channels; ++c) f(first + c * desc_.inner);
  }

  SoftmaxDesc desc_;
};

}  // namespace

const SoftmaxImpl kSoftmax{"plain", serves_all<SoftmaxDesc>,
                           make_kernel<Softmax, SoftmaxKernel, SoftmaxDesc>};

}  // namespace shoal::ops::cpu
