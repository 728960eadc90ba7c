// Computes how the numbers of Scale and Bias lie along the axes of a blob.
#include "shoal/layers/broadcast_dims.h"

#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {

Shape spanned_axes(const LayerParameter& layer, const Shape& shape, int axis, int num_axes) {
  if (num_axes < -1)
    throw config_error(layer, "num_axes is ", num_axes,
                       "; it must be -1 (to the last axis), 0 (a single number) or more");
  if (num_axes == 0) return Shape();
  if (!shape.has_axis(axis))
    throw config_error(layer, "axis is ", axis, ", but the bottom's shape ", shape.str(), " has ",
                       shape.axes(), " axes");
  const int first = shape.canonical(axis);
  if (num_axes > shape.axes() - first)
    throw config_error(layer, "num_axes is ", num_axes, " from axis ", first,
                       " on, but the bottom's shape ", shape.str(), " has ", shape.axes(), " axes");
  const int last = num_axes == -1 ? shape.axes() : first + num_axes;
  return Shape(
      std::vector<std::int64_t>(shape.dims().begin() + first, shape.dims().begin() + last));
}

ops::BroadcastDims broadcast_dims(const LayerParameter& layer, const Blob& blob, int axis,
                                  const Shape& numbers, const std::string& name) {
  const Shape& shape = blob.shape();
  if (numbers.axes() == 0) return {.outer = 1, .dim = 1, .inner = shape.count()};
  const int first = shape.has_axis(axis) ? shape.canonical(axis) : shape.axes(),
            last = first + numbers.axes();
  bool fits = last <= shape.axes();
  for (int i = 0; fits && i < numbers.axes(); ++i) fits = numbers[i] == shape[first + i];
  if (!fits)
    throw config_error(layer, name, " has shape ", numbers.str(), ", which is not that of bottom '",
                       blob.name, "', ", shape.str(), ", from axis ", axis, " on");
  return {.outer = shape.count(0, first), .dim = numbers.count(), .inner = shape.count(last)};
}

bool is_by_channel(const ops::BroadcastDims& dims, const Shape& shape) {
  if (dims.dim == 1) return true;
  if (shape.axes() < 2 || dims.inner != shape.count(2)) return false;
  return dims.dim == shape[1] || dims.outer == 1;
}

}  // namespace shoal
