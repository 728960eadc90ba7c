#include "shoal/table/update.h"

#include <algorithm>

#include "shoal/base/numbers.h"

namespace shoal::table {
namespace {

constexpr std::size_t kBlock = 2048;        // floats: a block of sums stays in the nearest cache
constexpr std::size_t kPiece = 4 * kBlock;  // of a ParallelFor: some microseconds

// Returns the sum of the terms, at least one, from `begin` on: in `block`, or in place if it is a
// single one of weight 1.
const float* sum(std::span<const Term> terms, std::size_t begin, std::size_t n, float* block) {
  if (terms.size() == 1 && terms[0].weight == 1) return terms[0].values + begin;
  for (std::size_t t = 0; t < terms.size(); ++t) {
    const float* values = terms[t].values + begin;
    const float weight = terms[t].weight;
    if (t == 0)
      for (std::size_t i = 0; i < n; ++i) block[i] = weight * values[i];
    else
      for (std::size_t i = 0; i < n; ++i) block[i] += weight * values[i];
  }
  return block;
}

// Calls f(begin, n, sum of the terms there) block by block.
template <class F>
void for_each_block(std::size_t from, std::size_t to, std::span<const Term> terms, const F& f) {
  float block[kBlock];
  for (std::size_t begin = from; begin < to; begin += kBlock) {
    const std::size_t count = std::min(kBlock, to - begin);
    f(begin, count, sum(terms, begin, count, block));
  }
}
template <class F>
void for_each_block(std::size_t n, std::span<const Term> terms, const ParallelFor& parallel_for,
                    const F& f) {
  if (!parallel_for || n <= kPiece) return for_each_block(0, n, terms, f);
  parallel_for((n + kPiece - 1) / kPiece, [&](std::size_t piece) {
    for_each_block(piece * kPiece, std::min(n, (piece + 1) * kPiece), terms, f);
  });
}

// Copies the numbers from `begin` on to the place where they are to be changed. Returns that place.
float* bring(Change change, std::size_t begin, std::size_t n) {
  if (change.from != change.to) std::copy_n(change.from + begin, n, change.to + begin);
  return change.to + begin;
}

}  // namespace

void step_row(const optim::Step& step, std::size_t n, std::span<const Term> terms, Change weights,
              std::span<const Change> histories, const ParallelFor& parallel_for) {
  for_each_block(
      n, terms, parallel_for, [&](std::size_t begin, std::size_t count, const float* gradient) {
        float* w = bring(weights, begin, count);
        float* h = bring(histories[0], begin, count);
        float* h2 = histories.size() > 1 ? bring(histories[1], begin, count) : nullptr;
        optim::update_elements(step, static_cast<std::int64_t>(count), w, gradient, h, h2);
        for (const Term& term : terms)
          // Cleared while they are in the nearest cache.
          if (term.clear_after) std::fill_n(term.clear_after + begin, count, 0.0f);
      });
}

void add_to_row(float scale, std::size_t n, std::span<const Term> terms, Change row) {
  for_each_block(0, n, terms, [&](std::size_t begin, std::size_t count, const float* delta) {
    float* w = bring(row, begin, count);
    for (std::size_t i = 0; i < count; ++i) w[i] += scale * delta[i];
  });
}

// The value e is stored, so that no compiler rounds it in two ways.
void pull_row(float scale, std::size_t n, const float* theirs, Change row, float* answer) {
  float e[kBlock];
  for (std::size_t begin = 0; begin < n; begin += kBlock) {
    const std::size_t count = std::min(kBlock, n - begin);
    float* w = bring(row, begin, count);
    for (std::size_t i = 0; i < count; ++i) e[i] = scale * (theirs[begin + i] - w[i]);
    for (std::size_t i = 0; i < count; ++i) w[i] += e[i];
    for (std::size_t i = 0; i < count; ++i) answer[begin + i] = theirs[begin + i] - e[i];
  }
}

void compensate(float lambda, std::size_t n, const float* values, const float* now,
                const float* then, float* out) {
  for (std::size_t i = 0; i < n; ++i)
    out[i] = values[i] + lambda * values[i] * values[i] * (now[i] - then[i]);
}

void sum_terms(std::size_t n, std::span<const Term> terms, float* out) {
  for_each_block(0, n, terms, [&](std::size_t begin, std::size_t count, const float* values) {
    std::copy_n(values, count, out + begin);
  });
}

double sum_of_squares(std::size_t n, std::span<const Term> terms) {
  double lanes[kLanes] = {};
  for_each_block(0, n, terms, [&](std::size_t, std::size_t count, const float* values) {
    std::size_t i = 0;
    for (; i + kLanes <= count; i += kLanes)
      for (std::size_t lane = 0; lane < kLanes; ++lane)
        lanes[lane] += double{values[i + lane]} * values[i + lane];
    for (; i < count; ++i) lanes[i % kLanes] += double{values[i]} * values[i];
  });
  double total = 0;
  for (const double lane : lanes) total += lane;
  return total;
}

bool all_finite(std::span<const float> values) { return shoal::all_finite(values); }

}  // namespace shoal::table
