// Pooling layer: the largest number, the mean or a drawn number of each window.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "shoal/layers/pool_method.h"
#include "shoal/layers/selected_kernel.h"
#include "shoal/layers/window.h"
#include "shoal/ops/backend.h"
#include "shoal/ops/window.h"

namespace shoal {
namespace {

// The largest number (MAX), the mean (AVE) or a drawn number (STOCHASTIC) of each window of each
// plane.
//   bottom[0] (N, C, H, W)   top[0] (N, C, OH, OW), OH = ceil((H + 2 pad - kernel) / stride) + 1
//   (floor if round_mode says so), less one if there is padding and the last window would start at
//   H + pad or beyond.   top[1], if asked for: the place h * W + w of each largest number.
// A mean is over the window clipped to the padded plane. A tie goes to the first. STOCHASTIC draws
// a number with a chance in proportion to it in training, which is for bottoms without negative
// numbers (after a ReLU), and is the mean of such draws, sum x^2 / sum x, in tests. Source: Caffe's
// PoolingLayer; cuDNN rounds down.
class Pooling final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {.max_tops = 2}; }
  Reads reads() const override {
    return {.bottom_data = method_ != Method::kAverage && !training(), .top_data = false};
  }
  // Keeps no layout of a mask, whose numbers are indices.
  KeepsLayout keeps_layout() const override {
    return {.data = param().top_size() == 1, .grad = true};
  }
  Replays replays() const override { return {.forward = method_ != Method::kSampled}; }
  std::vector<ops::Choice> choices() const override { return op_.choices(); }

  void setup(Context&, Bottoms bottoms, Tops tops) override {
    const PoolingParameter& pool = param().pooling_param();
    method_ = pool_method(pool.pool(), training());
    if (tops.size() > 1 && method_ != Method::kMax)
      throw config_error(
          param(),
          "a second top holds the places of the largest numbers, which only pool: MAX has");
    if (bottoms[0]->shape().axes() != 4)
      throw config_error(param(), "the bottom must have 4 axes (N, C, H, W), not ",
                         bottoms[0]->shape().str());
    const bool has_kernel = pool.has_kernel_size() || pool.has_kernel_h() || pool.has_kernel_w();
    if (pool.global_pooling() == has_kernel)
      throw config_error(
          param(), has_kernel
                       ? "global_pooling: the kernel is the whole plane, so give no kernel size"
                       : "pooling_param needs kernel_size, or kernel_h and kernel_w, or "
                         "global_pooling: true");
    const auto given = [](bool has, std::uint32_t value) { return has ? Given(value) : Given(); };
    height_ = read_axis('h', given(pool.has_kernel_h(), pool.kernel_h()),
                        given(pool.has_stride_h(), pool.stride_h()),
                        given(pool.has_pad_h(), pool.pad_h()));
    width_ = read_axis('w', given(pool.has_kernel_w(), pool.kernel_w()),
                       given(pool.has_stride_w(), pool.stride_w()),
                       given(pool.has_pad_w(), pool.pad_w()));
  }

  void reshape(Context& ctx, Bottoms bottoms, Tops tops) override {
    const Shape& bottom = bottoms[0]->shape();
    if (bottom.axes() != 4)
      throw config_error(param(), "the bottom must have 4 axes (N, C, H, W), not ", bottom.str());
    slide(bottom, 2, height_);
    slide(bottom, 3, width_);
    check_padded(param(), bottom, std::array{height_, width_});
    for (Blob* top : tops) top->reshape({bottom[0], bottom[1], height_.out, width_.out});
    op_.select("pool", ops::backend(ctx).pool,
               {.method = method_,
                .planes = bottom[0] * bottom[1],
                .height = fitted(height_),
                .width = fitted(width_),
                .keeps_winners = training()},
               ctx, engine_of(param(), param().pooling_param().engine()));
  }

  void forward(Context& ctx, Bottoms bottoms, Tops tops) override {
    op_->forward(ctx, bottoms[0]->data, tops[0]->data, tops.size() > 1 ? &tops[1]->data : nullptr,
                 take_coins(ctx, method_, tops[0]->data.count()));
  }

  // No gradient flows through top[1].
  void backward(Context& ctx, Tops tops, const std::vector<bool>& propagate,
                Bottoms bottoms) override {
    if (propagate[0]) op_->backward(ctx, bottoms[0]->data, tops[0]->grad, bottoms[0]->grad);
  }

 private:
  using Method = ops::PoolDesc::Method;
  using Given = std::optional<std::int64_t>;  // of kernel_h and its like

  ops::WindowAxis read_axis(char axis, Given kernel, Given stride, Given pad) const {
    const PoolingParameter& pool = param().pooling_param();
    const auto both = [&](const char* field, const char* general) {
      return config_error(param(), general, " and ", field, "_", axis,
                          " are both given; give one of them");
    };
    if (pool.has_kernel_size() && kernel) throw both("kernel", "kernel_size");
    if (pool.has_stride() && stride) throw both("stride", "stride");
    if (pool.has_pad() && pad) throw both("pad", "pad");
    const ops::WindowAxis result{.kernel = kernel.value_or(pool.kernel_size()),
                                 .stride = stride.value_or(pool.stride()),
                                 .pad = pad.value_or(pool.pad())};
    if (!pool.global_pooling() && result.kernel < 1)
      throw config_error(param(), "the kernel's size is 0 or missing on axis ", axis);
    if (result.stride < 1) throw config_error(param(), "stride is 0; it must be 1 or more");
    for (const auto& [field, value] :
         {std::pair("kernel", result.kernel), {"stride", result.stride}, {"pad", result.pad}})
      if (value > Shape::kMaxCount)
        throw config_error(param(), field, " is ", value, "; it must be at most ",
                           Shape::kMaxCount);
    if (pool.global_pooling() && (result.pad != 0 || result.stride != 1))
      throw config_error(param(), "global_pooling needs pad 0 and stride 1, not pad ", result.pad,
                         " and stride ", result.stride);
    if (!pool.global_pooling() && result.pad >= result.kernel)
      throw config_error(param(), "pad ", result.pad, " is not smaller than the kernel, ",
                         result.kernel, ": a window could lie in padding only");
    return result;
  }

  void slide(const Shape& bottom, int axis, ops::WindowAxis& window) const {
    const PoolingParameter& pool = param().pooling_param();
    window.in = bottom[axis];
    if (pool.global_pooling()) window.kernel = window.in;
    const std::int64_t room = window.in + 2 * window.pad - window.kernel;
    const bool up = pool.round_mode() == PoolingParameter::CEIL;
    // Caffe, too, allows one window that is cut off, if rounding up makes one.
    if (room < 0 && (!up || room <= -window.stride))
      throw config_error(
          param(), "kernel ", window.kernel, " is larger than the input on axis ", axis, ", ",
          window.in,
          window.pad > 0 ? str(" and ", window.in + 2 * window.pad, " with its padding") : "",
          "; bottom: ", bottom.str());
    window.out = (room + (up ? window.stride - 1 : 0)) / window.stride + 1;
    // If either axis is padded, both drop such a last window.
    const bool padded = height_.pad > 0 || width_.pad > 0;
    if (padded && (window.out - 1) * window.stride >= window.in + window.pad) --window.out;
  }

  // Returns the same windows in the smallest numbers: a kernel ends with the padding, and a window
  // that begins behind the plane sees nothing wherever it is.
  static ops::WindowAxis fitted(ops::WindowAxis window) {
    window.kernel = std::min(window.kernel, window.in + 2 * window.pad);
    window.stride = std::clamp<std::int64_t>(window.in + window.pad, 1, window.stride);
    return window;
  }

  Method method_ = Method::kMax;
  ops::WindowAxis height_, width_;
  SelectedKernel<ops::PoolDesc, ops::PoolKernel> op_;
};

}  // namespace

std::unique_ptr<Layer> make_Pooling(const LayerParameter& param) {
  return std::make_unique<Pooling>(param);
}

}  // namespace shoal
