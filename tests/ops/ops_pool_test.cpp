// Pooling against naive loops in double, as in ops_test.cpp, and corners by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "shoal/ops/window.h"
#include "support/ops.h"

namespace shoal::ops::ops_pool_test {
namespace {

struct Pooled {
  Numbers y, index, dx;
};

Pooled pool_naively(const PoolDesc& d, const Numbers& x, const Numbers& dy) {
  const std::int64_t in = d.height.in * d.width.in, out = d.height.out * d.width.out;
  Pooled want{zeros(d.planes * out), Numbers(static_cast<std::size_t>(d.planes * out), -1.0),
              zeros(d.planes * in)};
  for (std::int64_t p = 0; p < d.planes; ++p)
    for (std::int64_t o = 0; o < out; ++o) {
      const std::int64_t top = o / d.width.out * d.height.stride - d.height.pad,
                         left = o % d.width.out * d.width.stride - d.width.pad;
      std::vector<std::int64_t> seen;
      double area = 0;
      for (std::int64_t h = top; h < top + d.height.kernel; ++h)
        for (std::int64_t w = left; w < left + d.width.kernel; ++w) {
          if (h < d.height.in + d.height.pad && w < d.width.in + d.width.pad) ++area;
          if (h >= 0 && w >= 0 && h < d.height.in && w < d.width.in)
            seen.push_back(h * d.width.in + w);
        }
      if (seen.empty()) continue;
      double& y = want.y[p * out + o];
      if (d.method == PoolDesc::Method::kAverage) {
        for (const std::int64_t at : seen)
          y += x[p * in + at] / area, want.dx[p * in + at] += dy[p * out + o] / area;
        continue;
      }
      std::int64_t best = seen[0];
      for (const std::int64_t at : seen)
        if (x[p * in + at] > x[p * in + best]) best = at;
      y = x[p * in + best];
      want.index[p * out + o] = static_cast<double>(best);
      want.dx[p * in + best] += dy[p * out + o];
    }
  return want;
}

// Rounds up, and drops a last window that starts in the padding.
WindowAxis pool_axis(std::int64_t in, std::int64_t kernel, std::int64_t stride,
                     std::int64_t pad = 0) {
  WindowAxis a{in, (in + 2 * pad - kernel + stride - 1) / stride + 1, kernel, stride, pad};
  if (pad > 0 && (a.out - 1) * stride >= in + pad) --a.out;
  return a;
}

TEST(Pool, IsTheLargestOrTheMeanOfEachWindow) {
  const std::pair<WindowAxis, WindowAxis> shapes[] = {
      {pool_axis(1, 1, 1), pool_axis(1, 1, 1)},
      {pool_axis(8, 2, 2), pool_axis(6, 2, 2)},
      {pool_axis(32, 3, 2), pool_axis(31, 3, 2)},
      {pool_axis(7, 3, 1, 1), pool_axis(9, 3, 1, 1)},
      {pool_axis(7, 3, 2, 1), pool_axis(8, 3, 2, 1)},
      {pool_axis(7, 7, 1), pool_axis(5, 5, 1)},
      // The last window sees nothing.
      {pool_axis(5, 5, 3, 4), pool_axis(6, 4, 3, 3)},
      {pool_axis(10, 2, 3), pool_axis(13, 2, 5)},
      {pool_axis(9, 4, 3), pool_axis(4, 1, 2)},
      {pool_axis(110, 3, 2), pool_axis(151, 3, 2)},
  };
  for (const auto& [height, width] : shapes)
    for (const PoolDesc::Method method : {PoolDesc::Method::kMax, PoolDesc::Method::kAverage})
      for (const bool keeps : {false, true}) {
        const PoolDesc desc{method, 5, height, width, keeps};
        SCOPED_TRACE(str(height.in, "x", width.in, " kernel ", height.kernel, "x", width.kernel,
                         " method ", static_cast<int>(method), " keeps ", keeps));
        Numbers x = rounded(draw(5 * height.in * width.in, 1));
        for (double& number : x) number = std::round(number * 8) / 8;  // with ties
        const Numbers dy = draw(5 * height.out * width.out, 2);
        const Pooled want = pool_naively(desc, x, dy);
        each_kernel<PoolDesc, PoolKernel>(
            cpu_backend().pool, desc, [&](PoolKernel& kernel, Context& context) {
              Guarded gx(x), gdy(dy), y = Guarded::poisoned(size_of(want.y)),
                                      dx = Guarded::poisoned(size_of(x));
              Guarded index = Guarded::poisoned(size_of(want.y)),
                      poison = Guarded::poisoned(size_of(x));
              const bool max = method == PoolDesc::Method::kMax;
              if (max) {
                kernel.forward(context, *gx, *y, index.get(), {});
                index.expect(want.index, "index");
                y.expect(want.y, "y with an index");
              }
              kernel.forward(context, *gx, *y, nullptr, {});
              y.expect(want.y, "y");
              kernel.backward(context, max && !keeps ? *gx : *poison, *gdy, *dx);
              dx.expect(want.dx, "dx", 9);
            });
      }
}

TEST(Pool, AnAverageDividesByTheWindowClippedToThePaddedPlane) {
  // One row 1 2 3, kernel 2, stride 2, pad 1: windows (pad 1) (2 3) and (pad, beyond) which is
  // dropped. Both of area 2.
  const PoolDesc desc{PoolDesc::Method::kAverage, 1, {}, pool_axis(3, 2, 2, 1), false};
  ASSERT_EQ(desc.width.out, 2);
  each_kernel<PoolDesc, PoolKernel>(cpu_backend().pool, desc,
                                    [&](PoolKernel& kernel, Context& context) {
                                      Guarded x({1, 2, 3}), y = Guarded::poisoned(2);
                                      kernel.forward(context, *x, *y, nullptr, {});
                                      y.expect({0.5, 2.5}, "y");
                                    });
  // Four numbers, kernel 3, stride 2, rounded up: the second window holds 2 numbers and divides by
  // 2, not by 3.
  const PoolDesc clipped{PoolDesc::Method::kAverage, 1, {}, pool_axis(4, 3, 2), false};
  ASSERT_EQ(clipped.width.out, 2);
  each_kernel<PoolDesc, PoolKernel>(cpu_backend().pool, clipped,
                                    [&](PoolKernel& kernel, Context& context) {
                                      Guarded x({1, 2, 3, 5}), y = Guarded::poisoned(2);
                                      kernel.forward(context, *x, *y, nullptr, {});
                                      y.expect({2, 4}, "y");
                                    });
}

}  // namespace
}  // namespace shoal::ops::ops_pool_test
