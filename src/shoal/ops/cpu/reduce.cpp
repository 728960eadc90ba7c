#include "shoal/ops/reduce.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "shoal/base/log.h"
#include "shoal/ops/cpu/pair_sums.h"
#include "shoal/ops/cpu/parallel.h"

namespace shoal::ops::cpu {
namespace {

constexpr std::int64_t kBlock = 4096;

template <class Term>
double block_sum(const float* x, std::int64_t n, Term term) {
  return sum_in_lanes(0, n, [=](std::int64_t i) { return term(double{x[i]}); });
}

// Blocks of all rows are shared out among the threads; each row's block sums are added in order.
template <class Term>
void sum_rows(Context& ctx, float coeff, const Tensor& x, Tensor& y, Term term) {
  const std::int64_t rows = y.count(), length = rows == 0 ? 0 : x.count() / rows,
                     blocks = (length + kBlock - 1) / kBlock;
  std::vector<double> sums(static_cast<std::size_t>(rows * blocks));
  const float* in = x.in();
  const std::int64_t grain = grain_of(std::min(length, kBlock));
  parallel_for(ctx.threads(), rows * blocks, grain, [&](int, std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      const std::int64_t row = b / blocks, at = b % blocks * kBlock;
      sums[static_cast<std::size_t>(b)] =
          block_sum(in + row * length + at, std::min(kBlock, length - at), term);
    }
  });
  float* out = y.out();
  for (std::int64_t row = 0; row < rows; ++row) {
    double sum = 0;
    for (std::int64_t b = 0; b < blocks; ++b)
      sum += sums[static_cast<std::size_t>(row * blocks + b)];
    out[row] = static_cast<float>(coeff * sum);
  }
}

template <class Slope>
void spread_rows(Context& ctx, float coeff, const Tensor& g, Tensor& gx, Slope slope) {
  const std::int64_t rows = g.count(), length = rows == 0 ? 0 : gx.count() / rows;
  const float* grad = g.in();
  float* out = gx.mut();
  parallel_for(ctx.threads(), rows * length, kElementGrain,
               [&](int, std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end;) {
                   const std::int64_t row = i / length, last = std::min(end, (row + 1) * length);
                   const float c = coeff * grad[row];
                   for (; i < last; ++i) out[i] = c * slope(i);
                 }
               });
}

// Calls f(row, its first number, numbers in a row) for each row.
template <class F>
void for_rows(Context& ctx, std::int64_t rows, std::int64_t count, F f) {
  const std::int64_t length = rows == 0 ? 0 : count / rows;
  parallel_for(ctx.threads(), rows, grain_of(length),
               [&](int, std::int64_t begin, std::int64_t end) {
                 for (std::int64_t row = begin; row < end; ++row) f(row, row * length, length);
               });
}

void check_rows(const Tensor& whole, const Tensor& rows) {
  CHECK(rows.count() == 0 ? whole.count() == 0 : whole.count() % rows.count() == 0)
      << whole.shape().str() << " in " << rows.count() << " rows";
}

}  // namespace

void reduce_rows(Context& ctx, Reduce kind, float coeff, const Tensor& x, Tensor& y) {
  check_rows(x, y);
  if (kind == Reduce::kSum)
    sum_rows(ctx, coeff, x, y, [](double v) { return v; });
  else if (kind == Reduce::kAbsSum)
    sum_rows(ctx, coeff, x, y, [](double v) { return std::fabs(v); });
  else
    sum_rows(ctx, coeff, x, y, [](double v) { return v * v; });
}

void reduce_rows_backward(Context& ctx, Reduce kind, float coeff, const Tensor& g, const Tensor& x,
                          Tensor& gx) {
  check_rows(gx, g);
  if (kind == Reduce::kSum)
    return spread_rows(ctx, coeff, g, gx, [](std::int64_t) { return 1.0f; });
  CHECK(x.count() == gx.count());
  const float* in = x.in();
  const auto sign = [=](std::int64_t i) { return static_cast<float>((in[i] > 0) - (in[i] < 0)); };
  if (kind == Reduce::kAbsSum)
    spread_rows(ctx, coeff, g, gx, sign);
  else
    spread_rows(ctx, coeff, g, gx, [=](std::int64_t i) { return 2 * in[i]; });
}

void standardize_rows(Context& ctx, std::int64_t rows, float eps, const Tensor& x, Tensor& y,
                      Tensor& divisor) {
  CHECK(x.count() == y.count() && (divisor.count() == 0 || divisor.count() == rows));
  const float* in = x.in();
  float *out = y.mut(), *divisors = divisor.count() > 0 ? divisor.out() : nullptr;
  for_rows(ctx, rows, x.count(), [=](std::int64_t row, std::int64_t begin, std::int64_t n) {
    PairSums sums, centered;
    sums.add(in + begin, 0, in + begin, 0, n);
    const float mean = static_cast<float>(sums.plain / static_cast<double>(n));
    float factor = 1;
    if (divisors != nullptr) {
      centered.add(in + begin, mean, in + begin, mean, n);
      // `rest` is what rounding the mean left.
      const double rest = centered.plain / static_cast<double>(n);
      divisors[row] = eps + static_cast<float>(std::sqrt(std::max(
                                0.0, centered.products / static_cast<double>(n) - rest * rest)));
      factor = 1 / divisors[row];
    }
    for (std::int64_t i = begin; i < begin + n; ++i) out[i] = (in[i] - mean) * factor;
  });
}

void standardize_rows_backward(Context& ctx, std::int64_t rows, const Tensor& g, const Tensor& y,
                               const Tensor& divisor, Tensor& gx) {
  CHECK(g.count() == gx.count() &&
        (divisor.count() == 0 || (divisor.count() == rows && y.count() == g.count())));
  const bool divided = divisor.count() > 0;
  const float *grad = g.in(), *out = divided ? y.in() : grad,
              *divisors = divided ? divisor.in() : nullptr;
  float* to = gx.mut();
  for_rows(ctx, rows, g.count(), [=](std::int64_t row, std::int64_t begin, std::int64_t n) {
    PairSums sums;
    sums.add(grad + begin, 0, out + begin, 0, n);
    const float mean = static_cast<float>(sums.plain / static_cast<double>(n));
    const float along = divided ? static_cast<float>(sums.products / static_cast<double>(n)) : 0;
    const float factor = divided ? 1 / divisors[row] : 1;
    for (std::int64_t i = begin; i < begin + n; ++i)
      to[i] = (grad[i] - mean - along * out[i]) * factor;
  });
}

}  // namespace shoal::ops::cpu
