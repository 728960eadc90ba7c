// Our own convolution on a CUDA device: columns and one product for each group, several images at a
// time. It serves every description and sums in the same order in every run.
#include <algorithm>
#include <memory>

#include "shoal/ops/cuda/columns.h"
#include "shoal/ops/cuda/elementary.h"
#include "shoal/ops/cuda/impls.h"
#include "shoal/ops/cuda/multiply.h"
#include "shoal/ops/cuda/numbers.h"

namespace shoal::ops::cuda {
namespace {

// Floats of columns and rows at a time, 256 MiB: products of this size fill the largest GPUs, and a
// net's batch leaves as much free on the smallest.
constexpr std::int64_t kMost = std::int64_t{64} << 20;

class Conv final : public ConvKernel {
 public:
  explicit Conv(const ConvDesc& desc)
      : desc_(desc),
        groups_(desc.groups),
        in_(desc.channels * desc.in_count()),
        out_(desc.outputs * desc.out_count()),
        columns_(desc.channels * desc.taps() * desc.out_count()),
        depth_(desc.channels / desc.groups * desc.taps()),
        outputs_(desc.outputs / desc.groups) {
    const std::int64_t images = std::max<std::int64_t>(1, desc.images);
    const std::int64_t most =
        std::clamp<std::int64_t>(kMost / std::max<std::int64_t>(1, columns_ + out_), 1, images);
    const std::int64_t blocks = (images + most - 1) / most;
    block_ = (images + blocks - 1) / blocks;
  }

  KernelNeeds needs(const Context&) const override {
    return {.workspace = block_ * (columns_ + out_)};
  }

  void forward(Context& ctx, const Tensor& x, const Tensor& w, const Tensor* b,
               Tensor& y) override {
    const float *const in = read(ctx, x), *const weight = read(ctx, w);
    const float* const bias = b == nullptr ? nullptr : read(ctx, *b);
    float* const out = write(ctx, y);
    const auto [columns, rows] = scratch(ctx);
    for (std::int64_t image = 0; image < desc_.images; image += block_) {
      const std::int64_t images = std::min(block_, desc_.images - image);
      to_columns(ctx, desc_, images, in + image * in_, columns);
      multiply(ctx, groups_, Trans::kNo, Trans::kNo, outputs_, images * desc_.out_count(), depth_,
               1, weight, columns, 0, rows);
      from_rows(ctx, desc_, images, rows, bias, out + image * out_);
    }
  }

  void backward(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& dy, Tensor* dx,
                Tensor* dw, Tensor* db) override {
    if (db != nullptr) add_bias_gradient(ctx, desc_.outputs, desc_.out_count(), dy, *db);
    if (dx == nullptr && dw == nullptr) return;
    const float* const slope = read(ctx, dy);
    const float* const in = dw == nullptr ? nullptr : read(ctx, x);
    const float* const weight = dx == nullptr ? nullptr : read(ctx, w);
    float* const sum = dw == nullptr         ? nullptr
                       : desc_.overwrites_dw ? write(ctx, *dw)
                                             : mut(ctx, *dw);
    float* const out = dx == nullptr ? nullptr : write(ctx, *dx);
    const auto [columns, rows] = scratch(ctx);
    for (std::int64_t image = 0; image < desc_.images; image += block_) {
      const std::int64_t images = std::min(block_, desc_.images - image),
                         width = images * desc_.out_count();
      to_rows(ctx, desc_, images, slope + image * out_, rows);
      if (sum != nullptr) {
        to_columns(ctx, desc_, images, in + image * in_, columns);
        multiply(ctx, groups_, Trans::kNo, Trans::kYes, outputs_, depth_, width, 1, rows, columns,
                 desc_.overwrites_dw && image == 0 ? 0 : 1, sum);
      }
      if (out != nullptr) {
        multiply(ctx, groups_, Trans::kYes, Trans::kNo, depth_, width, outputs_, 1, weight, rows, 0,
                 columns);
        from_columns(ctx, desc_, images, columns, out + image * in_);
      }
    }
  }

 private:
  struct Scratch {
    float *columns, *rows;
  };
  Scratch scratch(Context& ctx) const {
    float* const first = ctx.scratch(block_ * (columns_ + out_)).data();
    return {first, first + block_ * columns_};
  }

  ConvDesc desc_;
  std::int64_t groups_;
  std::int64_t in_, out_, columns_;  // numbers of one image
  std::int64_t depth_, outputs_;     // of a group: what an output sums; outputs
  std::int64_t block_;               // images at a time
};

}  // namespace

const ConvImpl kConv{"cuda", [](const ConvDesc&, const Context&) { return kYes; },
                     [](const ConvDesc& desc, Context&) -> std::unique_ptr<ConvKernel> {
                       return std::make_unique<Conv>(desc);
                     }};

}  // namespace shoal::ops::cuda
