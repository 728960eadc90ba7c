// Loops over runs of floats that several modules compile, each with flags of its own.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

namespace shoal {

// A compiler must not reorder a sum of floats by itself, so a plain loop over one becomes scalar
// code. Sums are therefore kept in lanes side by side, as many as a vector register has.
inline constexpr int kLanes = 8;

// Adds term(i) to lane (i - begin) % kLanes for as many whole groups of lanes as lie in [begin,
// end). Returns where the rest begins.
template <class Sum, class Term>
inline std::int64_t add_in_lanes(Sum (&lanes)[kLanes], std::int64_t begin, std::int64_t end,
                                 const Term& term) {
  std::int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  return i;
}

// The sum of term(i) over [begin, end) in double.
template <class Term>
inline double sum_in_lanes(std::int64_t begin, std::int64_t end, const Term& term) {
  double lanes[kLanes] = {}, sum = 0;
  for (std::int64_t i = add_in_lanes(lanes, begin, end, term); i < end; ++i) lanes[0] += term(i);
  for (const double lane : lanes) sum += lane;
  return sum;
}

// Returns whether there is no NaN and no infinity: no exponent has all of its bits set.
inline bool all_finite(std::span<const float> values) {
  std::uint32_t bad = 0;
  for (const float value : values)
    bad |= (std::bit_cast<std::uint32_t>(value) & 0x7f800000u) == 0x7f800000u;
  return bad == 0;
}

}  // namespace shoal
