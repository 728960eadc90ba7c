// Tables with which a convolution reads its input where it lies, without making columns of it.
//
// All three products of a convolution have one form:
//   out[row][column] = sum over t of in[base[row] + offset[t]] * b[t][column]
//
//   product   rows                 t                    columns          b
//   forward   output places        the channels' taps   outputs          the weight
//   dw        the channels' taps   output places        outputs          dy
//   dx        input places         the outputs' taps    input channels   the weight
//
// `in` is x, or dy for dx, with a border of zeros wide enough for every window. With a stride the
// input places fall into phases that see different taps; each phase has tables of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "shoal/ops/window.h"

namespace shoal::ops::cpu {

// Planes with a border of zeros.
class Border {
 public:
  struct Axis {
    std::int64_t in, before, after;
  };
  explicit Border(std::vector<Axis> axes);
  bool needed() const { return needed_; }
  // Returns the numbers of a plane with its border.
  std::int64_t plane() const { return plane_; }
  // Returns the step between neighbours on an axis.
  std::int64_t stride(std::size_t axis) const { return strides_[axis]; }
  void copy(const float* in, std::int64_t planes, float* out) const;

 private:
  std::vector<Axis> axes_;
  std::vector<std::int64_t> strides_;
  std::int64_t plane_ = 1;
  bool needed_ = false;
};

// The places of a plane that see the same taps.
struct Phase {
  std::vector<std::int32_t> places;  // which places, in the plane that is made
  // `base`: for each place, where its window starts in a bordered plane.
  std::vector<std::int32_t> base;
  std::vector<std::int32_t> taps;    // which taps, of desc.taps()
  std::vector<std::int32_t> offset;  // for each tap: how far from there
  bool contiguous = false;           // places are 0, 1, 2 ...
};

struct WindowTables {
  Border border;
  std::vector<Phase> phases;
};
WindowTables forward_windows(const ConvDesc& desc);   // one phase: output places that see x
WindowTables backward_windows(const ConvDesc& desc);  // input places that see dy

}  // namespace shoal::ops::cpu
