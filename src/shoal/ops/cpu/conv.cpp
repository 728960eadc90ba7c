#include <algorithm>

#include "shoal/ops/cpu/columns.h"
#include "shoal/ops/cpu/impls.h"
#include "shoal/ops/cpu/parallel.h"
#include "shoal/ops/cpu/relu.h"
#include "shoal/ops/cpu/sgemm.h"

namespace shoal::ops::cpu {

ConvDesc with_two_axes(ConvDesc desc) {
  while (desc.axes.size() < 2) desc.axes.insert(desc.axes.begin(), WindowAxis{});
  return desc;
}

float* sums_of(const ConvDesc& desc, Tensor& dw) {
  if (desc.overwrites_dw) std::ranges::fill(dw.host_out(), 0.0f);
  return dw.mut();
}

bool sees_itself(const ConvDesc& desc) {
  return std::ranges::all_of(
      desc.axes, [](const WindowAxis& a) { return a.kernel == 1 && a.stride == 1 && a.pad == 0; });
}

namespace {

// Columns and one product for each image and group, on one thread each; the images are divided
// among the threads.
class Conv final : public ConvKernel {
 public:
  explicit Conv(const ConvDesc& desc)
      : desc_(with_two_axes(desc)),
        direct_(sees_itself(desc)),
        in_(desc.in_count()),
        places_(desc.out_count()),
        channels_(desc.channels / desc.groups),
        outputs_(desc.outputs / desc.groups),
        depth_(channels_ * desc.taps()) {
    // Floats: half of a usual L2, and 16 MB.
    constexpr std::int64_t kColumnsInCache = 1 << 17, kColumnsAtMost = 1 << 22;
    const std::int64_t all = row_count(desc_), columns = depth_ * row_width(desc_);
    block_rows_ = direct_ ? all : std::clamp<std::int64_t>(kColumnsInCache / columns, 1, all);
    backward_rows_ = direct_ ? all : std::clamp<std::int64_t>(kColumnsAtMost / columns, 1, all);
  }

  KernelNeeds needs(const Context& ctx) const override {
    const std::int64_t threads = ctx.threads(), weights = desc_.outputs * depth_;
    const std::int64_t backward = desc_.images < threads
                                      ? channel_block() * channels_
                                      : backward_block() * threads + (threads - 1) * weights;
    return {.workspace = std::max(forward_block() * threads, backward)};
  }

  void forward(Context& ctx, const Tensor& x, const Tensor& w, const Tensor* b,
               Tensor& y) override {
    const float *in = x.in(), *weight = w.in(), *bias = b == nullptr ? nullptr : b->in();
    float* out = y.out();
    const std::int64_t blocks = (row_count(desc_) + block_rows_ - 1) / block_rows_,
                       tasks = desc_.images * desc_.groups * blocks;
    const std::int64_t block = forward_block();
    float* scratch = ctx.scratch(block * ctx.threads()).data();
    parallel_for(ctx.threads(), tasks, 1, [&](int thread, std::int64_t begin, std::int64_t end) {
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t part = task / blocks, first = task % blocks * block_rows_;
        const Rows rows{first, std::min(first + block_rows_, row_count(desc_))};
        forward_rows(part % desc_.groups, in + part * channels_ * in_, weight, bias, rows,
                     scratch + thread * block, out + part * outputs_ * places_);
      }
    });
  }

  void backward(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& dy, Tensor* dx,
                Tensor* dw, Tensor* db) override {
    if (db != nullptr) add_bias_gradient(ctx, desc_.outputs, places_, dy, *db);
    if (dx == nullptr && dw == nullptr) return;
    Gradients g{dw == nullptr ? nullptr : x.in(), dx == nullptr ? nullptr : w.in(), dy.in(),
                dx == nullptr ? nullptr : dx->out()};
    float* sum = dw == nullptr ? nullptr : sums_of(desc_, *dw);
    if (desc_.images < ctx.threads()) return backward_by_channel(ctx, g, sum);
    backward_by_image(ctx, g, sum, dw == nullptr ? 0 : dw->count());
  }

 private:
  // Returns the floats of columns of one thread; backward by channel: of one channel.
  std::int64_t forward_block() const {
    return direct_ ? 0 : depth_ * block_rows_ * row_width(desc_);
  }
  std::int64_t backward_block() const {
    return direct_ ? 0 : depth_ * backward_rows_ * row_width(desc_);
  }
  std::int64_t channel_block() const {
    return direct_ ? 0 : desc_.taps() * backward_rows_ * row_width(desc_);
  }

  struct Gradients {
    const float *x, *w, *dy;
    float* dx;
  };

  void forward_rows(std::int64_t group, const float* image, const float* weight, const float* bias,
                    Rows rows, float* col, float* out) const {
    const std::int64_t width = (rows.end - rows.begin) * row_width(desc_),
                       offset = rows.begin * row_width(desc_);
    In columns{Trans::kNo, image, in_};
    if (!direct_) {
      im2col(desc_, channels_, image, rows, col, width);
      columns = {Trans::kNo, col, width};
    }
    sgemm(outputs_, width, depth_, 1, {Trans::kNo, weight + group * outputs_ * depth_, depth_},
          columns, 0, out + offset, places_);
    for (std::int64_t o = 0; bias != nullptr && o < outputs_; ++o) {
      const float value = bias[group * outputs_ + o];
      for (float* at = out + o * places_ + offset; at < out + o * places_ + offset + width; ++at)
        *at += value;
    }
    for (std::int64_t o = 0; desc_.relu && o < outputs_; ++o)
      relu_in_place(*desc_.relu, out + o * places_ + offset, width);
  }

  // Each thread has images of its own and sums its share of dw apart; the shares are added in the
  // order of the threads.
  void backward_by_image(Context& ctx, const Gradients& g, float* dw, std::int64_t weights) const {
    const std::int64_t block = backward_block();
    const std::int64_t shares = dw == nullptr ? 0 : ctx.threads() - 1;
    float* col = ctx.scratch(block * ctx.threads() + shares * weights).data();
    float* share = col + block * ctx.threads();
    std::fill(share, share + shares * weights, 0.0f);
    parallel_for(ctx.threads(), desc_.images, 1,
                 [&](int thread, std::int64_t begin, std::int64_t end) {
                   float* mine = thread == 0 || dw == nullptr ? dw : share + (thread - 1) * weights;
                   for (std::int64_t part = begin * desc_.groups; part < end * desc_.groups; ++part)
                     backward_channels(g, part, 0, channels_, col + thread * block, mine);
                 });
    parallel_for(ctx.threads(), shares == 0 ? 0 : weights, kElementGrain,
                 [&](int, std::int64_t begin, std::int64_t end) {
                   for (std::int64_t s = 0; s < shares; ++s)
                     for (std::int64_t i = begin; i < end; ++i) dw[i] += share[s * weights + i];
                 });
  }

  // Serves fewer images than threads: each thread has input channels of its own.
  void backward_by_channel(Context& ctx, const Gradients& g, float* dw) const {
    const std::int64_t channel = channel_block();
    float* col = ctx.scratch(channel * channels_).data();
    parallel_for(ctx.threads(), channels_, 1, [&](int, std::int64_t begin, std::int64_t end) {
      for (std::int64_t part = 0; part < desc_.images * desc_.groups; ++part)
        backward_channels(g, part, begin, end, col + begin * channel, dw);
    });
  }

  // Goes backward for one image and group (`part` counts both) and the channels [begin, end) of the
  // group.
  void backward_channels(const Gradients& g, std::int64_t part, std::int64_t begin,
                         std::int64_t end, float* col, float* dw) const {
    const std::int64_t group = part % desc_.groups, taps = desc_.taps(),
                       depth = (end - begin) * taps;
    const std::int64_t weights = group * outputs_ * depth_ + begin * taps,
                       image = (part * channels_ + begin) * in_;
    const float* x = g.x == nullptr ? nullptr : g.x + image;
    float* dx = g.dx == nullptr ? nullptr : g.dx + image;
    if (dx != nullptr && !direct_) std::fill(dx, dx + (end - begin) * in_, 0.0f);
    for (std::int64_t row = 0; row < row_count(desc_); row += backward_rows_) {
      const Rows rows{row, std::min(row + backward_rows_, row_count(desc_))};
      const std::int64_t width = (rows.end - rows.begin) * row_width(desc_);
      const In dy{Trans::kNo, g.dy + part * outputs_ * places_ + row * row_width(desc_), places_};
      if (dw != nullptr) {
        if (!direct_) im2col(desc_, end - begin, x, rows, col, width);
        sgemm(outputs_, depth, width, 1, dy, {Trans::kYes, direct_ ? x : col, width}, 1,
              dw + weights, depth_);
      }
      if (dx == nullptr) continue;
      sgemm(depth, width, outputs_, 1, {Trans::kYes, g.w + weights, depth_}, dy, 0,
            direct_ ? dx : col, width);
      if (!direct_) col2im(desc_, end - begin, col, width, rows, dx);
    }
  }

  ConvDesc desc_;
  // `direct_`: x is its own columns (1x1, stride 1, no padding).
  bool direct_;
  // Inputs and places of one channel; channels and outputs of one group; rows of its columns.
  std::int64_t in_, places_, channels_, outputs_, depth_;
  // Output rows whose columns are made at a time.
  std::int64_t block_rows_ = 1, backward_rows_ = 1;
};

class Im2col final : public Im2colKernel {
 public:
  explicit Im2col(const ConvDesc& desc) : desc_(with_two_axes(desc)) {}

  void forward(Context& ctx, const Tensor& x, Tensor& y) override {
    const float* in = x.in();
    float* out = y.out();
    each_channel(ctx, [&](std::int64_t channel) {
      im2col(desc_, 1, in + channel * desc_.in_count(), {0, row_count(desc_)},
             out + channel * column(), desc_.out_count());
    });
  }
  void backward(Context& ctx, const Tensor& dy, Tensor& dx) override {
    const float* in = dy.in();
    float* out = dx.out();
    each_channel(ctx, [&](std::int64_t channel) {
      float* to = out + channel * desc_.in_count();
      std::fill(to, to + desc_.in_count(), 0.0f);
      col2im(desc_, 1, in + channel * column(), desc_.out_count(), {0, row_count(desc_)}, to);
    });
  }

 private:
  std::int64_t column() const { return desc_.taps() * desc_.out_count(); }
  template <class F>
  void each_channel(Context& ctx, F f) const {
    parallel_for(ctx.threads(), desc_.images * desc_.channels, 1,
                 [&](int, std::int64_t begin, std::int64_t end) {
                   for (std::int64_t channel = begin; channel < end; ++channel) f(channel);
                 });
  }
  ConvDesc desc_;
};

}  // namespace

const ConvImpl kConv{"plain", serves_all<ConvDesc>, make_kernel<Conv, ConvKernel, ConvDesc>};
const Im2colImpl kIm2col{"plain", serves_all<ConvDesc>,
                         make_kernel<Im2col, Im2colKernel, ConvDesc>};

}  // namespace shoal::ops::cpu
