// Loops and sums over the elements of tensors.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "shoal/base/numbers.h"
#include "shoal/ops/cpu/parallel.h"
#include "shoal/tensor/context.h"

namespace shoal::ops::cpu {

// The numbers of tensors that an op takes one by one, in any layout that all of them have, padding
// included: what is read, and what is overwritten. Plain if they differ.
template <std::size_t kCount>
struct Elements {
  std::array<const float*, kCount> in;
  float* out;
  std::int64_t count;
};
template <std::size_t kCount>
Elements<kCount> elements(Context& ctx, const Tensor* const (&read)[kCount], Tensor& write) {
  LayoutPtr layout = read[0]->layout();
  for (const Tensor* tensor : read)
    if (!same_layout(tensor->layout(), layout) || tensor->shape() != write.shape())
      layout = nullptr;
  Elements<kCount> found{};
  for (std::size_t i = 0; i < kCount; ++i)
    found.in[i] = reinterpret_cast<const float*>(read[i]->read(ctx, layout));
  found.out = reinterpret_cast<float*>(write.write(ctx, layout));
  found.count = layout ? static_cast<std::int64_t>(layout->bytes(write.shape()) / sizeof(float))
                       : write.count();
  return found;
}

// f(i) for each i in [0, n). Calls for different i must not touch each other's elements: the loop
// becomes vector code.
template <class F>
void for_elements(Context& ctx, std::int64_t n, F f) {
  parallel_for(ctx.threads(), n, kElementGrain, [f](int, std::int64_t begin, std::int64_t end) {
    const F each = f;  // a local copy, which no store of the loop can change
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i) each(i);
  });
}

// The sum of term(i), in blocks of a fixed size whose sums are added in order: the same bits for
// any number of threads.
template <class Term>
double blocked_sum(Context& ctx, std::int64_t n, Term term) {
  constexpr std::int64_t kBlock = 4096;
  const std::int64_t blocks = (n + kBlock - 1) / kBlock;
  std::vector<double> sums(static_cast<std::size_t>(blocks));
  parallel_for(ctx.threads(), blocks, 8, [&](int, std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b)
      sums[static_cast<std::size_t>(b)] =
          sum_in_lanes(b * kBlock, std::min(n, (b + 1) * kBlock), term);
  });
  double sum = 0;
  for (const double s : sums) sum += s;
  return sum;
}

// loss = the sum of term(i) over divisor.
template <class Term>
void put_loss(Context& ctx, std::int64_t n, double divisor, Tensor& loss, Term term) {
  loss.out()[0] = static_cast<float>(blocked_sum(ctx, n, term) / divisor);
}

}  // namespace shoal::ops::cpu
