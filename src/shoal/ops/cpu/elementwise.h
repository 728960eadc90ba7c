// Loops and sums over the elements of tensors.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "shoal/base/numbers.h"
#include "shoal/ops/blocked_channels.h"
#include "shoal/ops/cpu/blocks.h"
#include "shoal/ops/cpu/parallel.h"
#include "shoal/tensor/context.h"

namespace shoal::ops::cpu {

// The numbers of tensors that an op takes one by one, in the layout in which the first that is read
// lies, padding included: what is read, and what is overwritten. Plain if shapes differ, or if the
// layout has padding that must not become anything but zeros.
enum class Padding { kStaysZero, kChanges };
template <std::size_t kCount>
struct Elements {
  LayoutPtr layout;
  std::array<const std::byte*, kCount> in;
  std::byte* out;
  std::int64_t count;
  NumberType type;
};
template <std::size_t kCount>
Elements<kCount> elements(Context& ctx, const Tensor* const (&read)[kCount], Tensor& write,
                          Padding padding = Padding::kStaysZero) {
  LayoutPtr layout = read[0]->layout();
  for (const Tensor* tensor : read)
    if (tensor->shape() != write.shape()) layout = nullptr;
  const BlockedChannels* const blocked = as_blocked(layout);
  if (padding == Padding::kChanges && (blocked == nullptr || blocked->is_padded()))
    layout = nullptr;
  Elements<kCount> found{};
  found.layout = layout;
  found.type = number_type(layout);
  for (std::size_t i = 0; i < kCount; ++i) found.in[i] = read[i]->read(ctx, layout);
  found.out = write.write(ctx, layout);
  found.count = layout
                    ? static_cast<std::int64_t>(layout->bytes(write.shape())) / size_of(found.type)
                    : write.count();
  return found;
}

// Calls work(N()), where N is the type of the numbers.
template <class Work>
void with_type(NumberType type, const Work& work) {
  if (type == NumberType::kFloat32) return work(float());
  work(Bfloat16());
}

// Calls f(i) for each i in [0, n). Calls for different i must not touch each other's elements: the
// loop becomes vector code.
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

// Sets loss to the sum of term(i) over divisor.
template <class Term>
void put_loss(Context& ctx, std::int64_t n, double divisor, Tensor& loss, Term term) {
  loss.out()[0] = static_cast<float>(blocked_sum(ctx, n, term) / divisor);
}

}  // namespace shoal::ops::cpu
