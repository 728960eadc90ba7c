// Vectors of kLanes floats, by the vector types that gcc and clang share. AVX2 has registers for
// them; for other machines the compiler makes several operations of one.
#pragma once

#include <cstdint>
#include <cstring>

#include "shoal/base/numbers.h"

namespace shoal::ops::cpu {

using Lanes = float __attribute__((vector_size(32)));

inline Lanes load(const float* at) {
  Lanes lanes;
  std::memcpy(&lanes, at, sizeof lanes);
  return lanes;
}
inline void store(Lanes lanes, float* at) { std::memcpy(at, &lanes, sizeof lanes); }

// Eight rows of eight numbers become columns.
inline void transpose(Lanes (&r)[8]) {
  Lanes t[8], u[8];
  for (int i = 0; i < 8; i += 2) {
    t[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    t[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int i = 0; i < 8; i += 4)
    for (int j = 0; j < 2; ++j) {
      u[i + 2 * j] = __builtin_shufflevector(t[i + j], t[i + 2 + j], 0, 1, 8, 9, 4, 5, 12, 13);
      u[i + 2 * j + 1] =
          __builtin_shufflevector(t[i + j], t[i + 2 + j], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  for (int i = 0; i < 4; ++i) {
    r[i] = __builtin_shufflevector(u[i], u[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    r[i + 4] = __builtin_shufflevector(u[i], u[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

// Computes out (columns, rows) = or += the transpose of in (rows, columns); rows of each are their
// stride apart.
enum class Into { kOverwrite, kAdd };
inline void transpose(std::int64_t rows, std::int64_t columns, const float* in,
                      std::int64_t in_stride, float* out, std::int64_t out_stride, Into into) {
  const std::int64_t whole_rows = rows / kLanes * kLanes, whole_columns = columns / kLanes * kLanes;
  for (std::int64_t i = 0; i < whole_rows; i += kLanes)
    for (std::int64_t j = 0; j < whole_columns; j += kLanes) {
      Lanes block[8];
      for (int lane = 0; lane < kLanes; ++lane) block[lane] = load(in + (i + lane) * in_stride + j);
      transpose(block);
      for (int lane = 0; lane < kLanes; ++lane) {
        float* to = out + (j + lane) * out_stride + i;
        store(into == Into::kAdd ? load(to) + block[lane] : block[lane], to);
      }
    }
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = i < whole_rows ? whole_columns : 0; j < columns; ++j) {
      const float value = in[i * in_stride + j];
      out[j * out_stride + i] = into == Into::kAdd ? out[j * out_stride + i] + value : value;
    }
}

}  // namespace shoal::ops::cpu
