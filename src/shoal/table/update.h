// The arithmetic of a shard: sums contributions and applies them to a row in one pass over memory.
// Each element is computed by itself, so that no bit depends on how a param is cut into rows, or a
// row into pieces for a ParallelFor. Without that the caller's thread does all.
#pragma once

#include "shoal/optim/rule.h"
#include "shoal/table/types.h"

namespace shoal::table {

// A term is weight * values. A sum of terms adds them in their order.
struct Term {
  const float* values = nullptr;
  float weight = 1;
  float* clear_after = nullptr;  // step_row leaves zeros here, where the values are; or nothing
};

// Numbers that are read at `from` and written at `to`, which may be the same place.
struct Change {
  const float* from = nullptr;
  float* to = nullptr;
};

// Takes one step of the rule on the sum of the terms, as ops::update takes it on one gradient, to
// the bit. histories: as many as the rule keeps.
void step_row(const optim::Step& step, std::size_t n, std::span<const Term> terms, Change weights,
              std::span<const Change> histories, const ParallelFor& parallel_for = {});
// Computes row += scale * sum.
void add_to_row(float scale, std::size_t n, std::span<const Term> terms, Change row);
// Computes e = scale * (theirs - row), row += e, answer = theirs - e, with the same e for both.
void pull_row(float scale, std::size_t n, const float* theirs, Change row, float* answer);
// Computes out = v + lambda * v * v * (now - then).
void compensate(float lambda, std::size_t n, const float* values, const float* now,
                const float* then, float* out);

// Computes out = sum, with the bits that the functions above take.
void sum_terms(std::size_t n, std::span<const Term> terms, float* out);
// Returns the sum of the squares of the sum of the terms, in double.
double sum_of_squares(std::size_t n, std::span<const Term> terms);
bool all_finite(std::span<const float> values);

}  // namespace shoal::table
