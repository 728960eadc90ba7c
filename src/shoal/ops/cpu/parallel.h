// Threads inside a kernel. Each op splits its outermost work into one contiguous piece a thread.
#pragma once

#include <algorithm>
#include <cstdint>

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace shoal::ops::cpu {

// Calls f(thread, begin, end) for contiguous pieces of [0, n), on at most `threads` threads, none
// smaller than `grain` but the only one. The piece that a thread gets depends on n, threads and
// grain alone. f must not throw.
template <class F>
void parallel_for(int threads, std::int64_t n, std::int64_t grain, F f) {
  const std::int64_t pieces =
      std::clamp<std::int64_t>(n / std::max<std::int64_t>(grain, 1), 1, threads);
  if (pieces == 1) {
    if (n > 0) f(0, std::int64_t{0}, n);
    return;
  }
#if defined(_OPENMP)
#pragma omp parallel for num_threads(static_cast <int>(pieces)) schedule(static, 1)
#endif
  for (std::int64_t piece = 0; piece < pieces; ++piece)
    f(static_cast<int>(piece), n * piece / pieces, n * (piece + 1) / pieces);
}

// A grain for loops that do a few instructions an element: below it a second thread costs more than
// it brings.
inline constexpr std::int64_t kElementGrain = 16384;
// Returns the same for units of so many elements each.
inline std::int64_t grain_of(std::int64_t elements) {
  return (kElementGrain - 1) / std::max<std::int64_t>(1, elements) + 1;
}

// Calls f(thread, first element, width) for strips of at most kStrip places, for loops that take
// all channels of a strip together.
inline constexpr std::int64_t kStrip = 64;
template <class F>
void for_strips(int threads, std::int64_t images, std::int64_t channels, std::int64_t places, F f) {
  const std::int64_t strips = (places + kStrip - 1) / kStrip;
  const std::int64_t grain = grain_of(8 * channels * std::min(places, kStrip));
  parallel_for(
      threads, images * strips, grain, [&](int thread, std::int64_t begin, std::int64_t end) {
        for (std::int64_t strip = begin; strip < end; ++strip) {
          const std::int64_t first = strip % strips * kStrip;
          f(thread, strip / strips * channels * places + first, std::min(kStrip, places - first));
        }
      });
}

}  // namespace shoal::ops::cpu
