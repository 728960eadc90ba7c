#include "shoal/ops/rearrange.h"

#include <algorithm>
#include <array>

#include "shoal/base/log.h"
#include "shoal/ops/cpu/parallel.h"
#include "shoal/ops/interpolated_axis.h"

namespace shoal::ops::cpu {
namespace {

struct Steps {
  std::array<std::int64_t, kMostSteps> sizes{}, steps{};
  std::size_t axes = 0;
  // Returns where the first number of a row of the last axis is in x.
  std::int64_t start(std::int64_t row) const {
    std::int64_t at = 0;
    for (std::size_t a = axes - 1; a-- > 0; row /= sizes[a]) at += row % sizes[a] * steps[a];
    return at;
  }
};

// Axes whose numbers follow one another evenly become one.
Steps joined(Offset sizes, Offset steps) {
  Steps all;
  for (std::size_t a = 0; a < sizes.size(); ++a) {
    if (sizes[a] == 1) continue;
    if (all.axes > 0 && all.steps[all.axes - 1] == steps[a] * sizes[a]) {
      all.sizes[all.axes - 1] *= sizes[a];
      all.steps[all.axes - 1] = steps[a];
      continue;
    }
    all.sizes[all.axes] = sizes[a];
    all.steps[all.axes++] = steps[a];
  }
  if (all.axes == 0) all.sizes[all.axes++] = 1;
  return all;
}

void check_steps(const Tensor& x, Offset sizes, Offset steps, const Tensor& y) {
  CHECK(sizes.size() == steps.size() && sizes.size() <= kMostSteps);
  std::int64_t count = 1, last = 0;
  for (std::size_t a = 0; a < sizes.size(); ++a) {
    count *= sizes[a];
    last += (sizes[a] - 1) * steps[a];
  }
  CHECK(count == y.count() && (count == 0 || last < x.count()))
      << count << " numbers, the last at " << last << ", from " << x.shape().str() << " to "
      << y.shape().str();
}

struct Planes {
  std::int64_t of_x, of_y;  // numbers of a plane
};

Planes planes_of(std::int64_t planes, const Tensor& x, const Tensor& mask, const Tensor& y) {
  CHECK(x.count() == mask.count() &&
        (planes == 0 || (x.count() % planes == 0 && y.count() % planes == 0)))
      << planes << " planes of " << x.shape().str() << ", " << mask.shape().str() << " and "
      << y.shape().str();
  return {planes == 0 ? 0 : x.count() / planes, planes == 0 ? 0 : y.count() / planes};
}

bool is_place(float number, std::int64_t places) {
  return number >= 0 && number < static_cast<float>(places);
}

void check_axes(const InterpolatedAxis& height, const InterpolatedAxis& width, const Tensor& x,
                const Tensor& y) {
  const std::int64_t in = height.size * width.size, out = height.out * width.out;
  CHECK(in > 0 && out > 0 && x.count() % in == 0 && y.count() == x.count() / in * out)
      << x.shape().str() << " to " << y.shape().str();
}

}  // namespace

void rearrange(Context& ctx, const Tensor& x, Offset sizes, Offset steps, Tensor& y) {
  check_steps(x, sizes, steps, y);
  if (y.count() == 0) return;
  const Steps all = joined(sizes, steps);
  const std::int64_t length = all.sizes[all.axes - 1], step = all.steps[all.axes - 1];
  const float* in = x.in();
  float* out = y.out();
  parallel_for(ctx.threads(), y.count() / length, grain_of(length),
               [=, &all](int, std::int64_t begin, std::int64_t end) {
                 for (std::int64_t row = begin; row < end; ++row) {
                   const float* from = in + all.start(row);
                   float* to = out + row * length;
                   for (std::int64_t i = 0; i < length; ++i) to[i] = from[i * step];
                 }
               });
}

void spread(Context& ctx, std::int64_t planes, const Tensor& x, const Tensor& mask, Tensor& y,
            Tensor& outside) {
  const Planes size = planes_of(planes, x, mask, y);
  const float *in = x.in(), *at = mask.in();
  float* out = y.out();
  parallel_for(ctx.threads(), planes, grain_of(size.of_y),
               [=](int, std::int64_t begin, std::int64_t end) {
                 std::fill(out + begin * size.of_y, out + end * size.of_y, 0.0f);
                 for (std::int64_t i = begin * size.of_x; i < end * size.of_x; ++i)
                   if (is_place(at[i], size.of_y))
                     out[i / size.of_x * size.of_y + static_cast<std::int64_t>(at[i])] = in[i];
               });
  const auto lost =
      std::count_if(at, at + x.count(), [&](float number) { return !is_place(number, size.of_y); });
  outside.out()[0] = static_cast<float>(lost);
}

void gather(Context& ctx, std::int64_t planes, const Tensor& g, const Tensor& mask, Tensor& gx) {
  const Planes size = planes_of(planes, gx, mask, g);
  const float *in = g.in(), *at = mask.in();
  float* out = gx.out();
  parallel_for(ctx.threads(), gx.count(), kElementGrain,
               [=](int, std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i)
                   out[i] = is_place(at[i], size.of_y)
                                ? in[i / size.of_x * size.of_y + static_cast<std::int64_t>(at[i])]
                                : 0.0f;
               });
}

void interpolate(Context& ctx, const InterpolatedAxis& height, const InterpolatedAxis& width,
                 const Tensor& x, Tensor& y) {
  check_axes(height, width, x, y);
  const AxisPlaces rows(height), columns(width);
  const float* in = x.in();
  float* out = y.out();
  parallel_for(
      ctx.threads(), y.count() / width.out, grain_of(width.out),
      [=](int, std::int64_t begin, std::int64_t end) {
        for (std::int64_t line = begin; line < end; ++line) {
          const AxisPlaces::Pair row = rows.pair(line % height.out);
          const float* plane = in + line / height.out * height.size * width.size;
          const float *above = plane + row.first * width.size,
                      *below = plane + row.second * width.size;
          for (std::int64_t o = 0; o < width.out; ++o) {
            const AxisPlaces::Pair c = columns.pair(o);
            out[line * width.out + o] =
                row.of_first * (c.of_first * above[c.first] + c.of_second * above[c.second]) +
                row.of_second * (c.of_first * below[c.first] + c.of_second * below[c.second]);
          }
        }
      });
}

void interpolate_backward(Context& ctx, const InterpolatedAxis& height,
                          const InterpolatedAxis& width, const Tensor& g, Tensor& gx) {
  check_axes(height, width, gx, g);
  const AxisPlaces rows(height), columns(width);
  const float* in = g.in();
  float* out = gx.out();
  const std::int64_t small = height.size * width.size, large = height.out * width.out;
  parallel_for(ctx.threads(), gx.count() / small, grain_of(4 * large),
               [=](int, std::int64_t begin, std::int64_t end) {
                 std::fill(out + begin * small, out + end * small, 0.0f);
                 for (std::int64_t at = begin * large; at < end * large; ++at) {
                   const AxisPlaces::Pair row = rows.pair(at / width.out % height.out),
                                          column = columns.pair(at % width.out);
                   float* plane = out + at / large * small;
                   float *above = plane + row.first * width.size,
                         *below = plane + row.second * width.size;
                   above[column.first] += row.of_first * column.of_first * in[at];
                   above[column.second] += row.of_first * column.of_second * in[at];
                   below[column.first] += row.of_second * column.of_first * in[at];
                   below[column.second] += row.of_second * column.of_second * in[at];
                 }
               });
}

}  // namespace shoal::ops::cpu
