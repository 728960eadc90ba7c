// Boxes of numbers moved between tensors, on a CUDA device.
#include "shoal/ops/slice.h"

#include "shoal/base/log.h"
#include "shoal/ops/cuda/channels_last.h"
#include "shoal/ops/cuda/elementary.h"
#include "shoal/ops/cuda/launch.h"

namespace shoal::ops::cuda {
namespace {

// Where the numbers of a box lie in the tensor round it. Axes that the box fills are one with the
// axis before them.
class Box {
 public:
  Box(const Shape& box, const Shape& whole, Offset offset) {
    CHECK(box.axes() == whole.axes() && offset.size() == box.dims().size())
        << "box " << box.str() << " in " << whole.str() << " at an offset of " << offset.size()
        << " axes";
    std::int64_t size = 1, stride = 1, step = 1;  // of the axes taken together so far; step: of one
    for (int i = box.axes() - 1; i >= 0; --i) {
      const std::int64_t at = offset[static_cast<std::size_t>(i)];
      CHECK(at >= 0 && at + box[i] <= whole[i])
          << "box " << box.str() << " in " << whole.str() << ": axis " << i << " at " << at;
      start_ += at * stride;
      if (size * step != stride) {
        axes_[count_++] = {Divisor(size), step};
        size = 1;
        step = stride;
      }
      size *= box[i];
      stride *= whole[i];
    }
    axes_[count_++] = {Divisor(size), step};
  }

  __host__ __device__ std::int64_t operator()(std::int64_t i) const {
    std::int64_t place = start_;
    for (int axis = 0; axis < count_ - 1; ++axis) {
      place += i % axes_[axis].size * axes_[axis].step;
      i = i / axes_[axis].size;
    }
    return place + i * axes_[count_ - 1].step;
  }

 private:
  struct Axis {
    Divisor size{1};
    std::int64_t step = 0;
  };
  Axis axes_[Shape::kMaxAxes + 1];  // innermost first
  int count_ = 0;
  std::int64_t start_ = 0;
};

// Whether the tensor has channels last, and the box all numbers of the whole but other channels: so
// that it is a box in that order, too.
bool is_of_channels(const Tensor& tensor, const Shape& box, const Shape& whole) {
  const ChannelsLast* const last = as_channels_last(tensor.layout());
  const Shape& shape = tensor.shape();
  if (last == nullptr || shape.axes() < 3 || shape.count() == 0 || last->channels != shape[1] ||
      shape.count() != shape[0] * last->channels * last->inner)
    return false;
  for (int axis = 0; axis < shape.axes(); ++axis)
    if (axis != 1 && box[axis] != whole[axis]) return false;
  return true;
}

// A box in the tensor round it, and the layouts of both.
struct Places {
  LayoutPtr box, whole;
  Box places;
};
Places places_of(const Tensor& box, const Tensor& whole, Offset offset) {
  const Shape &b = box.shape(), &w = whole.shape();
  const Box plain(b, w, offset);
  if (!is_of_channels(box, b, w) && !is_of_channels(whole, b, w)) return {nullptr, nullptr, plain};
  const std::int64_t images = w[0], inner = w.count() / (images * w[1]);
  const std::int64_t channels[] = {0, offset[1]};
  return {channels_last(b[1], inner), channels_last(w[1], inner),
          Box(Shape{images * inner, b[1]}, Shape{images * inner, w[1]}, channels)};
}

}  // namespace

void cut(Context& ctx, const Tensor& x, Offset from, Tensor& y) {
  const Places at = places_of(y, x, from);
  const Box box = at.places;
  const float* const in = read(ctx, x, at.whole);
  float* const out = write(ctx, y, at.box);
  each(ctx, "cut", y.count(), [=] __host__ __device__(std::int64_t i) { out[i] = in[box(i)]; });
}

void add_cut(Context& ctx, const Tensor& x, Offset from, Tensor& y) {
  const Places at = places_of(y, x, from);
  const Box box = at.places;
  const float* const in = read(ctx, x, at.whole);
  float* const out = mut(ctx, y, at.box);
  each(ctx, "adding a cut", y.count(),
       [=] __host__ __device__(std::int64_t i) { out[i] += in[box(i)]; });
}

void paste(Context& ctx, const Tensor& x, Tensor& y, Offset to) {
  const Places at = places_of(x, y, to);
  const Box box = at.places;
  const float* const in = read(ctx, x, at.box);
  float* const out = mut(ctx, y, at.whole);
  each(ctx, "paste", x.count(), [=] __host__ __device__(std::int64_t i) { out[box(i)] = in[i]; });
}

}  // namespace shoal::ops::cuda
