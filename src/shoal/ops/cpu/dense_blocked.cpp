#include "shoal/ops/cpu/dense_blocked.h"

#include <cstddef>

#include "shoal/ops/cpu/parallel.h"
#include "shoal/ops/cpu/sgemm.h"

namespace shoal::ops::cpu {

LayoutPtr BlockedDense::serves(const Tensor& x) const {
  if (desc_.weight_is_kn || desc_.outputs >= desc_.rows) return nullptr;
  LayoutPtr layout = x.layout();
  const BlockedChannels* const lies = as_blocked(layout);
  const bool fits = lies != nullptr && lies->type == NumberType::kFloat32 && !lies->is_padded() &&
                    lies->channels * lies->inner == desc_.inputs;
  return fits ? layout : nullptr;
}

const float* BlockedDense::packed(Context& ctx, const LayoutPtr& layout, const Tensor& w) {
  const std::uint64_t version = w.storage()->version();
  if (packed_from_ == w.storage() && packed_version_ == version && same_layout(order_, layout))
    return packed_.data();
  const float* const plain = w.in();
  packed_.resize(static_cast<std::size_t>(w.count()));
  // An output's weights lie as an image.
  parallel_for(ctx.threads(), desc_.outputs, grain_of(desc_.inputs),
               [&](int, std::int64_t begin, std::int64_t end) {
                 const std::int64_t first = begin * desc_.inputs;
                 layout->pack(Shape{end - begin, desc_.inputs}, plain + first,
                              reinterpret_cast<std::byte*>(packed_.data() + first));
               });
  order_ = layout;
  packed_from_ = w.storage();
  packed_version_ = version;
  return packed_.data();
}

void BlockedDense::forward(Context& ctx, const LayoutPtr& layout, const Tensor& x, const Tensor& w,
                           Tensor& y) {
  const auto* const in = reinterpret_cast<const float*>(x.read(ctx, layout));
  sgemm_split(ctx.threads(), desc_.rows, desc_.outputs, desc_.inputs, 1,
              {Trans::kNo, in, desc_.inputs}, {Trans::kYes, packed(ctx, layout, w), desc_.inputs},
              0, y.out(), desc_.outputs);
}

void BlockedDense::backward_data(Context& ctx, const LayoutPtr& layout, const Tensor& w,
                                 const Tensor& dy, Tensor& dx) {
  auto* const out = reinterpret_cast<float*>(dx.write(ctx, layout));
  sgemm_split(ctx.threads(), desc_.rows, desc_.inputs, desc_.outputs, 1,
              {Trans::kNo, dy.in(), desc_.outputs},
              {Trans::kNo, packed(ctx, layout, w), desc_.inputs}, 0, out, desc_.inputs);
}

void BlockedDense::backward_weights(Context& ctx, const LayoutPtr& layout, const Tensor& x,
                                    const Tensor& dy, Tensor& dw) const {
  const auto* const in = reinterpret_cast<const float*>(x.read(ctx, layout));
  const std::int64_t count = dw.count();
  const bool adds = !desc_.overwrites_dw;
  float* const to = adds ? dw.mut() : dw.out();
  float* const made = ctx.scratch(adds ? 2 * count : count).data();
  sgemm_split(ctx.threads(), desc_.outputs, desc_.inputs, desc_.rows, 1,
              {Trans::kYes, dy.in(), desc_.outputs}, {Trans::kNo, in, desc_.inputs}, 0, made,
              desc_.inputs);
  parallel_for(ctx.threads(), desc_.outputs, grain_of(desc_.inputs),
               [&](int, std::int64_t begin, std::int64_t end) {
                 const std::int64_t first = begin * desc_.inputs, last = end * desc_.inputs;
                 float* const plain = adds ? made + count : to;
                 layout->unpack(Shape{end - begin, desc_.inputs},
                                reinterpret_cast<const std::byte*>(made + first), plain + first);
                 for (std::int64_t i = first; adds && i < last; ++i) to[i] += plain[i];
               });
}

}  // namespace shoal::ops::cpu
