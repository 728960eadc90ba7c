// CenterLoss layer, of caffe-face: pulls features to the centre of their class.
#include <vector>

#include "shoal/layers/class_labels.h"
#include "shoal/layers/loss.h"
#include "shoal/ops/broadcast.h"
#include "shoal/ops/loss.h"
#include "shoal/ops/rows.h"
#include "shoal/ops/vector.h"
#include "shoal/proto/config_error.h"

namespace shoal {
namespace {

// Half the sum of (feature - centre of its class)^2, divided by the batch.
//   bottom[0] (N, ...), the feature from center_loss_param.axis on   bottom[1] N labels
//   top[0] one number   param: centres (num_output, numbers of a feature)
// The features' gradient is that of the loss. A centre's is, whatever the loss's weight, the sum of
// (centre - feature) over the n items of its class over n + 1. Labels are read on the host. Throws
// ConfigError if shapes do not fit. Source: Wen et al., "A discriminative feature learning approach
// for deep face recognition", 2016, and its Caffe layer.
class CenterLoss final : public LossLayer {
 public:
  using LossLayer::LossLayer;

  void setup(Context& ctx, Bottoms bottoms, Tops) override {
    const CenterLossParameter& center = param().center_loss_param();
    if (center.num_output() < 1)
      throw config_error(param(), "num_output, the number of classes, must be given");
    const Shape& shape = bottoms[0]->shape();
    const int axis = axis_of(shape, center.axis(), "axis");
    add_param(ctx, {center.num_output(), shape.count(axis)}, center.center_filler());
  }
  void reshape(Context& ctx, Bottoms bottoms, Tops tops) override {
    LossLayer::reshape(ctx, bottoms, tops);
    const Shape &shape = bottoms[0]->shape(), &labels = bottoms[1]->shape();
    const Shape& centers = params()[0]->shape();
    const int axis = axis_of(shape, param().center_loss_param().axis(), "axis");
    items_ = shape.count(0, axis);
    if (axis == 0 || shape.count(axis) != centers[1] || labels.count() != items_)
      throw config_error(param(), "bottom '", bottoms[0]->name, "' of shape ", shape.str(),
                         " with ", centers[1], " numbers a feature and bottom '", bottoms[1]->name,
                         "' of shape ", labels.str(),
                         " do not fit: there must be one label for each feature");
    desc_ = {.outer = items_, .classes = centers[0], .inner = 1};
    Shape features{items_, centers[1]};
    distance_.reshape(features);
    pulls_.reshape(features);
    shares_.reshape({items_});
  }
  void forward(Context& ctx, Bottoms bottoms, Tops tops) override {
    if (!count_labels(ctx, desc_, *bottoms[0], *bottoms[1])) return;
    ops::take_rows(ctx, params()[0]->data, bottoms[1]->data, pulls_);
    ops::squared_distance(ctx, bottoms[0]->data, pulls_, 2 * static_cast<double>(items_),
                          tops[0]->data);
    ops::difference(ctx, 1, bottoms[0]->data, pulls_, distance_);
  }
  void backward(Context& ctx, Tops tops, const std::vector<bool>& propagate,
                Bottoms bottoms) override {
    if (param_propagates(0)) {
      share(bottoms[1]->data);
      const ops::BroadcastDims rows{.outer = 1, .dim = items_, .inner = params()[0]->shape()[1]};
      ops::scale_and_shift(ctx, rows, distance_, shares_, nullptr, pulls_);
      ops::add_rows(ctx, pulls_, bottoms[1]->data, params()[0]->grad);
    }
    if (!propagate[0]) return;
    ops::copy(ctx, distance_, bottoms[0]->grad);
    ops::scale(ctx, static_cast<float>(upstream(tops) / static_cast<double>(items_)),
               bottoms[0]->grad);
  }
  Replays replays() const override { return {.forward = false, .backward = false}; }

 private:
  // Sets each item's share of its centre's gradient: -1 / (1 + items of that class).
  void share(const Tensor& labels) {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(desc_.classes));
    const std::span<const float> of = labels.host();
    for (const float label : of) ++counts[static_cast<std::size_t>(label)];
    const std::span<float> out = shares_.host_out();
    for (std::size_t i = 0; i < of.size(); ++i)
      out[i] = -1 / (1 + static_cast<float>(counts[static_cast<std::size_t>(of[i])]));
  }

  std::int64_t items_ = 0;
  ops::ClassDesc desc_;
  Tensor distance_, pulls_;  // (N, numbers of a feature)
  Tensor shares_;            // (N)
};

}  // namespace

std::unique_ptr<Layer> make_CenterLoss(const LayerParameter& param) {
  return std::make_unique<CenterLoss>(param);
}

}  // namespace shoal
