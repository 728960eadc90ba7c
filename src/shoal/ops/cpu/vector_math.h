// Computes e^x and its kin without branches or calls, so that a compiler turns a loop over them
// into vector code. Relative error below 3e-7. A NaN stays a NaN; too large is infinity, too small
// is 0.
#pragma once

#include <bit>
#include <cstdint>

namespace shoal::ops::cpu {

// The parts of e^x = 2^n (1 + q): n the nearest whole number to x / ln 2, and q = e^r - 1 for what
// is left, |r| <= ln 2 / 2.
struct ExpParts {
  std::uint32_t n;  // as two's complement
  float q;
};

inline ExpParts exp_parts(float x) {
  // Adding kRounder leaves no room for a fraction.
  constexpr float kRounder = 0x1.8p23f;
  // The high part times n is exact.
  constexpr float kLn2High = 0x1.62ep-1f, kLn2Low = 0x1.0bfbe8p-15f;
  const float shifted = x * 0x1.715476p0f + kRounder;
  const float n = shifted - kRounder;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = 1.0f / 5040;  // Taylor; the next term is 5e-9
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  return {std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(kRounder),
          r + r * r * p};
}

// 2^n for n in [-126, 127].
inline float power_of_two(std::uint32_t n) { return std::bit_cast<float>((n + 127u) << 23); }

inline float fast_exp(float x) {
  // Both ends are well past what a float holds.
  x = x > 89.0f ? 89.0f : x;
  x = x < -104.0f ? -104.0f : x;
  const ExpParts parts = exp_parts(x);
  const std::uint32_t half = static_cast<std::uint32_t>(static_cast<std::int32_t>(parts.n) >> 1);
  // Two steps, since n may be 128 or -150.
  return (1.0f + parts.q) * power_of_two(half) * power_of_two(parts.n - half);
}

// Returns e^x - 1 for x <= 0, exact to the last digits near 0.
inline float fast_expm1_negative(float x) {
  x = x < -80.0f ? -80.0f : x;
  const ExpParts parts = exp_parts(x);
  const float two_n = power_of_two(parts.n);
  return two_n * parts.q + (two_n - 1.0f);
}

inline float fast_sigmoid(float x) { return 1.0f / (1.0f + fast_exp(-x)); }

inline float fast_tanh(float x) {
  const float e = fast_expm1_negative(x > 0.0f ? -2.0f * x : 2.0f * x);
  const float t = e / (2.0f + e);
  return x > 0.0f ? -t : t;
}

// Returns ln(1 + t) for t in [0, 1], exact to the last digits near 0: 2 artanh(s) by its series, s
// = t / (2 + t) <= 1/3.
inline float fast_log1p(float t) {
  const float s = t / (2.0f + t), z = s * s;
  float p = 2.0f / 15;
  p = p * z + 2.0f / 13;
  p = p * z + 2.0f / 11;
  p = p * z + 2.0f / 9;
  p = p * z + 2.0f / 7;
  p = p * z + 2.0f / 5;
  p = p * z + 2.0f / 3;
  return 2.0f * s + s * z * p;
}

// Returns ln(1 + e^x).
inline float fast_softplus(float x) {
  const float tail = fast_log1p(fast_exp(x > 0.0f ? -x : x));
  return x > 0.0f ? x + tail : tail;
}

}  // namespace shoal::ops::cpu
