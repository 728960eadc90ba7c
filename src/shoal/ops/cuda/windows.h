// Finds the inputs that the windows of a pooling see, and the windows that see an input, for a CUDA
// device's kernels.
//
// For .cu files alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "shoal/ops/cuda/divisor.h"
#include "shoal/ops/window.h"

namespace shoal::ops::cuda {

// One axis as kernels take it.
struct PooledAxis {
  explicit PooledAxis(const WindowAxis& axis)
      : in(static_cast<int>(axis.in)),
        out(static_cast<int>(axis.out)),
        kernel(static_cast<int>(axis.kernel)),
        stride(static_cast<int>(axis.stride)),
        pad(static_cast<int>(axis.pad)) {}
  // The places inside that an output sees are [begin, end); begin >= end: none.
  __host__ __device__ int begin(int o) const { return std::max(0, o * stride - pad); }
  __host__ __device__ int end(int o) const { return std::min(in, o * stride - pad + kernel); }
  // Returns how many places of the padded axis its window covers.
  __host__ __device__ float covered(int o) const {
    const int start = o * stride - pad;
    return static_cast<float>(std::max(1, std::min(start + kernel, in + pad) - start));
  }
  // The tap at which an output sees a place, and the place that it sees at a tap.
  __host__ __device__ int tap(int o, int place) const { return place + pad - o * stride; }
  __host__ __device__ int place(int o, int tap) const { return o * stride - pad + tap; }
  // The outputs that see a place are [first, last).
  __host__ __device__ int first(int place) const {
    return place + pad < kernel ? 0 : (place + pad - kernel) / stride + 1;
  }
  __host__ __device__ int last(int place) const {
    return std::min(out, (place + pad) / stride + 1);
  }
  int in, out, kernel, stride, pad;
};

// The windows of all planes. `together` planes lie number beside number: 1 in plain order, the
// channels with channels last.
struct Windows {
  Windows(const PoolDesc& desc, std::int64_t together)
      : height(desc.height),
        width(desc.width),
        together(together),
        out_height(desc.height.out),
        out_width(desc.width.out),
        in_height(desc.height.in),
        in_width(desc.width.in),
        inputs(desc.planes * desc.height.in * desc.width.in),
        outputs(desc.planes * desc.height.out * desc.width.out) {}

  // A number's place, and the first number of its plane among the inputs and the outputs.
  struct Place {
    int h, w;
    std::int64_t inputs, outputs;
  };
  __host__ __device__ Place output(std::int64_t i) const { return place(i, out_height, out_width); }
  __host__ __device__ Place input(std::int64_t i) const { return place(i, in_height, in_width); }
  __host__ __device__ Place place(std::int64_t i, Divisor rows, Divisor columns) const {
    const std::int64_t at = i / together, row = at / columns, plane = row / rows;
    return {static_cast<int>(row % rows), static_cast<int>(at % columns),
            plane * height.in * width.in * step() + i % together,
            plane * height.out * width.out * step() + i % together};
  }
  // Returns the distance from a place of a plane to the next.
  __host__ __device__ std::int64_t step() const { return together.value(); }
  // The tap, in row order, at which the output at (o_h, o_w) sees the place (h, w), and back.
  __host__ __device__ int tap(int o_h, int o_w, int h, int w) const {
    return height.tap(o_h, h) * width.kernel + width.tap(o_w, w);
  }
  __host__ __device__ int seen(int o_h, int o_w, int tap) const {
    return height.place(o_h, tap / width.kernel) * width.in + width.place(o_w, tap % width.kernel);
  }

  PooledAxis height, width;
  Divisor together, out_height, out_width, in_height, in_width;
  std::int64_t inputs, outputs;
};

}  // namespace shoal::ops::cuda
