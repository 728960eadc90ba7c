// Pooling, LRN, batch normalization and softmax against naive loops in double, as in ops_test.cpp,
// and corners by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "shoal/ops/normalize.h"
#include "shoal/ops/softmax.h"
#include "shoal/ops/window.h"
#include "support/ops.h"

namespace shoal::ops::ops_normalize_test {
namespace {

// The slope of loss(x) = sum of forward(x) * dy at x, by central differences.
Numbers slope(const std::function<Numbers(const Numbers&)>& forward, Numbers x, const Numbers& dy) {
  constexpr double kStep = 1e-4;
  Numbers result(x.size());
  const auto loss = [&] {
    const Numbers y = forward(x);
    double total = 0;
    for (std::size_t i = 0; i < y.size(); ++i) total += y[i] * dy[i];
    return total;
  };
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double middle = x[i];
    x[i] = middle + kStep;
    const double above = loss();
    x[i] = middle - kStep;
    result[i] = (above - loss()) / (2 * kStep);
    x[i] = middle;
  }
  return result;
}
constexpr std::int64_t kLoose = 25;  // times the tolerance, squared: for slopes by differences

std::int64_t size_of(const Numbers& numbers) { return static_cast<std::int64_t>(numbers.size()); }

// Numbers as floats hold them, so that float and double agree about which is larger.
Numbers rounded(Numbers numbers) {
  for (double& x : numbers) x = static_cast<float>(x);
  return numbers;
}

// ---- pooling ----

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
      // the last sees nothing
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

// ---- LRN ----

Numbers lrn_naively(const LrnDesc& d, const Numbers& x) {
  Numbers y = x;
  const std::int64_t places = d.height * d.width, reach = d.size / 2;
  for (std::int64_t n = 0; n < d.images; ++n)
    for (std::int64_t c = 0; c < d.channels; ++c)
      for (std::int64_t p = 0; p < places; ++p) {
        const auto at = [&](std::int64_t channel, std::int64_t place) {
          return (n * d.channels + channel) * places + place;
        };
        double squares = 0, s = 1;
        if (d.region == LrnDesc::Region::kAcross) {
          for (std::int64_t near = std::max<std::int64_t>(0, c - reach);
               near <= std::min(d.channels - 1, c + reach); ++near)
            squares += x[at(near, p)] * x[at(near, p)];
          s = d.k + double{d.alpha} / static_cast<double>(d.size) * squares;
        } else {
          for (std::int64_t h = p / d.width - reach; h <= p / d.width + reach; ++h)
            for (std::int64_t w = p % d.width - reach; w <= p % d.width + reach; ++w)
              if (h >= 0 && w >= 0 && h < d.height && w < d.width)
                squares += x[at(c, h * d.width + w)] * x[at(c, h * d.width + w)];
          s = 1 + double{d.alpha} / static_cast<double>(d.size * d.size) * squares;
        }
        y[at(c, p)] *= std::pow(s, -double{d.beta});
      }
  return y;
}

TEST(Lrn, IsTheFormulaAndItsSlope) {
  using Region = LrnDesc::Region;
  for (const LrnDesc& desc : {LrnDesc{Region::kAcross, 2, 7, 3, 4},
                              {Region::kAcross, 1, 2, 9, 8, 7, 0.7f, 0.75f, 2},
                              {Region::kAcross, 3, 5, 1, 1, 3, 2, 1},
                              {Region::kAcross, 2, 1, 2, 3, 1, 1, 0.5f},
                              {Region::kAcross, 1, 6, 2, 2, 5, 1.5f, 0.6f, 1.5f},
                              {Region::kWithin, 2, 2, 5, 4, 3, 0.5f},
                              {Region::kWithin, 1, 3, 2, 7, 5, 3, 0.5f, 9},
                              {Region::kWithin, 1, 1, 1, 1, 7, 1, 0.9f}}) {
    SCOPED_TRACE(str("region ", static_cast<int>(desc.region), " C ", desc.channels, " size ",
                     desc.size, " beta ", desc.beta));
    const std::int64_t count = desc.images * desc.channels * desc.height * desc.width;
    const Numbers x = draw(count, 1, -2, 2), dy = draw(count, 2);
    const auto forward = [&](const Numbers& numbers) { return lrn_naively(desc, numbers); };
    const Numbers y = forward(x), dx = slope(forward, x, dy);
    each_kernel<LrnDesc, LrnKernel>(
        cpu_backend().lrn, desc, [&](LrnKernel& kernel, Context& context) {
          Guarded gx(x), gdy(dy), gy = Guarded::poisoned(count), gdx = Guarded::poisoned(count);
          kernel.forward(context, *gx, *gy);
          gy.expect(y, "y");
          kernel.backward(context, *gx, *gdy, *gdx);
          gdx.expect(dx, "dx", kLoose);
        });
  }
}

TEST(Lrn, ManyPlacesOnManyThreads) {
  const LrnDesc desc{LrnDesc::Region::kAcross, 3, 20, 13, 17, 5, 0.3f};
  const Numbers x = draw(3 * 20 * 13 * 17, 1, -3, 3);
  each_kernel<LrnDesc, LrnKernel>(cpu_backend().lrn, desc,
                                  [&](LrnKernel& kernel, Context& context) {
                                    Guarded gx(x), y = Guarded::poisoned(size_of(x));
                                    kernel.forward(context, *gx, *y);
                                    y.expect(lrn_naively(desc, x), "y");
                                  });
}

// ---- batch normalization ----

struct Moments {
  Numbers mean, variance;
};

Moments moments(const BatchNormDesc& d, const Numbers& x) {
  Moments m{zeros(d.channels), zeros(d.channels)};
  const double count = static_cast<double>(d.images * d.inner);
  for (std::size_t i = 0; i < x.size(); ++i) m.mean[i / d.inner % d.channels] += x[i] / count;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i / d.inner % d.channels;
    m.variance[c] += (x[i] - m.mean[c]) * (x[i] - m.mean[c]) / count;
  }
  return m;
}

Numbers normalized(const BatchNormDesc& d, const Numbers& x, const Moments& m) {
  Numbers y = x;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i / d.inner % d.channels;
    y[i] = (x[i] - m.mean[c]) / std::sqrt(m.variance[c] + double{d.eps});
  }
  return y;
}

TEST(BatchNorm, IsTheFormulaAndItsSlope) {
  for (const BatchNormDesc& desc :
       {BatchNormDesc{4, 3, 20, 1e-5f}, {7, 5, 1, 1e-3f}, {1, 2, 33, 1e-5f}, {3, 1, 9, 0.1f}}) {
    SCOPED_TRACE(str("N ", desc.images, " C ", desc.channels, " S ", desc.inner));
    const Numbers x = rounded(draw(desc.images * desc.channels * desc.inner, 1, 2, 4)),
                  dy = draw(size_of(x), 2);
    const Moments batch = moments(desc, x),
                  global{draw(desc.channels, 3), draw(desc.channels, 4, 0.5f, 2)};
    const auto forward = [&](const Numbers& numbers) {
      return normalized(desc, numbers, moments(desc, numbers));
    };
    const Numbers y = forward(x), dx = slope(forward, x, dy),
                  global_y = normalized(desc, x, global);
    Numbers global_dx = normalized(desc, dy, {zeros(desc.channels), global.variance});
    each_kernel<BatchNormDesc, BatchNormKernel>(
        cpu_backend().batch_norm, desc, [&](BatchNormKernel& kernel, Context& context) {
          Guarded gx(x), gdy(dy), mean = Guarded::poisoned(desc.channels),
                                  variance = Guarded::poisoned(desc.channels);
          Guarded gy = Guarded::poisoned(size_of(x)), gdx = Guarded::poisoned(size_of(x)),
                  from_y = Guarded::poisoned(size_of(x));
          kernel.forward_batch(context, *gx, *mean, *variance, *gy);
          mean.expect(batch.mean, "mean"), variance.expect(batch.variance, "variance", 9),
              gy.expect(y, "y", 9);
          kernel.backward_batch(context, *gx, false, *mean, *variance, *gdy, *gdx);
          gdx.expect(dx, "dx", kLoose);
          kernel.backward_batch(context, *gy, true, *mean, *variance, *gdy, *from_y);
          from_y.expect(dx, "dx from y", kLoose);
          Guarded global_mean(global.mean), global_variance(global.variance), in_place(x),
              dy_in_place(dy);
          kernel.forward_global(context, *in_place, *global_mean, *global_variance, *in_place);
          in_place.expect(global_y, "global y in place", 9);
          kernel.backward_global(context, *global_variance, *dy_in_place, *dy_in_place);
          dy_in_place.expect(global_dx, "global dx in place");
        });
  }
}

TEST(BatchNorm, AFarMeanDoesNotDrownTheVariance) {
  const BatchNormDesc desc{8, 1, 500, 0};
  const Numbers x = rounded(draw(4000, 1, 9999, 10001));
  const Moments want = moments(desc, x);
  each_kernel<BatchNormDesc, BatchNormKernel>(
      cpu_backend().batch_norm, desc, [&](BatchNormKernel& kernel, Context& context) {
        Guarded gx(x), mean = Guarded::poisoned(1), variance = Guarded::poisoned(1),
                       y = Guarded::poisoned(4000);
        kernel.forward_batch(context, *gx, *mean, *variance, *y);
        variance.expect(want.variance, "variance", 25);
      });
}

// ---- softmax ----

Numbers softmax_naively(const SoftmaxDesc& d, const Numbers& x) {
  Numbers y = x;
  for (std::int64_t o = 0; o < d.outer; ++o)
    for (std::int64_t i = 0; i < d.inner; ++i) {
      double total = 0;
      const auto at = [&](std::int64_t c) { return (o * d.channels + c) * d.inner + i; };
      for (std::int64_t c = 0; c < d.channels; ++c) total += std::exp(x[at(c)]);
      for (std::int64_t c = 0; c < d.channels; ++c) y[at(c)] = std::exp(x[at(c)]) / total;
    }
  return y;
}

TEST(Softmax, IsTheFormulaAndItsSlope) {
  for (const SoftmaxDesc& desc : {SoftmaxDesc{3, 5, 1}, {2, 4, 77}, {1, 1, 3}, {64, 10, 1}}) {
    SCOPED_TRACE(str("outer ", desc.outer, " C ", desc.channels, " inner ", desc.inner));
    const Numbers x = draw(desc.outer * desc.channels * desc.inner, 1, -3, 3),
                  dy = draw(size_of(x), 2);
    const auto forward = [&](const Numbers& numbers) { return softmax_naively(desc, numbers); };
    const Numbers y = forward(x), dx = slope(forward, x, dy);
    each_kernel<SoftmaxDesc, SoftmaxKernel>(
        cpu_backend().softmax, desc, [&](SoftmaxKernel& kernel, Context& context) {
          Guarded gx(x), gdy(dy), gy = Guarded::poisoned(size_of(x)),
                                  gdx = Guarded::poisoned(size_of(x));
          kernel.forward(context, *gx, *gy);
          gy.expect(y, "y");
          kernel.backward(context, *gy, *gdy, *gdx);
          gdx.expect(dx, "dx", kLoose);
          kernel.forward(context, *gx, *gx);
          gx.expect(y, "y in place");
          kernel.backward(context, *gy, *gdy, *gdy);
          gdy.expect(dx, "dx in place", kLoose);
        });
  }
}

TEST(Softmax, LargeNumbersDoNotOverflow) {
  each_kernel<SoftmaxDesc, SoftmaxKernel>(
      cpu_backend().softmax, {1, 3, 1}, [&](SoftmaxKernel& kernel, Context& context) {
        Guarded x({1000, 1000, -1000}), y = Guarded::poisoned(3);
        kernel.forward(context, *x, *y);
        y.expect({0.5, 0.5, 0}, "y");
      });
}

}  // namespace
}  // namespace shoal::ops::ops_normalize_test
