// cuDNN's convolution.
#include <memory>

#include "shoal/ops/cuda/columns.h"
#include "shoal/ops/cuda/conv_algorithms.h"
#include "shoal/ops/cuda/impls.h"
#include "shoal/ops/cuda/numbers.h"

namespace shoal::ops::cuda {
namespace {

class ConvCudnn final : public ConvKernel {
 public:
  ConvCudnn(const ConvDesc& desc, const Context& ctx)
      : desc_(desc),
        dnn_(dnn_functions(ctx)),
        conv_(dnn_, desc),
        algorithms_(conv_algorithms(desc, ctx)) {}

  KernelNeeds needs(const Context&) const override { return {.workspace = workspace_floats()}; }

  void forward(Context& ctx, const Tensor& x, const Tensor& w, const Tensor* b,
               Tensor& y) override {
    const float *const in = read(ctx, x), *const weight = read(ctx, w);
    const float* const bias = b == nullptr ? nullptr : read(ctx, *b);
    float* const out = write(ctx, y);
    check(dnn_,
          conv_.forward(dnn_of(ctx), algorithms_[ConvPass::kForward], in, weight, workspace(ctx),
                        out),
          "convolving");
    // not by cuDNN's own ReLU, which makes a zero of a NaN
    finish(ctx, desc_, bias, out);
  }

  void backward(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& dy, Tensor* dx,
                Tensor* dw, Tensor* db) override {
    const cudnnHandle_t handle = dnn_of(ctx);
    const float* const slope = read(ctx, dy);
    if (db != nullptr)
      check(dnn_, conv_.backward_bias(handle, slope, mut(ctx, *db)), "summing a bias's gradient");
    if (dw != nullptr)
      check(dnn_,
            conv_.backward_filter(handle, algorithms_[ConvPass::kFilter], read(ctx, x), slope,
                                  workspace(ctx), mut(ctx, *dw)),
            "convolving backward to the weights");
    if (dx != nullptr)
      check(dnn_,
            conv_.backward_data(handle, algorithms_[ConvPass::kData], read(ctx, w), slope,
                                workspace(ctx), write(ctx, *dx)),
            "convolving backward to the data");
  }

 private:
  std::int64_t workspace_floats() const {
    return static_cast<std::int64_t>((algorithms_.workspace() + sizeof(float) - 1) / sizeof(float));
  }
  void* workspace(Context& ctx) const {
    return algorithms_.workspace() == 0 ? nullptr : ctx.scratch(workspace_floats()).data();
  }

  ConvDesc desc_;
  const Dnn& dnn_;
  DnnConv conv_;
  ConvAlgorithms algorithms_;
};

Why supports_conv(const ConvDesc& desc, const Context& ctx) {
  if (Why why = no_dnn(ctx); !why.empty()) return why;
  if (Why why = no_dnn_conv(desc); !why.empty()) return why;
  return conv_algorithms(desc, ctx).why;
}

}  // namespace

const ConvImpl kConvCudnn{"cudnn", supports_conv,
                          [](const ConvDesc& desc, Context& ctx) -> std::unique_ptr<ConvKernel> {
                            return std::make_unique<ConvCudnn>(desc, ctx);
                          }};

}  // namespace shoal::ops::cuda
