// Im2col on a CUDA device.
#include <memory>

#include "shoal/ops/cuda/columns.h"
#include "shoal/ops/cuda/impls.h"
#include "shoal/ops/cuda/numbers.h"

namespace shoal::ops::cuda {
namespace {

// The channels of all images are taken for those of one, whose columns are y.
class Im2col final : public Im2colKernel {
 public:
  explicit Im2col(const ConvDesc& desc) : desc_(desc) {
    desc_.channels *= desc.images;
    desc_.images = 1;
  }
  void forward(Context& ctx, const Tensor& x, Tensor& y) override {
    const float* const in = read(ctx, x);
    to_columns(ctx, desc_, 1, in, write(ctx, y));
  }
  void backward(Context& ctx, const Tensor& dy, Tensor& dx) override {
    const float* const slope = read(ctx, dy);
    from_columns(ctx, desc_, 1, slope, write(ctx, dx));
  }

 private:
  ConvDesc desc_;
};

}  // namespace

const Im2colImpl kIm2col{"cuda", [](const ConvDesc&, const Context&) { return kYes; },
                         [](const ConvDesc& desc, Context&) -> std::unique_ptr<Im2colKernel> {
                           return std::make_unique<Im2col>(desc);
                         }};

}  // namespace shoal::ops::cuda
