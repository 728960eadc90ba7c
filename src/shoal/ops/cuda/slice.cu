// Boxes of numbers moved between tensors, on a CUDA device.
#include "shoal/ops/slice.h"

#include <optional>

#include "shoal/base/log.h"
#include "shoal/ops/cuda/device_layout.h"
#include "shoal/ops/cuda/elementary.h"
#include "shoal/ops/cuda/elementwise.h"

namespace shoal::ops::cuda {
namespace {

// Finds the numbers of a box in the tensor round it. Axes that the box fills are one with the axis
// before them.
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

// Returns whether the tensor has channels last, and the box all numbers of the whole but other
// channels: so that it is a box in that order, too.
bool is_of_channels(const Tensor& tensor, const Shape& box, const Shape& whole) {
  const DeviceLayout* const last = as_channels_last(tensor.layout());
  const Shape& shape = tensor.shape();
  if (last == nullptr || shape.axes() < 3 || shape.count() == 0 || last->channels != shape[1] ||
      shape.count() != shape[0] * last->channels * last->inner)
    return false;
  for (int axis = 0; axis < shape.axes(); ++axis)
    if (axis != 1 && box[axis] != whole[axis]) return false;
  return true;
}

// A box in the tensor round it, and the layouts of both, of the type of the one that is read.
struct Places {
  LayoutPtr box, whole;
  ElementType type;
  Box places;
  // The places of packs of 16 bytes instead of numbers, if the box is made of such.
  std::optional<Box> packs;
};
Places places_of(const Tensor& box, const Tensor& whole, Offset offset, const Tensor& read) {
  const Shape &b = box.shape(), &w = whole.shape();
  const ElementType type = type_of(read.layout());
  const Box plain(b, w, offset);
  if (!is_of_channels(box, b, w) && !is_of_channels(whole, b, w))
    return {plain_order(type), plain_order(type), type, plain, std::nullopt};
  const std::int64_t images = w[0], inner = w.count() / (images * w[1]);
  const auto of_channels = [&](std::int64_t at_a_time) {
    const std::int64_t channels[] = {0, offset[1] / at_a_time};
    return Box(Shape{images * inner, b[1] / at_a_time}, Shape{images * inner, w[1] / at_a_time},
               channels);
  };
  Places places{channels_last(b[1], inner, type), channels_last(w[1], inner, type), type,
                of_channels(1), std::nullopt};
  const std::int64_t pack = 16 / static_cast<std::int64_t>(size_of(type));
  if (b[1] % pack == 0 && w[1] % pack == 0 && offset[1] % pack == 0)
    places.packs = of_channels(pack);
  return places;
}

template <class N>
void cut_out(Context& ctx, std::int64_t count, const Box& box, const N* in, N* out) {
  each(ctx, "cut", count, [=] __host__ __device__(std::int64_t i) { out[i] = in[box(i)]; });
}
template <class N>
void put_in(Context& ctx, std::int64_t count, const Box& box, const N* in, N* out) {
  each(ctx, "paste", count, [=] __host__ __device__(std::int64_t i) { out[box(i)] = in[i]; });
}
template <class N>
void add_cut_out(Context& ctx, std::int64_t count, const Box& box, const N* in, N* out) {
  each(ctx, "adding a cut", count, [=] __host__ __device__(std::int64_t i) {
    out[i] = number<N>(value(out[i]) + value(in[box(i)]));
  });
}

// Calls work(N(), n, box) for numbers of type N, or for packs, of which the box has n.
template <class Work>
void in_packs(const Places& at, std::int64_t count, const void* in, const void* out,
              const Work& work) {
  with_type(at.type, [&](auto one) {
    using Packed = Pack<decltype(one)>;
    if (at.packs && is_aligned(in) && is_aligned(out))
      work(Packed(), count / Packed::kSize, *at.packs);
    else
      work(one, count, at.places);
  });
}

}  // namespace

void cut(Context& ctx, const Tensor& x, Offset from, Tensor& y) {
  const Places at = places_of(y, x, from, x);
  const void* const in = x.read(ctx, at.whole);
  void* const out = y.write(ctx, at.box);
  in_packs(at, y.count(), in, out, [&](auto one, std::int64_t n, const Box& box) {
    cut_out(ctx, n, box, static_cast<const decltype(one)*>(in), static_cast<decltype(one)*>(out));
  });
}

void add_cut(Context& ctx, const Tensor& x, Offset from, Tensor& y) {
  const Places at = places_of(y, x, from, x);
  const void* const in = x.read(ctx, at.whole);
  void* const out = y.mut(ctx, at.box);
  with_type(at.type, [&](auto one) {
    add_cut_out(ctx, y.count(), at.places, static_cast<const decltype(one)*>(in),
                static_cast<decltype(one)*>(out));
  });
}

void paste(Context& ctx, const Tensor& x, Tensor& y, Offset to) {
  const Places at = places_of(x, y, to, x);
  const void* const in = x.read(ctx, at.box);
  void* const out = y.mut(ctx, at.whole);
  in_packs(at, x.count(), in, out, [&](auto one, std::int64_t n, const Box& box) {
    put_in(ctx, n, box, static_cast<const decltype(one)*>(in), static_cast<decltype(one)*>(out));
  });
}

}  // namespace shoal::ops::cuda
