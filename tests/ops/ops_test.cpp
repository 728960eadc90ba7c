// Products and convolutions against naive loops in double: every implementation on its list,
// several shapes, one to three threads, sentinels round every buffer, outputs poisoned with NaN
// before they are overwritten.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "shoal/ops/gemm.h"
#include "shoal/ops/window.h"
#include "support/ops.h"

namespace shoal::ops::ops_test {
namespace {

// ---- products ----

TEST(Gemm, IsTheSumOfProducts) {
  struct Case {
    std::int64_t m, n, k;
    float alpha, beta;
  };
  constexpr Case kCases[] = {{1, 1, 1, 1, 0},
                             {3, 5, 7, 2, 0},
                             {65, 3, 17, 1, 1},
                             {2, 130, 33, -1, 0.5f},
                             {200, 90, 50, 1, 0}};
  for (const auto [m, n, k, alpha, beta] : kCases)
    for (int transposed = 0; transposed < 4; ++transposed)
      for (int threads = 1; threads <= 3; ++threads) {
        SCOPED_TRACE(
            str("M ", m, " N ", n, " K ", k, " transposed ", transposed, " threads ", threads));
        const Numbers a = draw(m * k, 1), b = draw(k * n, 2), c = draw(m * n, 3);
        const bool ta = transposed & 1, tb = transposed & 2;
        Numbers want = zeros(m * n);
        for (std::int64_t i = 0; i < m; ++i)
          for (std::int64_t j = 0; j < n; ++j) {
            double total = 0;
            for (std::int64_t t = 0; t < k; ++t)
              total += a[ta ? t * m + i : i * k + t] * b[tb ? j * k + t : t * n + j];
            want[i * n + j] = alpha * total + beta * c[i * n + j];
          }
        Context context({.threads = threads});
        Guarded left(a), right(b), out = beta == 0 ? Guarded::poisoned(m * n) : Guarded(c);
        gemm(context, ta ? Trans::kYes : Trans::kNo, tb ? Trans::kYes : Trans::kNo, m, n, k, alpha,
             *left, *right, beta, *out);
        out.expect(want, "c", k);
      }
}

TEST(Dense, ForwardAndBackwardAreTheSumsTheySay) {
  for (const DenseDesc& desc : with_overwriting<DenseDesc>(
           {{1, 1, 1}, {4, 30, 10}, {3, 50, 70, true}, {1, 200, 300}, {64, 33, 17, true}})) {
    const auto [m, k, n, is_kn, overwrites_dw, relu] = desc;
    const Numbers x = draw(m * k, 1), w = draw(k * n, 2), b = draw(n, 3), dy = draw(m * n, 4),
                  db = draw(n, 6);
    const Numbers dw = overwrites_dw ? Numbers(w.size(), std::nan("")) : draw(k * n, 5);
    Numbers y = zeros(m * n), dx = zeros(m * k), dw_want = overwrites_dw ? zeros(k * n) : dw,
            db_want = db;
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        y[i * n + j] = b[j];
        db_want[j] += dy[i * n + j];
        for (std::int64_t t = 0; t < k; ++t) {
          const std::int64_t at = is_kn ? t * n + j : j * k + t;
          y[i * n + j] += x[i * k + t] * w[at];
          dx[i * k + t] += dy[i * n + j] * w[at];
          dw_want[at] += dy[i * n + j] * x[i * k + t];
        }
      }
    SCOPED_TRACE(str("M ", m, " K ", k, " N ", n, " stored K x N: ", is_kn));
    each_kernel<DenseDesc, DenseKernel>(
        cpu_backend().dense, desc, [&](DenseKernel& kernel, Context& context) {
          Guarded gx(x), gw(w), gb(b), gdy(dy), gy = Guarded::poisoned(m * n),
                                                gdx = Guarded::poisoned(m * k), gdw(dw), gdb(db);
          kernel.forward(context, *gx, *gw, gb.get(), *gy);
          gy.expect(y, "y", k);
          kernel.backward(context, *gx, *gw, *gdy, gdx.get(), gdw.get(), gdb.get());
          gdx.expect(dx, "dx", n), gdw.expect(dw_want, "dw", m), gdb.expect(db_want, "db", m);
          kernel.backward(context, *gx, *gw, *gdy, nullptr, nullptr, nullptr);
        });
  }
}

// ---- convolution ----

std::vector<ConvDesc> conv_cases() {
  std::vector<ConvDesc> cases{
      {1, 1, 1, 1, {axis(1, 1), axis(1, 1)}},
      {5, 3, 4, 1, {axis(7, 3, 1, 1), axis(6, 3, 1, 1)}},
      {2, 4, 6, 2, {axis(9, 3, 2, 1), axis(8, 5, 3, 2)}},
      {3, 6, 6, 6, {axis(8, 3, 1, 1), axis(9, 3, 1, 1)}},   // depthwise
      {2, 4, 12, 4, {axis(8, 3, 2, 1), axis(9, 3, 2, 1)}},  // with a multiplier
      {1, 8, 40, 1, {axis(13, 1), axis(17, 1)}},            // 1 x 1
      {4, 33, 19, 1, {axis(7, 1), axis(7, 1)}},
      {2, 8, 8, 2, {axis(9, 1, 2), axis(10, 1, 2)}},               // 1 x 1, stride 2
      {2, 8, 4, 1, {axis(6, 1, 1, 1), axis(5, 1, 1, 2)}},          // 1 x 1 with padding
      {2, 3, 5, 1, {axis(11, 3, 1, 2, 2), axis(12, 2, 2, 0, 3)}},  // dilated
      // The kernel is the image.
      {3, 2, 4, 1, {axis(4, 4), axis(5, 5)}},
      {2, 2, 3, 1, {axis(2, 5, 1, 4), axis(3, 5, 1, 4)}},  // mostly padding
      {2, 3, 8, 1, {axis(31, 11, 4), axis(27, 11, 4)}},
      {7, 20, 50, 1, {axis(12, 5), axis(12, 5)}},  // lenet's second
      {2, 16, 24, 1, {axis(40, 3, 1, 1), axis(37, 3, 1, 1)}},
      // Many channels with strides.
      {3, 16, 24, 1, {axis(9, 3, 2, 1), axis(11, 3, 2, 1)}},
      {2, 9, 17, 1, {axis(13, 5, 3, 2), axis(10, 4, 2, 1)}},
      {4, 32, 32, 2, {axis(8, 3, 1, 1), axis(7, 3, 1, 1)}},  // groups
      // Dilation with a stride.
      {3, 12, 9, 1, {axis(12, 3, 2, 2, 3), axis(14, 3, 1, 3, 2)}},
      // Strides skip places.
      {2, 10, 8, 1, {axis(9, 2, 4), axis(9, 3, 5, 1)}},
      // Several images are taken at a time.
      {5, 40, 33, 1, {axis(3, 3, 1, 1), axis(3, 3, 1, 1)}},
      // There are fewer images than threads.
      {1, 16, 48, 1, {axis(20, 3, 1, 1), axis(21, 3, 1, 1)}},
      {2, 16, 8, 1, {axis(40, 5, 2, 2)}},
      {2, 11, 9, 1, {axis(5, 3, 1, 1), axis(4, 2, 2), axis(6, 3, 2, 1)}},
      // There are more columns than are made at a time.
      {1, 64, 2, 1, {axis(40, 7, 1, 3), axis(41, 7, 1, 3)}},
      {3, 3, 5, 1, {axis(9, 3, 2, 1)}},                                   // one axis
      {2, 2, 4, 2, {axis(4, 3, 1, 1), axis(5, 2, 2), axis(4, 3, 1, 2)}},  // three axes
      {1, 2, 3, 1, {axis(3, 2), axis(4, 1), axis(3, 2, 1, 1), axis(2, 2, 2, 1, 2)}},
      // No axes: a matrix product.
      {2, 5, 3, 1, {}},
  };
  return with_overwriting(cases);
}

std::string describe(const ConvDesc& desc) {
  std::string text =
      str("N ", desc.images, " C ", desc.channels, " K ", desc.outputs, " G ", desc.groups);
  for (const WindowAxis& a : desc.axes)
    text += str(" | ", a.in, "->", a.out, " k", a.kernel, " s", a.stride, " p", a.pad, " d",
                a.dilation);
  return text;
}

// Calls f(input place or -1, output place, tap) for each output place and tap of one channel.
void each_tap(const ConvDesc& desc,
              const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& f) {
  for (std::int64_t o = 0; o < desc.out_count(); ++o)
    for (std::int64_t t = 0; t < desc.taps(); ++t) {
      std::int64_t place = 0, scale = 1, rest_o = o, rest_t = t;
      for (std::size_t i = desc.axes.size(); i-- > 0;) {
        const WindowAxis& a = desc.axes[i];
        const std::int64_t at = rest_o % a.out * a.stride - a.pad + rest_t % a.kernel * a.dilation;
        if (at < 0 || at >= a.in) place = -1;
        if (place >= 0) place += at * scale;
        scale *= a.in;
        rest_o /= a.out;
        rest_t /= a.kernel;
      }
      f(place, o, t);
    }
}

struct ConvNumbers {
  Numbers x, w, b, dy, dw, db, y, dx, dw_want, db_want;
  explicit ConvNumbers(const ConvDesc& d)
      : x(draw(d.images * d.channels * d.in_count(), 1)),
        w(draw(d.outputs * d.channels / d.groups * d.taps(), 2)),
        b(draw(d.outputs, 3)),
        dy(draw(d.images * d.outputs * d.out_count(), 4)),
        dw(draw(static_cast<std::int64_t>(w.size()), 5)),
        db(draw(d.outputs, 6)),
        y(dy.size()),
        dx(x.size()),
        dw_want(dw),
        db_want(db) {
    if (d.overwrites_dw) {
      std::ranges::fill(dw, std::nan(""));
      std::ranges::fill(dw_want, 0.0);
    }
    const std::int64_t channels = d.channels / d.groups, outputs = d.outputs / d.groups;
    for (std::int64_t n = 0; n < d.images; ++n)
      for (std::int64_t k = 0; k < d.outputs; ++k) {
        const std::int64_t out = (n * d.outputs + k) * d.out_count();
        for (std::int64_t o = 0; o < d.out_count(); ++o)
          y[out + o] = b[k], db_want[k] += dy[out + o];
        each_tap(d, [&](std::int64_t place, std::int64_t o, std::int64_t t) {
          for (std::int64_t c = 0; place >= 0 && c < channels; ++c) {
            const std::int64_t in =
                (n * d.channels + k / outputs * channels + c) * d.in_count() + place;
            const std::int64_t at = (k * channels + c) * d.taps() + t;
            y[out + o] += x[in] * w[at], dx[in] += dy[out + o] * w[at],
                dw_want[at] += dy[out + o] * x[in];
          }
        });
      }
  }
};

TEST(Conv, ForwardAndBackwardAreTheSumsTheySay) {
  for (const ConvDesc& desc : conv_cases()) {
    SCOPED_TRACE(describe(desc));
    const ConvNumbers want(desc);
    const auto count = [](const Numbers& numbers) {
      return static_cast<std::int64_t>(numbers.size());
    };
    const std::int64_t depth = desc.channels / desc.groups * desc.taps(),
                       sums = desc.images * desc.out_count();
    each_kernel<ConvDesc, ConvKernel>(
        cpu_backend().conv, desc, [&](ConvKernel& kernel, Context& context) {
          Guarded x(want.x), w(want.w), b(want.b), dy(want.dy), dw(want.dw), db(want.db);
          Guarded y = Guarded::poisoned(count(want.y)), dx = Guarded::poisoned(count(want.x)),
                  dx_alone = Guarded::poisoned(count(want.x));
          kernel.forward(context, *x, *w, b.get(), *y);
          y.expect(want.y, "y", depth);
          kernel.backward(context, *x, *w, *dy, dx.get(), dw.get(), db.get());
          dx.expect(want.dx, "dx", desc.outputs * desc.taps()), dw.expect(want.dw_want, "dw", sums),
              db.expect(want.db_want, "db", sums);
          Guarded dw_alone(want.dw), w_poison = Guarded::poisoned(count(want.w)),
                                     x_poison = Guarded::poisoned(count(want.x));
          kernel.backward(context, *x, *w_poison, *dy, nullptr, dw_alone.get(), nullptr);
          dw_alone.expect(want.dw_want, "dw alone", sums);
          kernel.backward(context, *x_poison, *w, *dy, dx_alone.get(), nullptr, nullptr);
          dx_alone.expect(want.dx, "dx alone", desc.outputs * desc.taps());
        });
  }
}

TEST(Im2col, EachColumnIsWhatTheWindowSees) {
  for (const ConvDesc& desc : conv_cases()) {
    SCOPED_TRACE(describe(desc));
    const std::int64_t planes = desc.images * desc.channels, in = desc.in_count(),
                       out = desc.taps() * desc.out_count();
    const Numbers x = draw(planes * in, 1), dy = draw(planes * out, 2);
    Numbers y(dy.size()), dx(x.size());
    each_tap(desc, [&](std::int64_t place, std::int64_t o, std::int64_t t) {
      for (std::int64_t p = 0; place >= 0 && p < planes; ++p) {
        const std::int64_t column = p * out + t * desc.out_count() + o;
        y[column] = x[p * in + place], dx[p * in + place] += dy[column];
      }
    });
    each_kernel<ConvDesc, Im2colKernel>(
        cpu_backend().im2col, desc, [&](Im2colKernel& kernel, Context& context) {
          Guarded gx(x), gdy(dy), gy = Guarded::poisoned(planes * out),
                                  gdx = Guarded::poisoned(planes * in);
          kernel.forward(context, *gx, *gy);
          gy.expect(y, "y");
          kernel.backward(context, *gdy, *gdx);
          gdx.expect(dx, "dx", desc.taps());
        });
  }
}

TEST(Conv, TheSameThreadsGiveTheSameBits) {
  const ConvDesc desc{5, 6, 8, 2, {axis(13, 3, 1, 1), axis(11, 3, 2, 1)}};
  const ConvNumbers numbers(desc);
  each_kernel<ConvDesc, ConvKernel>(
      cpu_backend().conv, desc, [&](ConvKernel& kernel, Context& context) {
        Guarded x(numbers.x), w(numbers.w), dy(numbers.dy), first(numbers.dw), second(numbers.dw);
        kernel.backward(context, *x, *w, *dy, nullptr, first.get(), nullptr);
        kernel.backward(context, *x, *w, *dy, nullptr, second.get(), nullptr);
        EXPECT_EQ(std::memcmp((*first).in(), (*second).in(), (*first).bytes()), 0);
      });
}

}  // namespace
}  // namespace shoal::ops::ops_test
