// Numbers moved to other places, on a CUDA device.
#include "shoal/ops/rearrange.h"

#include "shoal/base/log.h"
#include "shoal/ops/cuda/elementary.h"
#include "shoal/ops/cuda/launch.h"
#include "shoal/ops/interpolated_axis.h"

namespace shoal::ops::cuda {
namespace {

// Finds the number of x that goes to a place of y.
class Steps {
 public:
  Steps(Offset sizes, Offset steps) {
    for (std::size_t a = sizes.size(); a-- > 0;) {
      if (sizes[a] == 1) continue;
      axes_[count_++] = {Divisor(sizes[a]), steps[a]};
    }
  }
  __host__ __device__ std::int64_t operator()(std::int64_t i) const {
    std::int64_t place = 0;
    for (int a = 0; a < count_; ++a) {
      place += i % axes_[a].size * axes_[a].step;
      i = i / axes_[a].size;
    }
    return place;
  }

 private:
  struct Axis {
    Divisor size{1};
    std::int64_t step = 0;
  };
  Axis axes_[kMostSteps];  // innermost first
  int count_ = 0;
};

void check_planes(std::int64_t planes, const Tensor& x, const Tensor& mask, const Tensor& y) {
  CHECK(x.count() == mask.count() &&
        (planes == 0 || (x.count() % planes == 0 && y.count() % planes == 0)))
      << planes << " planes of " << x.shape().str() << ", " << mask.shape().str() << " and "
      << y.shape().str();
}

// Planes with places in them.
struct Planes {
  Divisor of_x;
  std::int64_t of_y;
  Planes(std::int64_t planes, const Tensor& x, const Tensor& y)
      : of_x(planes == 0 ? 1 : x.count() / planes), of_y(planes == 0 ? 0 : y.count() / planes) {}
  __host__ __device__ bool is_place(float number) const {
    return number >= 0 && number < static_cast<float>(of_y);
  }
  __host__ __device__ std::int64_t place(std::int64_t i, float number) const {
    return i / of_x * of_y + static_cast<std::int64_t>(number);
  }
};

// Raises a count to `number` where several threads do so.
__host__ __device__ inline void raise(int* count, int number) {
#ifdef __CUDA_ARCH__
  atomicMax(count, number);
#else
  if (*count < number) *count = number;
#endif
}

void check_axes(const InterpolatedAxis& height, const InterpolatedAxis& width, const Tensor& x,
                const Tensor& y) {
  const std::int64_t in = height.size * width.size, out = height.out * width.out;
  CHECK(in > 0 && out > 0 && x.count() % in == 0 && y.count() == x.count() / in * out)
      << x.shape().str() << " to " << y.shape().str();
}

}  // namespace

void rearrange(Context& ctx, const Tensor& x, Offset sizes, Offset steps, Tensor& y) {
  CHECK(sizes.size() == steps.size() && sizes.size() <= kMostSteps);
  std::int64_t count = 1, last = 0;
  for (std::size_t a = 0; a < sizes.size(); ++a) {
    count *= sizes[a];
    last += (sizes[a] - 1) * steps[a];
  }
  CHECK(count == y.count() && (count == 0 || last < x.count()))
      << count << " numbers, the last at " << last << ", from " << x.shape().str() << " to "
      << y.shape().str();
  const Steps from(sizes, steps);
  const float* const in = read(ctx, x);
  float* const out = write(ctx, y);
  each(ctx, "rearranged numbers", count,
       [=] __host__ __device__(std::int64_t i) { out[i] = in[from(i)]; });
}

void spread(Context& ctx, std::int64_t planes, const Tensor& x, const Tensor& mask, Tensor& y,
            Tensor& outside) {
  check_planes(planes, x, mask, y);
  const Planes of(planes, x, y);
  const float *const in = read(ctx, x), *const at = read(ctx, mask);
  float *const out = write(ctx, y), *const lost = write(ctx, outside);
  // Each place of y first holds, as an integer, 1 + the last number that goes there.
  int* const winner = reinterpret_cast<int*>(out);
  each(ctx, "places", y.count(), [=] __host__ __device__(std::int64_t i) { winner[i] = 0; });
  each(ctx, "places of numbers", x.count(), [=] __host__ __device__(std::int64_t i) {
    if (of.is_place(at[i])) raise(winner + of.place(i, at[i]), static_cast<int>(i) + 1);
  });
  each(ctx, "numbers at places", y.count(), [=] __host__ __device__(std::int64_t i) {
    const int from = winner[i];
    out[i] = from == 0 ? 0.0f : in[from - 1];
  });
  sum(
      ctx, "numbers without a place", x.count(),
      [=] __host__ __device__(std::int64_t i) { return of.is_place(at[i]) ? 0.0 : 1.0; },
      [=] __host__ __device__(double total) { lost[0] = static_cast<float>(total); });
}

void gather(Context& ctx, std::int64_t planes, const Tensor& g, const Tensor& mask, Tensor& gx) {
  check_planes(planes, gx, mask, g);
  const Planes of(planes, gx, g);
  const float *const in = read(ctx, g), *const at = read(ctx, mask);
  float* const out = write(ctx, gx);
  each(ctx, "numbers of places", gx.count(), [=] __host__ __device__(std::int64_t i) {
    out[i] = of.is_place(at[i]) ? in[of.place(i, at[i])] : 0.0f;
  });
}

void interpolate(Context& ctx, const InterpolatedAxis& height, const InterpolatedAxis& width,
                 const Tensor& x, Tensor& y) {
  check_axes(height, width, x, y);
  const AxisPlaces rows(height), columns(width);
  const Divisor by_width(width.out), by_height(height.out);
  const std::int64_t wide = width.size, small = height.size * width.size;
  const float* const in = read(ctx, x);
  float* const out = write(ctx, y);
  each(ctx, "interpolation", y.count(), [=] __host__ __device__(std::int64_t i) {
    const std::int64_t line = i / by_width;
    const AxisPlaces::Pair row = rows.pair(line % by_height), c = columns.pair(i % by_width);
    const float* const plane = in + line / by_height * small;
    const float *const above = plane + row.first * wide, *const below = plane + row.second * wide;
    out[i] = row.of_first * (c.of_first * above[c.first] + c.of_second * above[c.second]) +
             row.of_second * (c.of_first * below[c.first] + c.of_second * below[c.second]);
  });
}

void interpolate_backward(Context& ctx, const InterpolatedAxis& height,
                          const InterpolatedAxis& width, const Tensor& g, Tensor& gx) {
  check_axes(height, width, gx, g);
  const AxisPlaces rows(height), columns(width);
  const Divisor by_width(width.size), by_height(height.size);
  const std::int64_t wide = width.out, large = height.out * width.out;
  const float* const in = read(ctx, g);
  float* const out = write(ctx, gx);
  each(ctx, "interpolation's gradient", gx.count(), [=] __host__ __device__(std::int64_t i) {
    const std::int64_t line = i / by_width, row = line % by_height, column = i % by_width;
    const float* const plane = in + line / by_height * large;
    float total = 0;
    for (std::int64_t h = rows.begin(row); h < rows.end(row); ++h) {
      const float across = rows.weight(h, row);
      if (across == 0) continue;
      for (std::int64_t w = columns.begin(column); w < columns.end(column); ++w)
        total += across * columns.weight(w, column) * plane[h * wide + w];
    }
    out[i] = total;
  });
}

}  // namespace shoal::ops::cuda
