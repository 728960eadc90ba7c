// Folds layers that scale and shift each channel into the convolution in front of them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "shoal/layers/layer.h"

namespace shoal {

// The weight and the bias with which a convolution makes what layers behind it would make of its
// result y. Each of these layers makes y[k] factor[k] + shift[k] of channel k: BatchNorm with
// running statistics,
//   factor[k] = 1 / sqrt(variance[k] + eps)   shift[k] = -mean[k] factor[k]
// or Scale with params of its own. With the factor and shift of all of them in a row,
//   weight()[k] = w[k] factor[k]   bias()[k] = b[k] factor[k] + shift[k]
// worked out in double on the host.
class FoldedWeights {
 public:
  // Adds the layer behind those that were added before; it lives as long as this. False: it does
  // something else, or to something else than `outputs` channels on axis 1.
  bool add(const Layer& next, std::int64_t outputs);
  bool empty() const { return layers_.empty(); }
  // Makes weight() and bias() anew if w, b or a param of the layers has changed since they were
  // made, or is another tensor now. b may be null: zeros.
  void update(const Tensor& w, const Tensor* b);
  // Frees the memory of weight(), which is not read again before it is made anew.
  void drop_weight() { weight_.storage()->unbind(); }
  // The next update makes both anew.
  void forget() { made_of_.clear(); }
  const Tensor& weight() const { return weight_; }
  const Tensor& bias() const { return bias_; }

 private:
  // Numbers that were read, and which.
  struct Source {
    std::shared_ptr<const Storage> storage;
    std::uint64_t version = 0;
    bool operator==(const Source&) const = default;
  };
  std::vector<Source> sources(const Tensor& w, const Tensor* b) const;

  std::vector<const Layer*> layers_;
  Tensor weight_, bias_;
  std::vector<Source> made_of_;  // empty: not made yet
};

}  // namespace shoal
