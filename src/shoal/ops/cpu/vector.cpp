#include "shoal/ops/vector.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "shoal/base/log.h"
#include "shoal/ops/cpu/elementwise.h"
#include "shoal/ops/update.h"

namespace shoal::ops::cpu {
namespace {

void check_counts(const Tensor& x, const Tensor& y) {
  CHECK(x.count() == y.count()) << "shapes " << x.shape().str() << " and " << y.shape().str();
}

template <class F>
void for_each(Context& ctx, std::int64_t n, F f) {
  parallel_for(ctx.threads(), n, kElementGrain,
               [&](int, std::int64_t begin, std::int64_t end) { f(begin, end); });
}

}  // namespace

void copy(Context& ctx, const Tensor& x, Tensor& y) {
  check_counts(x, y);
  if (x.shares_with(y)) return;
  const Elements<1> of = elements(ctx, {&x}, y);
  with_type(of.type, [&](auto one) {
    using N = decltype(one);
    for_each(ctx, of.count, [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(numbers<N>(of.out) + begin, numbers<N>(of.in[0]) + begin,
                  static_cast<std::size_t>(end - begin) * sizeof(N));
    });
  });
}

void axpy(Context& ctx, float a, const Tensor& x, Tensor& y) {
  check_counts(x, y);
  const float* in = x.in();
  float* out = y.mut();
  for_each(ctx, y.count(), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) out[i] += a * in[i];
  });
}

void add(Context& ctx, const Tensor& x, const Tensor& z, Tensor& y) {
  check_counts(x, y);
  check_counts(z, y);
  const Elements<2> of = elements(ctx, {&x, &z}, y);
  with_type(of.type, [&](auto one) {
    using N = decltype(one);
    for_elements(
        ctx, of.count,
        [left = numbers<N>(of.in[0]), right = numbers<N>(of.in[1]), out = numbers<N>(of.out)](
            std::int64_t i) { out[i] = number<N>(value(left[i]) + value(right[i])); });
  });
}

void fill_all(Context& ctx, float value, std::span<Tensor* const> y) {
  for (Tensor* const one : y) {
    float* out = one->out();
    for_each(ctx, one->count(), [=](std::int64_t begin, std::int64_t end) {
      std::fill(out + begin, out + end, value);
    });
  }
}

void scale_all(Context& ctx, float a, std::span<Tensor* const> y) {
  for (Tensor* const one : y) {
    float* out = one->mut();
    for_each(ctx, one->count(), [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) out[i] *= a;
    });
  }
}

double asum(Context& ctx, Tensors x) {
  double sum = 0;
  for (const Tensor* one : x) {
    const float* in = one->in();
    sum += blocked_sum(ctx, one->count(), [=](std::int64_t i) { return std::fabs(double{in[i]}); });
  }
  return sum;
}

double sum_of_squares(Context& ctx, Tensors x) {
  double sum = 0;
  for (const Tensor* one : x) {
    const float* in = one->in();
    sum += blocked_sum(ctx, one->count(), [=](std::int64_t i) { return double{in[i]} * in[i]; });
  }
  return sum;
}

bool all_finite(Context& ctx, Tensors x) {
  std::atomic<bool> finite{true};
  for (const Tensor* one : x) {
    const float* in = one->in();
    for_each(ctx, one->count(), [&](std::int64_t begin, std::int64_t end) {
      if (!shoal::all_finite({in + begin, in + end})) finite = false;
    });
  }
  return finite;
}

void judge(Context& ctx, Tensors x, float clip, Tensor& verdict) {
  const double sum = clip < 0 ? !all_finite(ctx, x) : sum_of_squares(ctx, x);
  put_verdict(sum, clip, verdict.mut());
}

}  // namespace shoal::ops::cpu
