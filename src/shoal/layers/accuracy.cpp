// Accuracy layer: the share of items whose true class is among the best scores.
#include <algorithm>
#include <cmath>
#include <limits>

#include "shoal/layers/class_labels.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// The share of items whose true class is among the top_k best: fewer than top_k other classes score
// as high or higher (a tie counts against the item, and so does a NaN). 0 if no item counts.
//   bottom[0] scores, classes along `axis`   bottom[1] labels, one an item   top[0] one number
//   top[1], if asked for: (C), the share for the items of each class; 0 for a class that none has
// Throws ConfigError, which names both shapes, if they do not fit. A label that is no class and not
// ignored ends the pass.
class Accuracy final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {.min_bottoms = 2, .max_bottoms = 2, .max_tops = 2}; }
  Propagates propagates(int) const override { return Propagates::kRefuses; }
  Reads reads() const override { return {.bottom_data = false, .top_data = false}; }
  Replays replays() const override { return {.forward = false}; }  // the host counts

  void reshape(Context&, Bottoms bottoms, Tops tops) override {
    const AccuracyParameter& accuracy = param().accuracy_param();
    const std::optional<int> ignore =
        accuracy.has_ignore_label() ? std::optional<int>(accuracy.ignore_label()) : std::nullopt;
    const int axis = axis_of(bottoms[0]->shape(), accuracy.axis(), "accuracy_param.axis");
    desc_ = class_desc(param(), *bottoms[0], axis, *bottoms[1], ignore);
    if (accuracy.top_k() < 1 || accuracy.top_k() > desc_.classes)
      throw config_error(param(), "top_k is ", accuracy.top_k(), "; it must lie between 1 and the ",
                         desc_.classes, " classes of '", bottoms[0]->name, "'");
    tops[0]->reshape(Shape());
    if (tops.size() > 1) tops[1]->reshape(Shape{desc_.classes});
  }

  void forward(Context& ctx, Bottoms bottoms, Tops tops) override {
    if (!count_labels(ctx, desc_, *bottoms[0], *bottoms[1], &warned_)) return;
    std::vector<std::int64_t> right(static_cast<std::size_t>(desc_.classes)), seen(right.size());
    const std::span<const float> labels = bottoms[1]->data.host(), scores = bottoms[0]->data.host();
    for (std::int64_t item = 0; item < desc_.items(); ++item) {
      const float label = std::trunc(labels[static_cast<std::size_t>(item)]);
      if (desc_.ignore && label == static_cast<float>(*desc_.ignore)) continue;
      const auto c = static_cast<std::size_t>(label);
      ++seen[c];
      right[c] += is_right(scores, item, c);
    }
    std::int64_t all_right = 0, all_seen = 0;
    for (std::size_t c = 0; c < seen.size(); ++c) {
      all_right += right[c];
      all_seen += seen[c];
      if (tops.size() > 1) tops[1]->data.host_out()[c] = share(right[c], seen[c]);
    }
    tops[0]->data.host_out()[0] = share(all_right, all_seen);
  }

  void backward(Context&, Tops, const std::vector<bool>&, Bottoms) override {}

 private:
  static float share(std::int64_t part, std::int64_t all) {
    return all == 0 ? 0.0f
                    : static_cast<float>(static_cast<double>(part) / static_cast<double>(all));
  }

  bool is_right(std::span<const float> scores, std::int64_t item, std::size_t label) const {
    const auto stride = static_cast<std::size_t>(desc_.inner),
               classes = static_cast<std::size_t>(desc_.classes);
    const std::size_t first = static_cast<std::size_t>(item / desc_.inner) * classes * stride +
                              static_cast<std::size_t>(item % desc_.inner);
    const float own = scores[first + label * stride];
    std::size_t as_good = 0;  // other classes
    for (std::size_t c = 0; c < classes; ++c)
      as_good += c != label && !(scores[first + c * stride] < own);
    return !std::isnan(own) && as_good < param().accuracy_param().top_k();
  }

  ops::ClassDesc desc_;
  bool warned_ = false;  // of labels that are no whole numbers
};

}  // namespace

std::unique_ptr<Layer> make_Accuracy(const LayerParameter& param) {
  return std::make_unique<Accuracy>(param);
}

}  // namespace shoal
