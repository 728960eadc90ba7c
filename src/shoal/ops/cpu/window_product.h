// The product that an output plane of a convolution is: sums of places of bordered input planes, by
// the tables of window_tables.h, times packed weights; with the tile of sums that it is made of.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "shoal/ops/cpu/lanes.h"
#include "shoal/ops/cpu/window_tables.h"

namespace shoal::ops::cpu {

// Rows of a tile: with two vectors each, its sums take twelve of sixteen registers.
inline constexpr std::int64_t kRows = 6;
inline constexpr std::int64_t kPanel = 16;   // columns of a tile; the last panel may have 8
inline constexpr std::int64_t kChunk = 240;  // places at a time: their sums stay in the first cache
inline constexpr std::int64_t kDepth = 160;  // terms at a time: a panel of b stays there too

// Adds to sums[row][column] the sum over t < terms of base[row][offset[t]] * b[t][column], 6 rows
// by kVectors * 8 columns. The new terms are added up before they meet the old sum: a long sum in
// short pieces keeps its last digits.
template <int kVectors>
void add_tile(std::int64_t terms, const float* const* base, const std::int32_t* offset,
              const float* b, float* sums) {
  constexpr int kWidth = kVectors * kLanes;
  const float *p0 = base[0], *p1 = base[1], *p2 = base[2], *p3 = base[3], *p4 = base[4],
              *p5 = base[5];
  Lanes sum[kRows][kVectors] = {};
  for (std::int64_t t = 0; t < terms; ++t, b += kWidth) {
    const std::int64_t at = offset[t];
    const float x[kRows] = {p0[at], p1[at], p2[at], p3[at], p4[at], p5[at]};
    Lanes column[kVectors];
    for (int v = 0; v < kVectors; ++v) column[v] = load(b + v * kLanes);
    for (int row = 0; row < kRows; ++row)
      for (int v = 0; v < kVectors; ++v) sum[row][v] += x[row] * column[v];
  }
  for (int row = 0; row < kRows; ++row)
    for (int v = 0; v < kVectors; ++v) {
      float* to = sums + row * kWidth + v * kLanes;
      store(load(to) + sum[row][v], to);
    }
}

// Columns in panels of 16, the last of 8 if that will do.
struct Panels {
  std::int64_t columns;
  std::int64_t count() const { return (columns + kPanel - 1) / kPanel; }
  std::int64_t valid(std::int64_t panel) const {
    return std::min(kPanel, columns - panel * kPanel);
  }
  std::int64_t width(std::int64_t panel) const { return valid(panel) > kLanes ? kPanel : kLanes; }
  std::int64_t total() const { return (count() - 1) * kPanel + width(count() - 1); }
};

inline void add_tile(std::int64_t width, std::int64_t terms, const float* const* base,
                     const std::int32_t* offset, const float* b, float* sums) {
  if (width == kPanel)
    add_tile<2>(terms, base, offset, b, sums);
  else
    add_tile<1>(terms, base, offset, b, sums);
}

inline std::int64_t round_up(std::int64_t n, std::int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

// Makes the places of output planes from those of input planes: the forward product, or dx.
class WindowProduct {
 public:
  // `planes` are summed over, `columns` are made, for each of `groups`.
  WindowProduct(WindowTables windows, std::int64_t planes, std::int64_t columns,
                std::int64_t groups);

  const Border& border() const { return windows_.border; }
  const Phase& phase() const { return windows_.phases[0]; }
  const std::vector<std::int32_t>& offsets() const { return offsets_[0]; }
  const Panels& panels() const { return panels_; }
  std::int64_t packed_count() const { return groups_ * terms_ * panels_.total(); }
  // Returns the places of one plane that is made.
  std::int64_t made() const { return made_; }
  // Returns the numbers of one image and group, bordered.
  std::int64_t image() const { return planes_ * windows_.border.plane(); }

  // The place of a panel's weights in w: the weight of (plane, column, tap) is at plane *
  // plane_stride + column * column_stride + tap, from the group's begin on.
  struct Weights {
    const float* data;
    std::int64_t group_stride, plane_stride, column_stride;
  };

  // Fills packed[group][phase][panel][term][column], zeros for columns that are not there.
  void pack(int threads, const Weights& w, float* packed) const;

  // Makes the places of `images` images of one group: `in` is bordered, images `in_stride` apart;
  // `out` is the group's first plane, images `out_stride` apart. Panels first, first + step, ...
  // `bias` may be null. A ReLU of slope `relu`, if there is one, is applied to what is made. `sums`
  // is room for kSums numbers.
  static constexpr std::int64_t kSums = kChunk * kPanel;
  void run(std::int64_t images, const float* in, std::int64_t in_stride, const float* packed,
           const float* bias, std::optional<float> relu, std::int64_t first, std::int64_t step,
           float* out, std::int64_t out_stride, float* sums) const;

  // Returns where the packed weights of a group begin.
  const float* of_group(const float* packed, std::int64_t group) const {
    return packed + group * terms_ * panels_.total();
  }

 private:
  std::int64_t terms(std::size_t phase) const {
    return static_cast<std::int64_t>(offsets_[phase].size());
  }

  void sum_panel(std::size_t phase, std::int64_t panel, std::int64_t rows, const float* const* base,
                 const float* b, const float* bias, float* sums) const;

  // Sums of `rows` places from place `begin` on, counted over the images, go to their planes.
  void put(const Phase& phase, std::int64_t begin, std::int64_t rows, std::int64_t panel,
           const float* sums, float* out, std::int64_t out_stride) const;

  WindowTables windows_;
  std::int64_t planes_, groups_, terms_ = 0, made_ = 0;
  Panels panels_;
  std::vector<std::vector<std::int32_t>> offsets_;  // for each phase, for each plane and tap
};

}  // namespace shoal::ops::cpu
