// SPP layer: spatial pyramid pooling.
#include <vector>

#include "shoal/layers/pool_method.h"
#include "shoal/layers/selected_kernel.h"
#include "shoal/ops/backend.h"
#include "shoal/ops/slice.h"
#include "shoal/ops/vector.h"
#include "shoal/ops/window.h"

namespace shoal {
namespace {

// Spatial pyramid pooling: planes of any size made into a fixed number of bins.
//   bottom[0] (N, C, H, W)   top[0] (N, C * sum of 4^l over the levels l = 0 .. pyramid_height -
//   1); (N, C, 1, 1) for a single level
// Level l has 2^l bins a side: windows and strides of ceil(size / bins), padded by half of what is
// too much. backward overwrites bottom[0].grad with the sum over the levels. Throws ConfigError for
// planes too small for the last level. Source: He et al., "Spatial pyramid pooling in deep
// convolutional networks", 2014, as BVLC Caffe 1.0 lays the windows.
class Spp final : public Layer {
 public:
  using Layer::Layer;
  Reads reads() const override {
    return {.bottom_data = method() != ops::PoolDesc::Method::kAverage && !training(),
            .top_data = false};
  }
  Replays replays() const override {
    return {.forward = method() != ops::PoolDesc::Method::kSampled};
  }
  std::vector<ops::Choice> choices() const override { return levels_[0].pool.choices(); }

  void setup(Context&, Bottoms, Tops) override {
    const SPPParameter& spp = param().spp_param();
    if (spp.pyramid_height() < 1 || spp.pyramid_height() > 16)
      throw config_error(param(), "pyramid_height is ", spp.pyramid_height(),
                         "; it must be from 1 to 16");
    levels_ = std::vector<Level>(spp.pyramid_height());
  }

  void reshape(Context& ctx, Bottoms bottom, Tops top) override {
    const Shape& shape = bottom[0]->shape();
    if (shape.axes() != 4)
      throw config_error(param(), "the bottom must have 4 axes (N, C, H, W), not ", shape.str());
    std::int64_t numbers = 0, bins = 1;
    for (Level& level : levels_) {
      const ops::WindowAxis height = window(shape, 2, bins), width = window(shape, 3, bins);
      level.pool.select("pool", ops::backend(ctx).pool,
                        {.method = method(),
                         .planes = shape[0] * shape[1],
                         .height = height,
                         .width = width,
                         .keeps_winners = training()},
                        ctx, engine_of(param(), param().spp_param().engine()));
      level.start = numbers;
      level.part.reshape({shape[0], shape[1] * bins * bins});
      numbers += level.part.shape()[1];
      bins *= 2;
    }
    part_grad_.reshape(shape);
    top[0]->reshape(levels_.size() == 1 ? Shape{shape[0], shape[1], 1, 1}
                                        : Shape{shape[0], numbers});
  }

  void forward(Context& ctx, Bottoms bottom, Tops top) override {
    if (levels_.size() == 1) return forward(ctx, levels_[0], bottom[0]->data, top[0]->data);
    for (Level& level : levels_) {
      forward(ctx, level, bottom[0]->data, level.part);
      ops::paste(ctx, level.part, top[0]->data, ops::along(top[0]->shape(), 1, level.start));
    }
  }
  void backward(Context& ctx, Tops top, const std::vector<bool>& propagate,
                Bottoms bottom) override {
    if (!propagate[0]) return;
    if (levels_.size() == 1)
      return levels_[0].pool->backward(ctx, bottom[0]->data, top[0]->grad, bottom[0]->grad);
    for (Level& level : levels_) {
      const bool first = level.start == 0;
      ops::cut(ctx, top[0]->grad, ops::along(top[0]->shape(), 1, level.start), level.part);
      level.pool->backward(ctx, bottom[0]->data, level.part, first ? bottom[0]->grad : part_grad_);
      if (!first) ops::axpy(ctx, 1, part_grad_, bottom[0]->grad);
    }
  }

 private:
  struct Level {
    SelectedKernel<ops::PoolDesc, ops::PoolKernel> pool;
    std::int64_t start = 0;  // its first number in an item of the top
    Tensor part;             // (N, numbers of the level), or their gradients
  };
  void forward(Context& ctx, Level& level, const Tensor& bottom, Tensor& part) {
    level.pool->forward(ctx, bottom, part, nullptr, take_coins(ctx, method(), part.count()));
  }
  ops::PoolDesc::Method method() const {
    return pool_method(param().spp_param().pool(), training());
  }
  ops::WindowAxis window(const Shape& shape, int axis, std::int64_t bins) const {
    const std::int64_t in = shape[axis], kernel = (in + bins - 1) / bins,
                       pad = (kernel * bins - in + 1) / 2;
    if (pad >= kernel)
      throw config_error(param(), "the bottom's shape ", shape.str(), " is too small on axis ",
                         axis, " for ", bins, " bins; lower pyramid_height");
    return {.in = in, .out = bins, .kernel = kernel, .stride = kernel, .pad = pad};
  }
  std::vector<Level> levels_;
  Tensor part_grad_;  // what one level gives the bottom
};

}  // namespace

std::unique_ptr<Layer> make_SPP(const LayerParameter& param) {
  return std::make_unique<Spp>(param);
}

}  // namespace shoal
