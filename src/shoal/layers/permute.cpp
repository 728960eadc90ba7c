// Permute layer, of the SSD fork: the axes of a blob in another order.
#include <algorithm>

#include "shoal/layers/permutation.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// Axis order[i] of the bottom is axis i of the top; axes that `order` does not name follow in their
// order. Throws ConfigError for an axis that is not there or is named twice.
class Permute final : public Permutation {
 public:
  using Permutation::Permutation;

  void reshape(Context&, Bottoms bottom, Tops top) override {
    const Shape& shape = bottom[0]->shape();
    std::vector<std::size_t> order;
    const auto add = [&](int axis) { order.push_back(static_cast<std::size_t>(axis)); };
    for (const std::uint32_t axis : param().permute_param().order()) {
      if (axis >= static_cast<std::uint32_t>(shape.axes()))
        throw config_error(param(), "order names axis ", axis, ", but the bottom's shape ",
                           shape.str(), " has the axes 0 to ", shape.axes() - 1);
      if (std::ranges::find(order, axis) != order.end())
        throw config_error(param(), "order names axis ", axis, " twice");
      add(static_cast<int>(axis));
    }
    for (int axis = 0; axis < shape.axes(); ++axis)
      if (std::ranges::find(order, static_cast<std::size_t>(axis)) == order.end()) add(axis);
    permute(shape.dims(), order);
    std::vector<std::int64_t> dims;
    for (const std::size_t axis : order) dims.push_back(shape.dims()[axis]);
    top[0]->reshape(Shape(dims));
  }
};

}  // namespace

std::unique_ptr<Layer> make_Permute(const LayerParameter& param) {
  return std::make_unique<Permute>(param);
}

}  // namespace shoal
