#include <algorithm>
#include <cstring>

#include "shoal/ops/cpu/columns.h"

namespace shoal::ops::cpu {
namespace {

// Returns the input row at which tap `tap` of all outer axes looks from output row `row`, or -1 if
// outside.
std::int64_t input_row(const ConvDesc& desc, std::int64_t tap, std::int64_t row) {
  std::int64_t result = 0, scale = 1;
  for (std::size_t i = desc.axes.size() - 1; i-- > 0;) {
    const WindowAxis& axis = desc.axes[i];
    const std::int64_t at =
        row % axis.out * axis.stride - axis.pad + tap % axis.kernel * axis.dilation;
    if (at < 0 || at >= axis.in) return -1;
    result += at * scale;
    scale *= axis.in;
    row /= axis.out;
    tap /= axis.kernel;
  }
  return result;
}

// Serves the usual case, one outer axis, without the divisions.
std::int64_t input_row_2d(const WindowAxis& axis, std::int64_t tap, std::int64_t row) {
  const std::int64_t at = row * axis.stride - axis.pad + tap * axis.dilation;
  return at < 0 || at >= axis.in ? -1 : at;
}

// Outputs [begin, end) see inside by one tap of the last axis, output o at o * stride + offset.
struct Span {
  std::int64_t begin, end, offset;
};
Span inside(const WindowAxis& axis, std::int64_t tap) {
  const std::int64_t offset = tap * axis.dilation - axis.pad;
  const auto first_at_least = [&](std::int64_t place) {
    return place <= offset ? 0 : (place - offset + axis.stride - 1) / axis.stride;
  };
  const std::int64_t end = std::min(axis.out, first_at_least(axis.in));
  return {std::min(end, first_at_least(0)), end, offset};
}

// Calls f(span, image row or -1, place in col) for every row of every matrix row of col, in order.
template <class F>
void for_each_row(const ConvDesc& desc, std::int64_t channels, Rows rows, std::int64_t col_stride,
                  F f) {
  const WindowAxis& last = desc.axes.back();
  const std::int64_t outer_taps = desc.taps() / last.kernel, outer_in = desc.in_count() / last.in;
  const bool flat = desc.axes.size() == 2;
  std::int64_t matrix_row = 0;
  for (std::int64_t c = 0; c < channels; ++c)
    for (std::int64_t outer_tap = 0; outer_tap < outer_taps; ++outer_tap)
      for (std::int64_t tap = 0; tap < last.kernel; ++tap, ++matrix_row) {
        const Span span = inside(last, tap);
        std::int64_t place = matrix_row * col_stride;
        for (std::int64_t row = rows.begin; row < rows.end; ++row, place += last.out) {
          const std::int64_t at =
              flat ? input_row_2d(desc.axes[0], outer_tap, row) : input_row(desc, outer_tap, row);
          f(span, at < 0 ? -1 : (c * outer_in + at) * last.in, place);
        }
      }
}

}  // namespace

std::int64_t row_width(const ConvDesc& desc) { return desc.axes.back().out; }
std::int64_t row_count(const ConvDesc& desc) { return desc.out_count() / row_width(desc); }

void im2col(const ConvDesc& desc, std::int64_t channels, const float* image, Rows rows, float* col,
            std::int64_t col_stride) {
  const std::int64_t width = row_width(desc), stride = desc.axes.back().stride;
  for_each_row(desc, channels, rows, col_stride,
               [=](const Span& span, std::int64_t from, std::int64_t to) {
                 float* out = col + to;
                 if (from < 0) {
                   std::fill(out, out + width, 0.0f);
                   return;
                 }
                 const float* in = image + from + span.offset;
                 for (std::int64_t o = 0; o < span.begin; ++o) out[o] = 0;
                 if (stride == 1)
                   for (std::int64_t o = span.begin; o < span.end; ++o) out[o] = in[o];
                 else
                   for (std::int64_t o = span.begin; o < span.end; ++o) out[o] = in[o * stride];
                 for (std::int64_t o = span.end; o < width; ++o) out[o] = 0;
               });
}

void col2im(const ConvDesc& desc, std::int64_t channels, const float* col, std::int64_t col_stride,
            Rows rows, float* image) {
  const std::int64_t stride = desc.axes.back().stride;
  for_each_row(desc, channels, rows, col_stride,
               [=](const Span& span, std::int64_t to, std::int64_t from) {
                 if (to < 0) return;
                 const float* in = col + from;
                 float* out = image + to + span.offset;
                 if (stride == 1)
                   for (std::int64_t o = span.begin; o < span.end; ++o) out[o] += in[o];
                 else
                   for (std::int64_t o = span.begin; o < span.end; ++o) out[o * stride] += in[o];
               });
}

}  // namespace shoal::ops::cpu
