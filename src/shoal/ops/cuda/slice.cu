// Boxes of numbers moved between tensors, on a CUDA device.
#include "shoal/ops/slice.h"

#include "shoal/base/log.h"
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

}  // namespace

void cut(Context& ctx, const Tensor& x, Offset from, Tensor& y) {
  const Box box(y.shape(), x.shape(), from);
  const float* const in = read(ctx, x);
  float* const out = write(ctx, y);
  each(ctx, "cut", y.count(), [=] __host__ __device__(std::int64_t i) { out[i] = in[box(i)]; });
}

void add_cut(Context& ctx, const Tensor& x, Offset from, Tensor& y) {
  const Box box(y.shape(), x.shape(), from);
  const float* const in = read(ctx, x);
  float* const out = mut(ctx, y);
  each(ctx, "adding a cut", y.count(),
       [=] __host__ __device__(std::int64_t i) { out[i] += in[box(i)]; });
}

void paste(Context& ctx, const Tensor& x, Tensor& y, Offset to) {
  const Box box(x.shape(), y.shape(), to);
  const float* const in = read(ctx, x);
  float* const out = mut(ctx, y);
  each(ctx, "paste", x.count(), [=] __host__ __device__(std::int64_t i) { out[box(i)] = in[i]; });
}

}  // namespace shoal::ops::cuda
