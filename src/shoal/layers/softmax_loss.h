// Base class of the losses with a softmax inside.
#pragma once

#include <memory>

#include "shoal/layers/class_labels.h"
#include "shoal/layers/loss.h"
#include "shoal/layers/selected_kernel.h"
#include "shoal/ops/softmax.h"

namespace shoal {

// A loss of p = softmax(bottom[0]) along an axis, and of labels.
//   bottom[0] scores, classes along the axis   bottom[1] labels, one an item; a subclass may have
//   more bottoms
//   top[0] one number   top[1], if asked for: p; its gradient is not looked at
// The sum over the items that are not ignored is divided as loss_param says, by their number
// (VALID) if it says nothing; BATCH_SIZE is the product of the axes before the classes. Throws
// ConfigError, which names both shapes, if they do not fit. A label that is no class and not
// ignored ends the pass.
class SoftmaxLossLayer : public LossLayer {
 public:
  SoftmaxLossLayer(const LayerParameter& layer, int axis);
  Arity arity() const override { return {.min_bottoms = 2, .max_bottoms = 2, .max_tops = 2}; }
  Reads reads() const override { return {.bottom_data = true, .top_data = two_tops_}; }
  Replays replays() const override;
  void reshape(Context& ctx, Bottoms bottoms, Tops tops) override;
  void forward(Context& ctx, Bottoms bottoms, Tops tops) final;
  void backward(Context& ctx, Tops tops, const std::vector<bool>& propagate, Bottoms bottoms) final;
  std::vector<ops::Choice> choices() const override { return softmax_.choices(); }

 protected:
  const ops::ClassDesc& desc() const { return desc_; }

 private:
  // The sum over all items over `divisor`, and scale times the sum's gradient with respect to the
  // scores.
  virtual void put_loss(Context& ctx, const Tensor& probs, Bottoms bottoms, double divisor,
                        Tensor& loss) = 0;
  virtual void gradient(Context& ctx, const Tensor& probs, Bottoms bottoms, float scale,
                        Tensor& dscores) = 0;
  Tensor& probs(Tops tops) { return two_tops_ ? tops[1]->data : probs_; }
  LossParameter::NormalizationMode mode() const;

  int axis_;
  bool two_tops_ = false;
  ops::ClassDesc desc_;
  bool warned_ = false;  // of labels that are no whole numbers
  SelectedKernel<ops::SoftmaxDesc, ops::SoftmaxKernel> softmax_;
  Tensor probs_;           // where there is no top for them
  double normalizer_ = 1;  // of the last forward
};

}  // namespace shoal
