#include "shoal/ops/cuda/columns.h"

#include "shoal/base/log.h"
#include "shoal/ops/cuda/channels.h"
#include "shoal/ops/cuda/relu.h"

namespace shoal::ops::cuda {
namespace {

// A description as kernels take it: plain values, and ints, which a GPU divides fast.
struct Windows {
  explicit Windows(const ConvDesc& desc)
      : axes(static_cast<int>(desc.axes.size())),
        in(static_cast<int>(desc.in_count())),
        out(static_cast<int>(desc.out_count())),
        taps(static_cast<int>(desc.taps())) {
    CHECK(axes <= Shape::kMaxAxes);
    for (int i = 0; i < axes; ++i) {
      const WindowAxis& from = desc.axes[static_cast<std::size_t>(i)];
      axis[i] = {static_cast<int>(from.in),     static_cast<int>(from.out),
                 static_cast<int>(from.kernel), static_cast<int>(from.stride),
                 static_cast<int>(from.pad),    static_cast<int>(from.dilation)};
    }
  }

  // Returns where output `o` looks at tap `tap`; -1: outside.
  __host__ __device__ int input(int o, int tap) const {
    int place = 0, scale = 1;
    for (int i = axes - 1; i >= 0; --i) {
      const Axis& a = axis[i];
      const int at = o % a.out * a.stride - a.pad + tap % a.kernel * a.dilation;
      if (at < 0 || at >= a.in) return -1;
      place += at * scale;
      scale *= a.in;
      o /= a.out;
      tap /= a.kernel;
    }
    return place;
  }

  // Returns the output that looks at input `place` at tap `tap`; -1: none does.
  __host__ __device__ int output(int place, int tap) const {
    int o = 0, scale = 1;
    for (int i = axes - 1; i >= 0; --i) {
      const Axis& a = axis[i];
      const int from = place % a.in + a.pad - tap % a.kernel * a.dilation;
      if (from < 0 || from % a.stride != 0 || from / a.stride >= a.out) return -1;
      o += from / a.stride * scale;
      scale *= a.out;
      place /= a.in;
      tap /= a.kernel;
    }
    return o;
  }

  struct Axis {
    int in, out, kernel, stride, pad, dilation;
  };
  int axes;
  int in, out, taps;  // of all axes
  Axis axis[Shape::kMaxAxes];
};

// The end of a convolution: bias and ReLU of one sum.
struct Finish {
  Finish(const ConvDesc& desc, const float* bias) : bias(bias), relu(desc.relu) {}
  __host__ __device__ float operator()(float sum, int output) const {
    return relu(bias != nullptr ? sum + bias[output] : sum);
  }
  const float* bias;
  Relu relu;
};

}  // namespace

void to_columns(Context& ctx, const ConvDesc& desc, std::int64_t images, const float* x,
                float* columns) {
  const Windows windows(desc);
  const std::int64_t channels = desc.channels, width = images * windows.out;
  each(ctx, "convolution's columns", channels * windows.taps * width,
       [=] __host__ __device__(std::int64_t i) {
         const auto row = static_cast<int>(i / width), column = static_cast<int>(i % width);
         const int place = windows.input(column % windows.out, row % windows.taps);
         const std::int64_t plane = column / windows.out * channels + row / windows.taps;
         columns[i] = place < 0 ? 0.0f : x[plane * windows.in + place];
       });
}

// The number of elements of a tensor fits an int, by which a GPU divides much faster.

void from_columns(Context& ctx, const ConvDesc& desc, std::int64_t images, const float* columns,
                  float* dx) {
  const Windows windows(desc);
  const int channels = static_cast<int>(desc.channels);
  const std::int64_t width = images * windows.out;
  each(ctx, "convolution's sums of columns", images * channels * windows.in,
       [=] __host__ __device__(std::int64_t i) {
         const int place = static_cast<int>(i) % windows.in,
                   plane = static_cast<int>(i) / windows.in;
         const std::int64_t row = std::int64_t{plane % channels} * windows.taps;
         const float* from = columns + row * width + std::int64_t{plane / channels} * windows.out;
         float sum = 0;
         for (int tap = 0; tap < windows.taps; ++tap, from += width) {
           const int o = windows.output(place, tap);
           if (o >= 0) sum += from[o];
         }
         dx[i] = sum;
       });
}

void to_rows(Context& ctx, const ConvDesc& desc, std::int64_t images, const float* dy,
             float* rows) {
  const int count = static_cast<int>(images), outputs = static_cast<int>(desc.outputs),
            places = static_cast<int>(desc.out_count());
  each(ctx, "convolution's rows of gradients", images * outputs * places,
       [=] __host__ __device__(std::int64_t i) {
         const int plane = static_cast<int>(i) / places, place = static_cast<int>(i) % places;
         rows[i] = dy[(plane % count * outputs + plane / count) * places + place];
       });
}

void from_rows(Context& ctx, const ConvDesc& desc, std::int64_t images, const float* rows,
               const float* bias, float* y) {
  const int count = static_cast<int>(images), outputs = static_cast<int>(desc.outputs),
            places = static_cast<int>(desc.out_count());
  const Finish done(desc, bias);
  each(ctx, "convolution's outputs", images * outputs * places,
       [=] __host__ __device__(std::int64_t i) {
         const int plane = static_cast<int>(i) / places, place = static_cast<int>(i) % places;
         const int output = plane % outputs;
         y[i] = done(rows[(output * count + plane / outputs) * places + place], output);
       });
}

void finish(Context& ctx, const ConvDesc& desc, const LayoutPtr& layout, const float* bias,
            void* y) {
  const Relu relu(desc.relu);
  const Order order({.outer = desc.images, .dim = desc.outputs, .inner = desc.out_count()}, layout);
  if (bias != nullptr)
    return map_channels(
        ctx, "convolution's bias and ReLU", order, bias,
        [=] __host__ __device__(float own, float sum) { return relu(sum + own); }, y, y);
  if (desc.relu)
    map_each(
        ctx, "convolution's ReLU", order.type, desc.images * desc.outputs * desc.out_count(),
        [=] __host__ __device__(std::int64_t, float sum) { return relu(sum); }, y, y);
}

}  // namespace shoal::ops::cuda
