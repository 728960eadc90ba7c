// Reshape layer: the same numbers in another shape.
#include <span>
#include <vector>

#include "shoal/layers/layer.h"
#include "shoal/ops/vector.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// The same numbers in another shape.
//   bottom[0] (A..., B..., C...)   top[0] (A..., the prototxt's shape, C...), looking at the same
//   bytes; B is num_axes axes from `axis` on, an axis of -1 being the place after the last. A size
//   of 0 is the one at its place in B, -1 is what is left.
// Throws ConfigError for axes that are not there and counts that differ.
class Reshape final : public Layer {
 public:
  using Layer::Layer;
  Reads reads() const override { return {.bottom_data = false, .top_data = false}; }
  KeepsLayout keeps_layout() const override { return {.data = true, .grad = true}; }

  void reshape(Context&, Bottoms bottom, Tops top) override {
    const ReshapeParameter& reshape = param().reshape_param();
    const Shape& shape = bottom[0]->shape();
    const int axes = shape.axes(),
              first = reshape.axis() >= 0 ? reshape.axis() : axes + reshape.axis() + 1;
    if (first < 0 || first > axes)
      throw config_error(param(), "axis is ", reshape.axis(), ", but the bottom's shape ",
                         shape.str(), " has ", axes, " axes");
    if (reshape.num_axes() < -1 || reshape.num_axes() > axes - first)
      throw config_error(param(), "num_axes is ", reshape.num_axes(), " from axis ", first,
                         " on, but the bottom's shape ", shape.str(), " has ", axes, " axes");
    const int last = reshape.num_axes() == -1 ? axes : first + reshape.num_axes();
    std::vector<std::int64_t> dims(shape.dims().begin(), shape.dims().begin() + first);
    for (const std::int64_t dim : new_dims(shape, first, last)) dims.push_back(dim);
    dims.insert(dims.end(), shape.dims().begin() + last, shape.dims().end());
    top[0]->reshape(Shape(dims));
    top[0]->data.share(bottom[0]->data);
    top[0]->grad.share(bottom[0]->grad);
  }
  void forward(Context&, Bottoms, Tops) override {}
  void backward(Context& ctx, Tops top, const std::vector<bool>& propagate,
                Bottoms bottom) override {
    // There is nothing to do where they are the same bytes.
    if (propagate[0]) ops::copy(ctx, top[0]->grad, bottom[0]->grad);
  }

 private:
  static std::int64_t count_but_zeros(std::span<const std::int64_t> dims) {
    std::int64_t count = 1;
    for (const std::int64_t dim : dims) count *= dim == 0 ? 1 : dim;
    return count;
  }
  std::vector<std::int64_t> new_dims(const Shape& shape, int first, int last) const {
    const auto& wanted = param().reshape_param().shape().dim();
    std::vector<std::int64_t> dims;
    std::int64_t known = 1;
    int inferred = -1;
    for (int i = 0; i < wanted.size(); ++i) {
      std::int64_t dim = wanted.Get(i);
      if (dim < -1)
        throw config_error(param(), "shape has a size of ", dim,
                           "; 0 copies one, -1 takes what is left");
      if (dim == -1 && inferred != -1)
        throw config_error(param(), "shape has a size of -1 twice; only one can be what is left");
      if (dim == 0) {
        if (first + i >= shape.axes())
          throw config_error(param(), "shape copies axis ", first + i,
                             " (size 0), but the bottom's shape is ", shape.str());
        dim = shape[first + i];
      }
      if (dim == -1)
        inferred = i;
      else
        known *= dim;
      dims.push_back(dim);
    }
    std::int64_t count = shape.count(first, last);
    // Counts of 0 do not say what is left of a bottom without items.
    if (count == 0 && known == 0 && inferred >= 0) {
      count = count_but_zeros(std::span(shape.dims()).subspan(first, last - first));
      dims[static_cast<std::size_t>(inferred)] = 0;
      known = count_but_zeros(dims);
    }
    if (inferred >= 0 && known > 0 && count % known == 0)
      dims[static_cast<std::size_t>(inferred)] = count / known;
    else if (inferred >= 0 || known != count)
      throw config_error(param(), "the bottom's shape ", shape.str(), " has ", count,
                         " numbers from axis ", first, " to ", last - 1, "; the new shape has ",
                         inferred >= 0 ? "a multiple of " : "", known);
    return dims;
  }
};

}  // namespace

std::unique_ptr<Layer> make_Reshape(const LayerParameter& param) {
  return std::make_unique<Reshape>(param);
}

}  // namespace shoal
