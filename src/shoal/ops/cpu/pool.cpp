#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "shoal/base/log.h"
#include "shoal/ops/cpu/impls.h"
#include "shoal/ops/cpu/parallel.h"

namespace shoal::ops::cpu {
namespace {

// The outputs of one axis whose tap `tap` is inside, and the input of output 0.
struct Span {
  std::int64_t begin, end, offset;
};
Span inside(const WindowAxis& axis, std::int64_t tap) {
  const std::int64_t offset = tap - axis.pad, begin = offset >= 0 ? 0 : (-offset + axis.stride - 1) / axis.stride;
  const std::int64_t end = offset >= axis.in ? 0 : std::min(axis.out, (axis.in - offset + axis.stride - 1) / axis.stride);
  return {std::min(begin, end), end, offset};
}

// The taps of one output that are inside are [begin, end); nothing is inside if they are equal.
struct Taps {
  std::int64_t begin, end;
};
Taps inside_at(const WindowAxis& axis, std::int64_t output) {
  const std::int64_t start = output * axis.stride - axis.pad;
  const std::int64_t begin = std::max<std::int64_t>(0, -start);
  return {begin, std::max(begin, std::min(axis.kernel, axis.in - start))};
}

bool sees_something(const WindowAxis& axis, std::int64_t output) {
  const Taps taps = inside_at(axis, output);
  return taps.begin < taps.end;
}

// How many places of the padded axis the window of one output covers.
float covered(const WindowAxis& axis, std::int64_t output) {
  const std::int64_t start = output * axis.stride - axis.pad;
  return static_cast<float>(std::max<std::int64_t>(1, std::min(start + axis.kernel, axis.in + axis.pad) - start));
}

// The inner loops, compiled for the strides that nets have and for any other.
template <class F>
void with_stride(std::int64_t stride, F f) {
  if (stride == 1) f(std::integral_constant<std::int64_t, 1>{});
  else if (stride == 2) f(std::integral_constant<std::int64_t, 2>{});
  else f(stride);
}

class Pool final : public PoolKernel {
 public:
  explicit Pool(const PoolDesc& desc) : desc_(desc), in_(desc.height.in * desc.width.in), out_(desc.height.out * desc.width.out) {
    for (std::int64_t tap = 0; tap < desc.width.kernel; ++tap) spans_.push_back(inside(desc.width, tap));
    for (std::int64_t o = 0; o < desc.width.out; ++o) covered_.push_back(covered(desc.width, o));
  }

  void forward(Context& ctx, const Tensor& x, Tensor& y, Tensor* index) override {
    const float* in = x.in();
    float* out = y.out();
    float* places = index == nullptr ? nullptr : index->out();
    const bool max = desc_.method == PoolDesc::Method::kMax, wants_winners = max && (desc_.keeps_winners || places != nullptr);
    CHECK(max || places == nullptr) << "average pooling has no winners";
    winners_.resize(desc_.keeps_winners && max ? static_cast<std::size_t>(desc_.planes * out_) : 0);
    each_plane(ctx, [&](std::int64_t plane, std::vector<std::int32_t>& row) {
      const float* from = in + plane * in_;
      if (!max) return average(from, out + plane * out_);
      if (!wants_winners) return largest<false>(from, out + plane * out_, nullptr);
      std::int32_t* winners = winners_.empty() ? row.data() : winners_.data() + plane * out_;
      largest<true>(from, out + plane * out_, winners);
      for (std::int64_t i = 0; places != nullptr && i < out_; ++i) places[plane * out_ + i] = static_cast<float>(winners[i]);
    });
  }

  void backward(Context& ctx, const Tensor& x, const Tensor& dy, Tensor& dx) override {
    const bool max = desc_.method == PoolDesc::Method::kMax;
    CHECK(!max || !desc_.keeps_winners || !winners_.empty() || desc_.planes == 0) << "backward before forward";
    const float *in = max && winners_.empty() ? x.in() : nullptr, *slope = dy.in();
    float* out = dx.out();
    each_plane(ctx, [&](std::int64_t plane, std::vector<std::int32_t>& row) {
      const float* from = slope + plane * out_;
      float* to = out + plane * in_;
      std::fill(to, to + in_, 0.0f);
      if (!max) return spread(from, to);
      const std::int32_t* winners = winners_.empty() ? row.data() : winners_.data() + plane * out_;
      if (in != nullptr) {
        std::vector<float> values(static_cast<std::size_t>(out_));
        largest<true>(in + plane * in_, values.data(), row.data());
      }
      for (std::int64_t i = 0; i < out_; ++i)
        if (winners[i] >= 0) to[winners[i]] += from[i];
    });
  }

 private:
  // f(plane, room for the winners of one plane); the room is empty if winners_ keeps them all.
  template <class F>
  void each_plane(Context& ctx, F f) {
    const std::size_t room = winners_.empty() && desc_.method == PoolDesc::Method::kMax ? static_cast<std::size_t>(out_) : 0;
    parallel_for(ctx.threads(), desc_.planes, kElementGrain / std::max<std::int64_t>(1, in_) + 1,
                 [&](int, std::int64_t begin, std::int64_t end) {
                   std::vector<std::int32_t> row(room);
                   for (std::int64_t plane = begin; plane < end; ++plane) f(plane, row);
                 });
  }

  // f(tap's input row, span of outputs) for every tap that output row `o` sees.
  template <class F>
  void each_tap(std::int64_t o, F f) const {
    const Taps taps = inside_at(desc_.height, o);
    for (std::int64_t tap = taps.begin; tap < taps.end; ++tap)
      for (const Span& span : spans_) f((o * desc_.height.stride - desc_.height.pad + tap) * desc_.width.in + span.offset, span);
  }

  template <bool kWinners>
  void largest(const float* in, float* out, std::int32_t* winners) const {
    const std::int64_t width = desc_.width.out;
    with_stride(desc_.width.stride, [&](auto stride) {
      for (std::int64_t o = 0; o < desc_.height.out; ++o, out += width, winners += kWinners ? width : 0) {
        std::fill(out, out + width, -std::numeric_limits<float>::infinity());
        if (kWinners) std::fill(winners, winners + width, -1);
        each_tap(o, [&](std::int64_t first, const Span& span) {
          for (std::int64_t i = span.begin; i < span.end; ++i) {
            const float value = in[first + i * stride];
            const bool wins = value > out[i];
            out[i] = wins ? value : out[i];
            if (kWinners) winners[i] = wins ? static_cast<std::int32_t>(first + i * stride) : winners[i];
          }
        });
        clear_blind(o, out);
      }
    });
  }

  // Windows that lie wholly outside.
  void clear_blind(std::int64_t o, float* row) const {
    const std::int64_t width = desc_.width.out;
    if (!sees_something(desc_.height, o)) std::fill(row, row + width, 0.0f);
    for (std::int64_t i = width; i > 0 && !sees_something(desc_.width, i - 1); --i) row[i - 1] = 0;
  }

  void average(const float* in, float* out) const {
    const std::int64_t width = desc_.width.out;
    with_stride(desc_.width.stride, [&](auto stride) {
      for (std::int64_t o = 0; o < desc_.height.out; ++o, out += width) {
        std::fill(out, out + width, 0.0f);
        if (width == 1) out[0] = sum_of_rows(in, o);
        else
          each_tap(o, [&](std::int64_t first, const Span& span) {
            for (std::int64_t i = span.begin; i < span.end; ++i) out[i] += in[first + i * stride];
          });
        const float rows = covered(desc_.height, o);
        for (std::int64_t i = 0; i < width; ++i) out[i] /= rows * covered_[static_cast<std::size_t>(i)];
      }
    });
  }

  // Of output row `o` where there is one output in a row: global pooling.
  float sum_of_rows(const float* in, std::int64_t o) const {
    const Taps rows = inside_at(desc_.height, o), columns = inside_at(desc_.width, 0);
    const std::int64_t top = o * desc_.height.stride - desc_.height.pad, left = columns.begin - desc_.width.pad;
    float total = 0;
    for (std::int64_t row = rows.begin; row < rows.end; ++row)
      total += sum(in + (top + row) * desc_.width.in + left, columns.end - columns.begin);
    return total;
  }

  void spread(const float* dy, float* dx) const {
    std::vector<float> share(covered_.size());
    with_stride(desc_.width.stride, [&](auto stride) {
      for (std::int64_t o = 0; o < desc_.height.out; ++o, dy += share.size()) {
        const float rows = covered(desc_.height, o);
        for (std::size_t i = 0; i < share.size(); ++i) share[i] = dy[i] / (rows * covered_[i]);
        each_tap(o, [&](std::int64_t first, const Span& span) {
          for (std::int64_t i = span.begin; i < span.end; ++i) dx[first + i * stride] += share[static_cast<std::size_t>(i)];
        });
      }
    });
  }

  PoolDesc desc_;
  std::int64_t in_, out_;               // numbers of one plane
  std::vector<Span> spans_;             // for each tap of the width
  std::vector<float> covered_;          // for each output of the width
  std::vector<std::int32_t> winners_;   // h * W + w for each output of the last forward, -1 for none; empty if nobody asked
};

}  // namespace

const PoolImpl kPool{"plain", on_host<PoolDesc>, make_kernel<Pool, PoolKernel, PoolDesc>};

}  // namespace shoal::ops::cpu
