// SoftmaxWithLoss layer: the log loss of the softmax of the scores.
#include <algorithm>
#include <limits>
#include <vector>

#include "shoal/base/log.h"
#include "shoal/layers/softmax_loss.h"
#include "shoal/proto/config_error.h"

namespace shoal {
namespace {

// -ln of the softmax of the true class: SoftmaxLossLayer has the shapes. The probability is taken
// as FLT_MIN where it is smaller, in the loss only; the gradient is p - (1 at the label).
// With weight_by_label_freqs (SegNet's fork) both are times the weight of the label's class:
// class_weighting, or without it 1 over the batch's labels of that class. The divisor counts items,
// not weights. Throws ConfigError unless there is one weight a class.
class SoftmaxWithLoss final : public SoftmaxLossLayer {
 public:
  explicit SoftmaxWithLoss(const LayerParameter& layer)
      : SoftmaxLossLayer(layer, layer.softmax_param().axis()) {}

  void reshape(Context& ctx, Bottoms bottoms, Tops tops) override {
    SoftmaxLossLayer::reshape(ctx, bottoms, tops);
    const LossParameter& loss = param().loss_param();
    if (!loss.weight_by_label_freqs()) {
      if (loss.class_weighting_size() > 0)
        LOG(WARNING) << layer_place(param())
                     << ": class_weighting has no effect without weight_by_label_freqs: true";
      return;
    }
    if (loss.class_weighting_size() > 0 && loss.class_weighting_size() != desc().classes)
      throw config_error(param(), "class_weighting has ", loss.class_weighting_size(),
                         " weights; bottom '", bottoms[0]->name, "' of shape ",
                         bottoms[0]->shape().str(), " has ", desc().classes,
                         " classes, and each needs one");
    weights_.reshape({desc().classes, desc().classes});
    const std::span<float> matrix = weights_.host_out();
    std::ranges::fill(matrix, 0.0f);
    for (std::size_t c = 0; c < static_cast<std::size_t>(loss.class_weighting_size()); ++c)
      matrix[c * static_cast<std::size_t>(desc().classes) + c] =
          loss.class_weighting(static_cast<int>(c));
  }

 private:
  bool weighs() const { return param().loss_param().weight_by_label_freqs(); }

  // Weighs each class by 1 over its labels.
  void count_classes(const Tensor& labels) {
    const std::size_t classes = static_cast<std::size_t>(desc().classes);
    std::vector<float> counts(classes);
    for (const float label : labels.host())
      if (label >= 0 && label < static_cast<float>(classes))
        ++counts[static_cast<std::size_t>(label)];
    const std::span<float> matrix = weights_.host_out();
    std::ranges::fill(matrix, 0.0f);
    for (std::size_t c = 0; c < classes; ++c)
      if (counts[c] > 0) matrix[c * classes + c] = 1 / counts[c];
  }

  void put_loss(Context& ctx, const Tensor& probs, Bottoms bottoms, double divisor,
                Tensor& loss) override {
    const Tensor& labels = bottoms[1]->data;
    if (!weighs()) return ops::log_loss(ctx, desc(), probs, labels, kFloor, divisor, loss);
    if (param().loss_param().class_weighting_size() == 0) count_classes(labels);
    ops::infogain_loss(ctx, desc(), probs, labels, weights_, kFloor, divisor, loss);
  }
  void gradient(Context& ctx, const Tensor& probs, Bottoms bottoms, float scale,
                Tensor& dscores) override {
    const Tensor& labels = bottoms[1]->data;
    if (!weighs())
      return ops::softmax_log_loss_backward(ctx, desc(), probs, labels, scale, dscores);
    ops::softmax_infogain_loss_backward(ctx, desc(), probs, labels, weights_, scale, dscores);
  }

  static constexpr float kFloor = std::numeric_limits<float>::min();
  Tensor weights_;  // (C, C), zeros but on the diagonal
};

}  // namespace

std::unique_ptr<Layer> make_SoftmaxWithLossOHEM(const LayerParameter& param);

// With three tops it is that of R-FCN's first fork, which has the layer under BVLC's name.
std::unique_ptr<Layer> make_SoftmaxWithLoss(const LayerParameter& param) {
  if (param.top_size() == 3 && !param.loss_param().weight_by_label_freqs())
    return make_SoftmaxWithLossOHEM(param);
  return std::make_unique<SoftmaxWithLoss>(param);
}

}  // namespace shoal
