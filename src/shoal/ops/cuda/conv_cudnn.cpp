// cuDNN's convolution.
#include <memory>

#include "shoal/ops/cuda/channels_last.h"
#include "shoal/ops/cuda/columns.h"
#include "shoal/ops/cuda/conv_algorithms.h"
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
        short_(takes_short(ctx.precision())),
        x_count_(desc.images * desc.channels * desc.in_count()),
        w_count_(desc.outputs * desc.channels / desc.groups * desc.taps()),
        y_count_(desc.images * desc.outputs * desc.out_count()) {
    if (!algorithms_.channels_last) return;
    in_ = channels_last(desc.channels, desc.in_count());
    out_ = channels_last(desc.outputs, desc.out_count());
    weights_ = channels_last(desc.channels / desc.groups, desc.taps());
  }

  KernelNeeds needs(const Context&) const override {
    return {.workspace = floats_of(room()), .input = in_, .output = out_};
  }

  void forward(Context& ctx, const Tensor& x, const Tensor& w, const Tensor* b,
               Tensor& y) override {
    const float *const in = read(ctx, x, in_), *const weight = read(ctx, w, weights_);
    const float* const bias = b == nullptr ? nullptr : read(ctx, *b);
    float* const out = write(ctx, y, out_);
    const Room at = room_in(ctx);
    check(
        dnn_,
        conv_.forward(dnn_of(ctx), algorithms_[ConvPass::kForward], input(ctx, x_count_, in, at.x),
                      input(ctx, w_count_, weight, at.w), at.workspace, output(out, at.y)),
        "convolving");
    put(ctx, y_count_, at.y, out, false);
    // not by cuDNN's own ReLU, which makes a zero of a NaN
    finish(ctx, desc_, algorithms_.channels_last, bias, out);
  }

  void backward(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& dy, Tensor* dx,
                Tensor* dw, Tensor* db) override {
    const cudnnHandle_t handle = dnn_of(ctx);
    const float* const slope = read(ctx, dy, out_);
    if (db != nullptr) add_bias_gradient(ctx, desc_.outputs, desc_.out_count(), dy, *db);
    if (dx == nullptr && dw == nullptr) return;
    const float* const in = dw == nullptr ? nullptr : read(ctx, x, in_);
    const float* const weight = dx == nullptr ? nullptr : read(ctx, w, weights_);
    float* const sum = dw == nullptr ? nullptr : mut(ctx, *dw, weights_);
    float* const out = dx == nullptr ? nullptr : write(ctx, *dx, in_);
    const Room at = room_in(ctx);
    const void* const above = input(ctx, y_count_, slope, at.y);
    if (sum != nullptr) {
      check(dnn_,
            conv_.backward_filter(handle, algorithms_[ConvPass::kFilter],
                                  input(ctx, x_count_, in, at.x), above, at.workspace,
                                  output(sum, at.w)),
            "convolving backward to the weights");
      put(ctx, w_count_, at.w, sum, true);
    }
    if (out != nullptr) {
      check(dnn_,
            conv_.backward_data(handle, algorithms_[ConvPass::kData],
                                input(ctx, w_count_, weight, at.w), above, at.workspace,
                                output(out, at.x)),
            "convolving backward to the data");
      put(ctx, x_count_, at.x, out, false);
    }
  }

 private:
  // Where a pass works, in the context's scratch; x, w and y only if they are of 16 bits there.
  struct Room {
    void *workspace, *x, *w, *y;
  };
  static std::int64_t floats_of(std::size_t bytes) {
    return static_cast<std::int64_t>((bytes + sizeof(float) - 1) / sizeof(float));
  }
  std::size_t room() const {
    return short_ ? (algorithms_.workspace() + 255) / 256 * 256 + short_bytes(x_count_) +
                        short_bytes(w_count_) + short_bytes(y_count_)
                  : algorithms_.workspace();
  }
  Room room_in(Context& ctx) const {
    if (room() == 0) return {};
    auto* const at = reinterpret_cast<std::byte*>(ctx.scratch(floats_of(room())).data());
    if (!short_) return {at, nullptr, nullptr, nullptr};
    std::byte *const x = at + (algorithms_.workspace() + 255) / 256 * 256, *const w =
                                                                               x + short_bytes(
                                                                                       x_count_);
    return {algorithms_.workspace() == 0 ? nullptr : at, x, w, w + short_bytes(w_count_)};
  }
  // The library reads input(), and writes to output(); put() brings that to where it belongs.
  const void* input(Context& ctx, std::int64_t count, const float* from, void* room) const {
    if (short_) shorten(ctx, count, from, room);
    return short_ ? room : from;
  }
  void* output(float* to, void* room) const { return short_ ? room : to; }
  void put(Context& ctx, std::int64_t count, const void* room, float* to, bool adds) const {
    if (short_) widen(ctx, count, room, to, adds);
  }

  ConvDesc desc_;
  const Dnn& dnn_;
  ConvAlgorithms algorithms_;
  DnnConv conv_;
  const bool short_;  // the library's operands are of 16 bits
  const std::int64_t x_count_, w_count_, y_count_;
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
