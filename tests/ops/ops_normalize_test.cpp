// LRN, batch normalization and softmax against naive loops in double, as in ops_test.cpp,
// and corners by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "shoal/ops/normalize.h"
#include "shoal/ops/softmax.h"
#include "support/ops.h"

namespace shoal::ops::ops_normalize_test {
namespace {

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
          kernel.forward_batch(context, *gx, *mean, *variance, {}, {}, *gy);
          mean.expect(batch.mean, "mean"), variance.expect(batch.variance, "variance", 9),
              gy.expect(y, "y", 9);
          kernel.backward_batch(context, {&*gx, false}, *mean, *variance, *gdy, {}, &*gdx);
          gdx.expect(dx, "dx", kLoose);
          kernel.backward_batch(context, {&*gy, true}, *mean, *variance, *gdy, {}, &*from_y);
          from_y.expect(dx, "dx from y", kLoose);
          Guarded global_mean(global.mean), global_variance(global.variance), in_place(x),
              dy_in_place(dy);
          kernel.forward_global(context, *in_place, *global_mean, *global_variance, {}, *in_place);
          in_place.expect(global_y, "global y in place", 9);
          kernel.backward_global(context, {}, *global_mean, *global_variance, *dy_in_place, {},
                                 &*dy_in_place);
          dy_in_place.expect(global_dx, "global dx in place");
        });
  }
}

// The same with a factor, a shift and a ReLU behind it.
TEST(BatchNorm, DoesWhatFollowsItToo) {
  for (const BatchNormDesc& desc :
       {BatchNormDesc{4, 3, 20, 1e-5f}, {7, 5, 1, 1e-3f}, {1, 1, 2100, 1e-5f}}) {
    SCOPED_TRACE(str("N ", desc.images, " C ", desc.channels, " S ", desc.inner));
    const Numbers x = rounded(draw(desc.images * desc.channels * desc.inner, 1, 2, 4)),
                  dy = draw(size_of(x), 2), factor = rounded(draw(desc.channels, 3)),
                  shift = rounded(draw(desc.channels, 4));
    const Moments batch = moments(desc, x);
    const Numbers n = normalized(desc, x, batch);
    Numbers y = n, before_relu = dy;
    const auto channel = [&](std::size_t i) {
      return i / static_cast<std::size_t>(desc.inner) % static_cast<std::size_t>(desc.channels);
    };
    for (std::size_t i = 0; i < y.size(); ++i) {
      y[i] = factor[channel(i)] * n[i] + shift[channel(i)];
      before_relu[i] = y[i] > 0 ? dy[i] : 0.25 * dy[i];
      y[i] = y[i] > 0 ? y[i] : 0.25 * y[i];
    }
    struct Gradients {
      Numbers factor, shift, x;
    };
    const auto gradients = [&](const Numbers& scaled_dy, bool global) {
      Gradients all{zeros(desc.channels), zeros(desc.channels), scaled_dy};
      for (std::size_t i = 0; i < n.size(); ++i) {
        all.factor[channel(i)] += scaled_dy[i] * n[i];
        all.shift[channel(i)] += scaled_dy[i];
        all.x[i] *= factor[channel(i)];
      }
      const auto normalize = [&](const Numbers& v) {
        return normalized(desc, v, moments(desc, v));
      };
      all.x = global ? normalized(desc, all.x, {zeros(desc.channels), batch.variance})
                     : slope(normalize, x, all.x);
      return all;
    };
    each_kernel<BatchNormDesc, BatchNormKernel>(
        cpu_backend().batch_norm, desc, [&](BatchNormKernel& kernel, Context& context) {
          Guarded gx(x), gdy(dy), gfactor(factor), gshift(shift);
          Guarded mean = Guarded::poisoned(desc.channels),
                  variance = Guarded::poisoned(desc.channels), kept = Guarded::poisoned(size_of(x)),
                  gdx = Guarded::poisoned(size_of(x));
          const AfterNorm after{&*gfactor, &*gshift, 0.25f, &*kept};
          Guarded sum_of_means(batch.mean), sum_of_variances(batch.variance), weight({2});
          const RunningSums running{&*sum_of_means, &*sum_of_variances, &*weight, 0.5f};
          kernel.forward_batch(context, *gx, *mean, *variance, running, after, *gx);
          Numbers means = batch.mean, variances = batch.variance;
          const auto m = static_cast<double>(desc.images * desc.inner);
          for (double& mean : means) mean *= 1.5;
          for (double& variance : variances) variance *= 0.5 + m / (m - 1);
          sum_of_means.expect(means, "running means", 9);
          sum_of_variances.expect(variances, "running variances", 9), weight.expect({2}, "weight");
          gx.expect(y, "y in place", 9), kept.expect(n, "n", 9);
          struct Case {
            bool global, relu;
          };
          for (const auto& [global, relu] : {Case{false, false}, {false, true}, {true, false}}) {
            SCOPED_TRACE(str("global ", global, " relu ", relu));
            const Gradients want = gradients(relu ? before_relu : dy, global);
            Guarded sums(want.factor), shifts = Guarded::poisoned(desc.channels);
            const AfterNormBackward backward{
                .factor = &*gfactor,
                .shift = &*gshift,
                .slope = relu ? std::optional<float>(0.25f) : std::nullopt,
                .g_factor = {&*sums, true},
                .g_shift = {&*shifts, false}};
            const auto call =
                global ? &BatchNormKernel::backward_global : &BatchNormKernel::backward_batch;
            (kernel.*call)(context, {&*kept, true}, *mean, *variance, *gdy, backward, &*gdx);
            gdx.expect(want.x, "dx", kLoose);
            (kernel.*call)(context, {&*kept, true}, *mean, *variance, *gdy, backward, nullptr);
            Numbers thrice = want.factor;
            for (double& sum : thrice) sum *= 3;
            sums.expect(thrice, "g_factor, added twice", kLoose);
            shifts.expect(want.shift, "g_shift", kLoose);
          }
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
        kernel.forward_batch(context, *gx, *mean, *variance, {}, {}, *y);
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
