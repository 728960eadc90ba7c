// cuDNN's convolution.
#include <memory>

#include "shoal/ops/cuda/columns.h"
#include "shoal/ops/cuda/conv_algorithms.h"
#include "shoal/ops/cuda/device_layout.h"
#include "shoal/ops/cuda/elementary.h"
#include "shoal/ops/cuda/impls.h"
#include "shoal/ops/cuda/numbers.h"
#include "shoal/ops/cuda/short_floats.h"

namespace shoal::ops::cuda {
namespace {

class ConvCudnn final : public ConvKernel {
 public:
  ConvCudnn(const ConvDesc& desc, const Context& ctx)
      : desc_(desc),
        dnn_(dnn_functions(ctx)),
        algorithms_(conv_algorithms(desc, ctx)),
        conv_(dnn_, desc, algorithms_.channels_last, ctx.precision()),
        type_(input_type(ctx.precision())),
        w_count_(desc.outputs * desc.channels / desc.groups * desc.taps()) {
    const bool last = algorithms_.channels_last;
    in_ = last ? channels_last(desc.channels, desc.in_count(), type_) : plain_order(type_);
    out_ = last ? channels_last(desc.outputs, desc.out_count(), type_) : plain_order(type_);
    weights_ = last ? channels_last(desc.channels / desc.groups, desc.taps()) : nullptr;
  }

  KernelNeeds needs(const Context&) const override {
    const std::size_t room =
        is_short() ? workspace_end() + short_bytes(w_count_) : algorithms_.workspace();
    return {.workspace = floats_of(room), .input = in_, .output = out_};
  }

  void forward(Context& ctx, const Tensor& x, const Tensor& w, const Tensor* b,
               Tensor& y) override {
    const void* const in = x.read(ctx, in_);
    const float* const weight = read(ctx, w, weights_);
    const float* const bias = b == nullptr ? nullptr : read(ctx, *b);
    void* const out = y.write(ctx, out_);
    const Room at = room_in(ctx);
    check(dnn_,
          conv_.forward(dnn_of(ctx), algorithms_[ConvPass::kForward], in,
                        rounded(ctx, weight, at.w), at.workspace, out),
          "convolving");
    // cuDNN's own ReLU would make a zero of a NaN.
    finish(ctx, desc_, out_, bias, out);
  }

  void backward(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& dy, Tensor* dx,
                Tensor* dw, Tensor* db) override {
    const cudnnHandle_t handle = dnn_of(ctx);
    const void* const slope = dy.read(ctx, out_);
    if (db != nullptr) add_bias_gradient(ctx, desc_.outputs, desc_.out_count(), dy, *db);
    if (dx == nullptr && dw == nullptr) return;
    const void* const in = dw == nullptr ? nullptr : x.read(ctx, in_);
    const float* const weight = dx == nullptr ? nullptr : read(ctx, w, weights_);
    const bool adds = !desc_.overwrites_dw;
    float* const sum = dw == nullptr ? nullptr
                       : adds        ? mut(ctx, *dw, weights_)
                                     : write(ctx, *dw, weights_);
    void* const out = dx == nullptr ? nullptr : dx->write(ctx, in_);
    const Room at = room_in(ctx);
    if (sum != nullptr) {
      check(dnn_,
            conv_.backward_filter(handle, algorithms_[ConvPass::kFilter], in, slope, at.workspace,
                                  adds && !is_short(), is_short() ? at.w : sum),
            "convolving backward to the weights");
      if (is_short()) widen(ctx, type_, w_count_, at.w, sum, adds);
    }
    if (out != nullptr)
      check(dnn_,
            conv_.backward_data(handle, algorithms_[ConvPass::kData], rounded(ctx, weight, at.w),
                                slope, at.workspace, out),
            "convolving backward to the data");
  }

 private:
  // The memory in the context's scratch where a pass works; w: the weights or their gradient in 16
  // bits.
  struct Room {
    void *workspace = nullptr, *w = nullptr;
  };
  static std::int64_t floats_of(std::size_t bytes) {
    return static_cast<std::int64_t>((bytes + sizeof(float) - 1) / sizeof(float));
  }
  bool is_short() const { return type_ != ElementType::kFloat32; }
  std::size_t workspace_end() const { return (algorithms_.workspace() + 255) / 256 * 256; }
  Room room_in(Context& ctx) const {
    const std::int64_t room = needs(ctx).workspace;
    if (room == 0) return {};
    auto* const at = reinterpret_cast<std::byte*>(ctx.scratch(room).data());
    return {algorithms_.workspace() == 0 ? nullptr : at,
            is_short() ? at + workspace_end() : nullptr};
  }
  // Returns the weights as the library reads them.
  const void* rounded(Context& ctx, const float* weights, void* room) const {
    if (!is_short()) return weights;
    shorten(ctx, type_, w_count_, weights, room);
    return room;
  }

  ConvDesc desc_;
  const Dnn& dnn_;
  ConvAlgorithms algorithms_;
  DnnConv conv_;
  const ElementType type_;  // of x, y and their gradients, and of what the library takes for w
  const std::int64_t w_count_;
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
