#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "shoal/base/log.h"
#include "shoal/ops/cpu/impls.h"
#include "shoal/ops/cpu/lanes.h"
#include "shoal/ops/cpu/parallel.h"
#include "shoal/ops/cpu/pool_blocked.h"
#include "shoal/ops/cpu/taps.h"

namespace shoal::ops::cpu {
namespace {

bool sees_something(const WindowAxis& axis, std::int64_t output) {
  const Taps taps = inside_at(axis, output);
  return taps.begin < taps.end;
}

using Ints = std::int32_t __attribute__((vector_size(32)));

Ints all(std::int32_t value) { return Ints{} + value; }

// Every stride-th number from `at` on; kStride 0 is a stride known only now. Reads 8 * stride
// numbers at most.
template <int kStride>
Lanes pick(const float* at, std::int64_t stride) {
  if constexpr (kStride == 1) return load(at);
  if constexpr (kStride == 2)
    return __builtin_shufflevector(load(at), load(at + kLanes), 0, 2, 4, 6, 8, 10, 12, 14);
  Lanes lanes;
  for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = at[lane * stride];
  return lanes;
}

class Pool final : public PoolKernel {
 public:
  explicit Pool(const PoolDesc& desc)
      : desc_(desc),
        blocked_(desc),
        max_(desc.method == PoolDesc::Method::kMax),
        in_(desc.height.in * desc.width.in),
        out_(desc.height.out * desc.width.out),
        pitch_((desc.width.out + kLanes) * desc.width.stride +
               std::max(desc.width.kernel, desc.width.pad + desc.width.in)) {
    for (std::int64_t o = 0; o < desc.width.out; ++o) {
      const Taps taps = inside_at(desc.width, o);
      const std::int64_t start = o * desc.width.stride - desc.width.pad;
      columns_.push_back({start + taps.begin, start + taps.end, covered(desc.width, o)});
    }
  }

  void forward(Context& ctx, const Tensor& x, Tensor& y, Tensor* index,
               const Random::State&) override {
    in_blocks_ = index == nullptr && blocked_.serves(x) != nullptr;
    if (in_blocks_) return blocked_.forward(ctx, x, y);
    const float* in = x.in();
    float* out = y.out();
    float* places = index == nullptr ? nullptr : index->out();
    if (!max_) {
      CHECK(places == nullptr) << "average pooling has no winners";
      return each_plane(ctx, [&](std::int64_t plane, Room& room) {
        average(in + plane * in_, out + plane * out_, room);
      });
    }
    winners_.resize(desc_.keeps_winners ? static_cast<std::size_t>(desc_.planes * out_) : 0);
    each_plane(ctx, [&](std::int64_t plane, Room& room) {
      std::int32_t* winners = nullptr;
      if (places != nullptr) winners = room.winners.data();
      if (desc_.keeps_winners) winners = winners_.data() + plane * out_;
      largest(in + plane * in_, out + plane * out_, winners, room);
      for (std::int64_t i = 0; places != nullptr && i < out_; ++i)
        places[plane * out_ + i] = static_cast<float>(winners[i]);
    });
  }

  void backward(Context& ctx, const Tensor& x, const Tensor& dy, Tensor& dx) override {
    if (in_blocks_ && (!max_ || desc_.keeps_winners)) return blocked_.backward(ctx, dy, dx);
    CHECK(!max_ || !desc_.keeps_winners || !winners_.empty() || desc_.planes == 0)
        << "backward before forward";
    const float *in = max_ && winners_.empty() ? x.in() : nullptr, *slope = dy.in();
    float* out = dx.out();
    each_plane(ctx, [&](std::int64_t plane, Room& room) {
      const float* from = slope + plane * out_;
      float* to = out + plane * in_;
      std::fill(to, to + in_, 0.0f);
      if (!max_) return spread(from, to, room);
      if (in != nullptr) largest(in + plane * in_, room.values.data(), room.winners.data(), room);
      const std::int32_t* winners =
          in != nullptr ? room.winners.data() : winners_.data() + plane * out_;
      for (std::int64_t i = 0; i < out_; ++i)
        if (winners[i] >= 0) to[winners[i]] += from[i];
    });
  }

 private:
  // The scratch of one thread, for one plane at a time.
  struct Room {
    // For kMax, the plane with all that windows see beyond it, which is -infinity.
    std::vector<float> bordered;
    std::vector<float> values, row;  // the outputs of a plane; a row of sums
    std::vector<std::int32_t> winners;
  };

  // Calls f(plane, room) for each plane.
  template <class F>
  void each_plane(Context& ctx, F f) const {
    parallel_for(ctx.threads(), desc_.planes, grain_of(in_),
                 [&](int, std::int64_t begin, std::int64_t end) {
                   Room room;
                   if (max_) {
                     const std::int64_t rows =
                         (desc_.height.out - 1) * desc_.height.stride + desc_.height.kernel;
                     room.bordered.assign(static_cast<std::size_t>(rows * pitch_), kLowest);
                     room.winners.resize(static_cast<std::size_t>(out_));
                     room.values.resize(desc_.keeps_winners ? 0 : static_cast<std::size_t>(out_));
                   }
                   room.row.resize(static_cast<std::size_t>(desc_.width.in));
                   for (std::int64_t plane = begin; plane < end; ++plane) f(plane, room);
                 });
  }

  // `winners` may be null.
  void largest(const float* in, float* out, std::int32_t* winners, Room& room) const {
    const WindowAxis &height = desc_.height, &width = desc_.width;
    const std::int64_t rows =
        std::min(height.in, (height.out - 1) * height.stride + height.kernel - height.pad);
    const std::int64_t columns =
        std::min(width.in, (width.out - 1) * width.stride + width.kernel - width.pad);
    for (std::int64_t row = 0; row < rows; ++row)
      std::copy_n(in + row * width.in, columns,
                  room.bordered.data() + (row + height.pad) * pitch_ + width.pad);
    winners != nullptr ? choose_scan<true>(room, out, winners)
                       : choose_scan<false>(room, out, winners);
    for (std::int64_t row = 0; row < height.out; ++row) {
      const bool blind = !sees_something(height, row);
      for (std::int64_t i = width.out; i > 0 && (blind || !sees_something(width, i - 1)); --i)
        out[row * width.out + i - 1] = 0;
    }
  }

  // The loops, compiled for the windows that nets have.
  template <bool kWinners>
  void choose_scan(const Room& room, float* out, std::int32_t* winners) const {
    const std::int64_t kernel = desc_.height.kernel == desc_.width.kernel ? desc_.width.kernel : 0,
                       stride = desc_.width.stride;
    if (kernel == 3 && stride == 2)
      scan<kWinners, 2, 3>(room, out, winners);
    else if (kernel == 3 && stride == 1)
      scan<kWinners, 1, 3>(room, out, winners);
    else if (kernel == 2 && stride == 2)
      scan<kWinners, 2, 2>(room, out, winners);
    else if (stride == 1)
      scan<kWinners, 1, 0>(room, out, winners);
    else if (stride == 2)
      scan<kWinners, 2, 0>(room, out, winners);
    else
      scan<kWinners, 0, 0>(room, out, winners);
  }

  template <bool kWinners, int kStride, int kKernel>
  void scan(const Room& room, float* out, std::int32_t* winners) const {
    const WindowAxis &height = desc_.height, &width = desc_.width;
    const std::int64_t taps_h = kKernel > 0 ? kKernel : height.kernel,
                       taps_w = kKernel > 0 ? kKernel : width.kernel;
    for (std::int64_t row = 0; row < height.out; ++row) {
      const float* from = room.bordered.data() + row * height.stride * pitch_;
      // The place of the first window's first tap.
      const std::int64_t corner = (row * height.stride - height.pad) * width.in - width.pad;
      for (std::int64_t i = 0; i < width.out; i += kLanes) {
        Lanes best = Lanes{} + kLowest;
        Ints winner = all(-1);
        for (std::int64_t h = 0; h < taps_h; ++h)
          for (std::int64_t w = 0; w < taps_w; ++w) {
            const Lanes value =
                pick<kStride>(from + h * pitch_ + w + i * width.stride, width.stride);
            const Ints wins = value > best;
            best = wins ? value : best;
            if (kWinners) winner = wins ? all(static_cast<std::int32_t>(h * width.in + w)) : winner;
          }
        const std::size_t bytes =
            static_cast<std::size_t>(std::min<std::int64_t>(kLanes, width.out - i)) * sizeof(float);
        std::memcpy(out + row * width.out + i, &best, bytes);
        if (!kWinners) continue;
        const Ints place = winner + static_cast<std::int32_t>(corner + i * width.stride) +
                           kIota * static_cast<std::int32_t>(width.stride);
        const Ints kept = winner < 0 ? all(-1) : place;
        std::memcpy(winners + row * width.out + i, &kept, bytes);
      }
    }
  }

  // Sums along columns first, then along rows.
  void average(const float* in, float* out, Room& room) const {
    for (std::int64_t o = 0; o < desc_.height.out; ++o, out += desc_.width.out) {
      const Taps rows = inside_at(desc_.height, o);
      std::ranges::fill(room.row, 0.0f);
      for (std::int64_t tap = rows.begin; tap < rows.end; ++tap) {
        const float* from =
            in + (o * desc_.height.stride - desc_.height.pad + tap) * desc_.width.in;
        for (std::size_t i = 0; i < room.row.size(); ++i) room.row[i] += from[i];
      }
      const float area = covered(desc_.height, o);
      for (std::size_t i = 0; i < columns_.size(); ++i) {
        const Columns& seen = columns_[i];
        float total = 0;
        for (std::int64_t c = seen.begin; c < seen.end; ++c)
          total += room.row[static_cast<std::size_t>(c)];
        out[i] = total / (area * seen.covered);
      }
    }
  }

  void spread(const float* dy, float* dx, Room& room) const {
    for (std::int64_t o = 0; o < desc_.height.out; ++o, dy += desc_.width.out) {
      const float area = covered(desc_.height, o);
      std::ranges::fill(room.row, 0.0f);
      for (std::size_t i = 0; i < columns_.size(); ++i) {
        const Columns& seen = columns_[i];
        const float share = dy[i] / (area * seen.covered);
        for (std::int64_t c = seen.begin; c < seen.end; ++c)
          room.row[static_cast<std::size_t>(c)] += share;
      }
      const Taps rows = inside_at(desc_.height, o);
      for (std::int64_t tap = rows.begin; tap < rows.end; ++tap) {
        float* to = dx + (o * desc_.height.stride - desc_.height.pad + tap) * desc_.width.in;
        for (std::size_t i = 0; i < room.row.size(); ++i) to[i] += room.row[i];
      }
    }
  }

  static constexpr float kLowest = -std::numeric_limits<float>::infinity();
  static constexpr Ints kIota{0, 1, 2, 3, 4, 5, 6, 7};

  // The window of one output of a row: columns [begin, end), and how many of the padded plane its
  // window covers.
  struct Columns {
    std::int64_t begin, end;
    float covered;
  };

  PoolDesc desc_;
  BlockedPool blocked_;
  bool in_blocks_ = false;  // the last forward pass was blocked_'s
  bool max_;
  std::int64_t in_, out_;         // numbers of one plane
  std::int64_t pitch_;            // of the bordered plane
  std::vector<Columns> columns_;  // for each output of a row
  // Winners are h * W + w for each output of the last forward, -1 for none; empty if not kept.
  std::vector<std::int32_t> winners_;
};

}  // namespace

const PoolImpl kPool{"plain", serves_all<PoolDesc>,
                     [](const PoolDesc& desc, Context&) -> std::unique_ptr<PoolKernel> {
                       using Method = PoolDesc::Method;
                       if (desc.method == Method::kMax || desc.method == Method::kAverage)
                         return std::make_unique<Pool>(desc);
                       return make_weighted_pool(desc);
                     }};

}  // namespace shoal::ops::cpu
