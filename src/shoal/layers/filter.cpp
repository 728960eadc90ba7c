// Filter layer: hands on the items of a batch that a selector names.
#include <algorithm>
#include <vector>

#include "shoal/layers/layer.h"
#include "shoal/ops/rows.h"
#include "shoal/ops/vector.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// Keeps those items of several blobs whose number in a selector is not 0, in order.
//   bottom[i] (N, A_i...), the last: the selector, N numbers: (N), (N, 1) ...
//   top[i] (M, A_i...), M = how many numbers of the selector are not 0 (NaN is not); until the
//   first pass, N
// Where one bottom needs a gradient, all tops count as if they did (as in Caffe): a loss of a top
// that holds labels says propagate_down: false for them.
// backward overwrites bottom[i].grad: an item that was not selected has none. Throws ConfigError
// if the selector has another shape, or not as many items as a bottom.
// Source: Caffe's FilterLayer, whose backward pass divides by 0 if M is 0.
class Filter final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override {
    return {.min_bottoms = 2, .max_bottoms = Arity::kAny, .max_tops = Arity::kAny};
  }
  Propagates propagates(int bottom) const override {
    const bool selects = bottom == param().bottom_size() - 1;
    return selects ? Propagates::kRefuses : Propagates::kYes;
  }
  Reads reads() const override { return {.bottom_data = false, .top_data = false}; }
  Replays replays() const override { return {.forward = false, .backward = false}; }
  bool sizes_tops() const override { return true; }

  void setup(Context&, Bottoms bottom, Tops top) override {
    if (top.size() != bottom.size() - 1)
      throw config_error(param(), "has ", bottom.size(), " bottoms and ", top.size(),
                         " tops; it makes one top of each bottom but the last, the selector");
  }
  void reshape(Context&, Bottoms bottom, Tops top) override {
    const Blob& selector = *bottom.back();
    const Shape& selects = selector.shape();
    if (selects.axes() == 0 || selects.count(1) != 1)
      throw config_error(param(), "bottom '", selector.name,
                         "', the selector, has one number for each item; its shape is ",
                         selects.str(), ", in which an axis after the first is not 1");
    for (std::size_t i = 0; i < top.size(); ++i) {
      const Shape& items = bottom[i]->shape();
      if (items.axes() == 0 || items[0] != selects[0])
        throw config_error(param(), "bottom '", bottom[i]->name, "' has shape ", items.str(),
                           "; the selector '", selector.name, "' has ", selects[0],
                           " numbers, one for each item on axis 0");
      top[i]->reshape(items);
    }
  }
  void size_tops(Context&, Bottoms bottom, Tops top) override {
    std::vector<float> selected;
    for (float item = 0; const float number : bottom.back()->data.host()) {
      if (number != 0) selected.push_back(item);
      ++item;
    }
    selected_.reshape({static_cast<std::int64_t>(selected.size())});
    std::ranges::copy(selected, selected_.host_out().begin());
    for (std::size_t i = 0; i < top.size(); ++i) {
      std::vector<std::int64_t> dims = bottom[i]->shape().dims();
      dims[0] = selected_.count();
      top[i]->reshape(Shape(dims));
    }
  }
  void forward(Context& ctx, Bottoms bottom, Tops top) override {
    for (std::size_t i = 0; i < top.size(); ++i)
      ops::take_rows(ctx, bottom[i]->data, selected_, top[i]->data);
  }
  void backward(Context& ctx, Tops top, const std::vector<bool>& propagate,
                Bottoms bottom) override {
    for (std::size_t i = 0; i < top.size(); ++i) {
      if (!propagate[i]) continue;
      ops::fill(ctx, 0, bottom[i]->grad);
      ops::add_rows(ctx, top[i]->grad, selected_, bottom[i]->grad);
    }
  }

 private:
  Tensor selected_;  // the numbers of the items of this pass
};

}  // namespace

std::unique_ptr<Layer> make_Filter(const LayerParameter& param) {
  return std::make_unique<Filter>(param);
}

}  // namespace shoal
