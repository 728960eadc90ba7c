// cuDNN's convolution.
#include <memory>

#include "shoal/ops/cuda/channels_last.h"
#include "shoal/ops/cuda/columns.h"
#include "shoal/ops/cuda/conv_algorithms.h"
#include "shoal/ops/cuda/elementary.h"
#include "shoal/ops/cuda/impls.h"
#include "shoal/ops/cuda/numbers.h"

namespace shoal::ops::cuda {
namespace {

class ConvCudnn final : public ConvKernel {
 public:
  ConvCudnn(const ConvDesc& desc, const Context& ctx)
      : desc_(desc),
        dnn_(dnn_functions(ctx)),
        algorithms_(conv_algorithms(desc, ctx)),
        conv_(dnn_, desc, algorithms_.channels_last) {
    if (!algorithms_.channels_last) return;
    in_ = channels_last(desc.channels, desc.in_count());
    out_ = channels_last(desc.outputs, desc.out_count());
    weights_ = channels_last(desc.channels / desc.groups, desc.taps());
  }

  KernelNeeds needs(const Context&) const override {
    return {.workspace = workspace_floats(), .input = in_, .output = out_};
  }

  void forward(Context& ctx, const Tensor& x, const Tensor& w, const Tensor* b,
               Tensor& y) override {
    const float *const in = read(ctx, x, in_), *const weight = read(ctx, w, weights_);
    const float* const bias = b == nullptr ? nullptr : read(ctx, *b);
    float* const out = write(ctx, y, out_);
    check(dnn_,
          conv_.forward(dnn_of(ctx), algorithms_[ConvPass::kForward], in, weight, workspace(ctx),
                        out),
          "convolving");
    // not by cuDNN's own ReLU, which makes a zero of a NaN
    finish(ctx, desc_, algorithms_.channels_last, bias, out);
  }

  void backward(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& dy, Tensor* dx,
                Tensor* dw, Tensor* db) override {
    const cudnnHandle_t handle = dnn_of(ctx);
    const float* const slope = read(ctx, dy, out_);
    if (db != nullptr) add_bias_gradient(ctx, desc_.outputs, desc_.out_count(), dy, *db);
    if (dw != nullptr)
      check(dnn_,
            conv_.backward_filter(handle, algorithms_[ConvPass::kFilter], read(ctx, x, in_), slope,
                                  workspace(ctx), mut(ctx, *dw, weights_)),
            "convolving backward to the weights");
    if (dx != nullptr)
      check(dnn_,
            conv_.backward_data(handle, algorithms_[ConvPass::kData], read(ctx, w, weights_), slope,
                                workspace(ctx), write(ctx, *dx, in_)),
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
  ConvAlgorithms algorithms_;
  DnnConv conv_;
  LayoutPtr in_, out_, weights_;  // of x, y, w and their gradients
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
