// ArgMax layer: the indices, or values, of the largest numbers.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "shoal/layers/layer.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// The indices of the top_k largest numbers, largest first; of equal ones the larger index comes
// first, NaNs come last.
//   with axis      top[0] has the bottom's shape with top_k along `axis`: indices, or the numbers
//                  themselves (out_max_val)
//   without axis   bottom[0] (N, ...), over a whole item; top[0] (N, 1, top_k), or with out_max_val
//                  (N, 2, top_k): indices, then numbers; ones follow up to the bottom's axes
// Throws ConfigError unless 1 <= top_k <= the numbers to choose from. There is no gradient.
class ArgMax final : public Layer {
 public:
  using Layer::Layer;
  Propagates propagates(int) const override { return Propagates::kRefuses; }
  Reads reads() const override { return {.bottom_data = false, .top_data = false}; }
  Replays replays() const override { return {.forward = false}; }  // the host sorts

  void reshape(Context&, Bottoms bottoms, Tops tops) override {
    const Shape& shape = bottoms[0]->shape();
    const ArgMaxParameter& arg_max = param().argmax_param();
    if (shape.axes() == 0)
      throw config_error(param(), "bottom '", bottoms[0]->name,
                         "' is a single number; it needs a batch axis");
    const int axis = arg_max.has_axis() ? axis_of(shape, arg_max.axis(), "argmax_param.axis") : 0;
    choices_ = arg_max.has_axis() ? shape[axis] : shape.count(1);
    inner_ = arg_max.has_axis() ? shape.count(axis + 1) : 1;
    const std::int64_t top_k = arg_max.top_k();
    if (top_k < 1 || top_k > choices_)
      throw config_error(param(), "top_k is ", top_k, "; it must lie between 1 and the ", choices_,
                         " numbers to choose from (bottom '", bottoms[0]->name, "' of shape ",
                         shape.str(), ")");
    std::vector<std::int64_t> dims = shape.dims();
    if (arg_max.has_axis()) {
      dims[static_cast<std::size_t>(axis)] = top_k;
    } else {
      dims.assign(static_cast<std::size_t>(std::max(shape.axes(), 3)), 1);
      dims[0] = shape[0], dims[1] = arg_max.out_max_val() ? 2 : 1, dims[2] = top_k;
    }
    tops[0]->reshape(Shape(dims));
  }

  void forward(Context&, Bottoms bottoms, Tops tops) override {
    const ArgMaxParameter& arg_max = param().argmax_param();
    const std::int64_t top_k = arg_max.top_k(), items = bottoms[0]->data.count() / choices_;
    const bool indices = !arg_max.has_axis() || !arg_max.out_max_val(),
               numbers = arg_max.out_max_val();
    const std::int64_t planes = indices && numbers ? 2 : 1;
    const float* in = bottoms[0]->data.in();
    float* out = tops[0]->data.out();
    std::vector<std::int64_t> order(static_cast<std::size_t>(choices_));
    for (std::int64_t item = 0; item < items; ++item) {
      const float* from = in + item / inner_ * choices_ * inner_ + item % inner_;
      sort_best(from, top_k, order);
      float* to = out + item / inner_ * planes * top_k * inner_ + item % inner_;
      for (std::int64_t k = 0; k < top_k; ++k) {
        const std::int64_t best = order[static_cast<std::size_t>(k)];
        if (indices) to[k * inner_] = static_cast<float>(best);
        if (numbers) to[((planes - 1) * top_k + k) * inner_] = from[best * inner_];
      }
    }
  }

  void backward(Context&, Tops, const std::vector<bool>&, Bottoms) override {}

 private:
  void sort_best(const float* from, std::int64_t top_k, std::vector<std::int64_t>& order) const {
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + top_k, order.end(),
                      [from, inner = inner_](std::int64_t a, std::int64_t b) {
                        const float left = from[a * inner], right = from[b * inner];
                        if (std::isnan(left) != std::isnan(right)) return std::isnan(right);
                        return left > right || (!(left < right) && a > b);
                      });
  }

  std::int64_t choices_ = 1, inner_ = 1;  // numbers to choose from; how far apart they lie
};

}  // namespace

std::unique_ptr<Layer> make_ArgMax(const LayerParameter& param) {
  return std::make_unique<ArgMax>(param);
}

}  // namespace shoal
