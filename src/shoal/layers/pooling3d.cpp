// Pooling3D layer: the largest number, or the mean, of each window of height, width and time.
#include <algorithm>
#include <vector>

#include "shoal/layers/pool_method.h"
#include "shoal/layers/selected_kernel.h"
#include "shoal/ops/backend.h"
#include "shoal/ops/window.h"

namespace shoal {
namespace {

// MAX or AVE of boxes of kernel_depth x kernel_size x kernel_size.
//   bottom[0] (N, C, L, H, W)   top[0] (N, C, OL, OH, OW), OL = ceil((L - kernel_depth) /
//   temporal_stride) + 1, OH = ceil((H + 2 pad - kernel_size) / stride) + 1, and OW as OH
// Windows of each frame are pooled, then these along L, which is the same: a mean is over the box
// clipped to the padded frames. A tie goes to the first; C3D gives each the gradient. Throws
// ConfigError for a kernel that is missing or larger than the bottom, STOCHASTIC, and pad with MAX.
// Source: Pooling3DLayer of C3D's fork (Tran et al., "Learning spatiotemporal features with 3D
// convolutional networks", 2015).
class Pooling3D final : public Layer {
 public:
  using Layer::Layer;
  Reads reads() const override {
    return {.bottom_data = method_ != Method::kAverage && !training(), .top_data = false};
  }
  std::vector<ops::Choice> choices() const override { return frames_.choices(); }

  void setup(Context&, Bottoms, Tops) override {
    const PoolingParameter& pool = this->pool();
    if (pool.pool() == PoolingParameter::STOCHASTIC)
      throw config_error(param(), "pool: STOCHASTIC is for Pooling; here it is MAX or AVE");
    method_ = pool_method(pool.pool(), training());
    if (pool.kernel_size() == 0 || pool.kernel_depth() == 0)
      throw config_error(param(), "pooling_param needs kernel_size and kernel_depth, both above 0");
    if (pool.stride() == 0 || pool.temporal_stride() == 0)
      throw config_error(param(), "stride and temporal_stride must be 1 or more");
    const bool has_sides = pool.has_kernel_h() || pool.has_kernel_w() || pool.has_stride_h() ||
                           pool.has_stride_w() || pool.has_pad_h() || pool.has_pad_w();
    if (has_sides || pool.global_pooling() || pool.round_mode() != PoolingParameter::CEIL)
      throw config_error(param(),
                         "of the sizes, pooling_param takes kernel_size, kernel_depth, stride, "
                         "temporal_stride and pad here");
    if (pool.pad() > 0 && method_ == Method::kMax)
      throw config_error(param(), "pad is for pool: AVE; C3D's fork pads no other");
    if (pool.pad() >= pool.kernel_size())
      throw config_error(param(), "pad ", pool.pad(), " is not smaller than kernel_size, ",
                         pool.kernel_size(), ": a window could lie in padding only");
  }

  void reshape(Context& ctx, Bottoms bottoms, Tops tops) override {
    const Shape& bottom = bottoms[0]->shape();
    if (bottom.axes() != 5)
      throw config_error(param(), "the bottom must have 5 axes (N, C, L, H, W), not ",
                         bottom.str());
    const ops::WindowAxis time =
        window(bottom, 2, pool().kernel_depth(), pool().temporal_stride(), 0);
    const ops::WindowAxis height =
        window(bottom, 3, pool().kernel_size(), pool().stride(), pool().pad());
    const ops::WindowAxis width =
        window(bottom, 4, pool().kernel_size(), pool().stride(), pool().pad());
    const std::int64_t planes = bottom[0] * bottom[1], places = height.out * width.out;
    tops[0]->reshape({bottom[0], bottom[1], time.out, height.out, width.out});
    between_.reshape({planes, bottom[2], height.out, width.out});
    dbetween_.reshape(between_.shape());
    const std::string engine = engine_of(param(), pool().engine());
    frames_.select("pool", ops::backend(ctx).pool,
                   {.method = method_,
                    .planes = planes * bottom[2],
                    .height = height,
                    .width = width,
                    .keeps_winners = training()},
                   ctx, engine);
    times_.select("pool", ops::backend(ctx).pool,
                  {.method = method_,
                   .planes = planes,
                   .height = time,
                   .width = {.in = places, .out = places},
                   .keeps_winners = training()},
                  ctx, engine);
  }

  void forward(Context& ctx, Bottoms bottoms, Tops tops) override {
    frames_->forward(ctx, bottoms[0]->data, between_, nullptr, {});
    times_->forward(ctx, between_, tops[0]->data, nullptr, {});
  }
  void backward(Context& ctx, Tops tops, const std::vector<bool>& propagate,
                Bottoms bottoms) override {
    if (!propagate[0]) return;
    times_->backward(ctx, between_, tops[0]->grad, dbetween_);
    frames_->backward(ctx, bottoms[0]->data, dbetween_, bottoms[0]->grad);
  }

 private:
  using Method = ops::PoolDesc::Method;
  using Kernel = SelectedKernel<ops::PoolDesc, ops::PoolKernel>;
  const PoolingParameter& pool() const { return param().pooling_param(); }

  ops::WindowAxis window(const Shape& bottom, int axis, std::int64_t kernel, std::int64_t stride,
                         std::int64_t pad) const {
    const std::int64_t in = bottom[axis], room = in + 2 * pad - kernel;
    if (room < 0)
      throw config_error(param(), "kernel ", kernel, " is larger than the input on axis ", axis,
                         ", ", in, "; bottom: ", bottom.str());
    const std::int64_t out = room / stride + (room % stride != 0 ? 1 : 0) + 1;
    // A window that begins behind the plane sees nothing wherever it is.
    return {
        .in = in, .out = out, .kernel = kernel, .stride = std::min(stride, in + pad), .pad = pad};
  }

  Method method_ = Method::kMax;
  Kernel frames_, times_;
  Tensor between_, dbetween_;  // (N C, L, OH, OW): what the first makes for the second
};

}  // namespace

std::unique_ptr<Layer> make_Pooling3D(const LayerParameter& param) {
  return std::make_unique<Pooling3D>(param);
}

}  // namespace shoal
