// cuDNN's softmax.
#include <memory>

#include "shoal/ops/cuda/dnn.h"
#include "shoal/ops/cuda/impls.h"
#include "shoal/ops/cuda/numbers.h"

namespace shoal::ops::cuda {
namespace {

class SoftmaxCudnn final : public SoftmaxKernel {
 public:
  SoftmaxCudnn(const SoftmaxDesc& desc, const Context& ctx)
      : dnn_(dnn_functions(ctx)),
        numbers_(dnn_, std::vector{static_cast<int>(desc.outer), static_cast<int>(desc.channels),
                                   static_cast<int>(desc.inner), 1}) {}

  void forward(Context& ctx, const Tensor& x, Tensor& y) override {
    const float* const in = read(ctx, x);
    check(dnn_,
          dnn_.SoftmaxForward(dnn_of(ctx), CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL,
                              &kOne, numbers_, in, &kZero, numbers_, write(ctx, y)),
          "computing a softmax");
  }

  void backward(Context& ctx, const Tensor& y, const Tensor& dy, Tensor& dx) override {
    const float *const value = read(ctx, y), *const slope = read(ctx, dy);
    check(
        dnn_,
        dnn_.SoftmaxBackward(dnn_of(ctx), CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL, &kOne,
                             numbers_, value, numbers_, slope, &kZero, numbers_, write(ctx, dx)),
        "computing a softmax backward");
  }

 private:
  static constexpr float kOne = 1, kZero = 0;
  const Dnn& dnn_;
  TensorDescriptor numbers_;
};

Why supports_softmax(const SoftmaxDesc& desc, const Context& ctx) {
  if (Why why = no_dnn(ctx); !why.empty()) return why;
  return desc.outer * desc.channels * desc.inner == 0 ? "there are no numbers" : kYes;
}

}  // namespace

const SoftmaxImpl kSoftmaxCudnn{
    "cudnn", supports_softmax,
    [](const SoftmaxDesc& desc, Context& ctx) -> std::unique_ptr<SoftmaxKernel> {
      return std::make_unique<SoftmaxCudnn>(desc, ctx);
    }};

}  // namespace shoal::ops::cuda
