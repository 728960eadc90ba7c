// oneDNN's convolution: by Winograd's algorithm where the library has it and sums of direct
// products are not asked for, with images in blocks of channels.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "shoal/ops/dnnl/conv_passes.h"
#include "shoal/ops/dnnl/impls.h"
#include "shoal/ops/gemm.h"
#include "shoal/ops/pointwise.h"

namespace shoal::ops::dnnl {
namespace {

class Conv final : public ConvKernel {
 public:
  Conv(const ConvDesc& desc, Context& ctx)
      : desc_(desc),
        passes_(desc, ctx),
        pack_forward_(passes_.plain_w, passes_.forward->desc.weights_desc()),
        pack_data_(passes_.plain_w, passes_.data->desc.weights_desc()),
        unpack_(passes_.weights->desc.diff_weights_desc(), passes_.plain_w, !desc.overwrites_dw) {}

  KernelNeeds needs(const Context&) const override {
    return {.workspace = forward_room(nullptr).end,
            .input = passes_.blocked_x.layout,
            .output = passes_.y.layout,
            .backward_workspace = std::max(data_room(nullptr).end, weights_room(nullptr).end),
            .kept = static_cast<std::int64_t>(packed_bytes() / sizeof(float)),
            .has_winograd = winograd() != kNoPass};
  }
  std::string how() const override {
    return str("forward ", passes_.forward->name(), ", to data ", passes_.data->name(),
               ", to weights ", passes_.weights->name());
  }

  bool keeps_weights() const override { return true; }
  PassSet winograd() const override {
    return {passes_.forward->by_winograd, passes_.data->by_winograd, passes_.weights->by_winograd};
  }

  void forward(Context& ctx, const Tensor& x, const Tensor& w, const Tensor* b,
               Tensor& y) override {
    const ThreadsOf threads(ctx);
    const std::byte* const in = x.read(ctx, passes_.x.layout);
    std::byte* const out = y.write(ctx, passes_.y.layout);
    const Room room = forward_room(scratch(ctx, forward_room(nullptr).end));
    const void* const weights = packed_for_forward(ctx, w, room.scratchpad);
    const void* bias = room.bias;
    if (b != nullptr)
      bias = b->in();
    else
      std::fill_n(reinterpret_cast<float*>(room.bias), desc_.outputs, 0.0f);
    const auto& pass = *passes_.forward;
    run(pass.primitive,
        {{DNNL_ARG_SRC, over(pass.desc.src_desc(), pass.first.read(in, room.first))},
         {DNNL_ARG_WEIGHTS, over(pass.desc.weights_desc(), weights)},
         {DNNL_ARG_BIAS, over(pass.desc.bias_desc(), bias)},
         {DNNL_ARG_DST, over(pass.desc.dst_desc(), pass.second.place(out, room.second))},
         {DNNL_ARG_SCRATCHPAD, over(pass.desc.scratchpad_desc(), room.scratchpad)}});
    pass.second.write(room.second, out);
    // The library's own ReLU would make a zero of a NaN.
    if (desc_.relu) map(ctx, {MapKind::kRelu, *desc_.relu}, y, y);
  }

  void backward(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& dy, Tensor* dx,
                Tensor* dw, Tensor* db) override {
    const ThreadsOf threads(ctx);
    if (dw != nullptr)
      backward_weights(ctx, x, dy, *dw, db);
    else if (db != nullptr)
      add_bias_gradient(ctx, desc_.outputs, desc_.out_count(), dy, *db);
    if (dx != nullptr) backward_data(ctx, w, dy, *dx);
  }

 private:
  // Holds where a pass works in the context's scratch; first, second: float32 copies of its images.
  struct Room {
    std::byte *scratchpad = nullptr, *first = nullptr, *second = nullptr, *weights = nullptr,
              *bias = nullptr;
    std::int64_t end = 0;  // floats of all of it
  };
  static std::byte* scratch(Context& ctx, std::int64_t floats) {
    return reinterpret_cast<std::byte*>(ctx.scratch(floats).data());
  }
  template <class Primitive>
  Room room_of(std::byte* block, const Pass<Primitive>& pass, std::size_t reorder,
               std::size_t weights) const {
    Pieces pieces(block);
    Room room;
    room.scratchpad = pieces.take(std::max(pass.desc.scratchpad_desc().get_size(), reorder));
    room.first = pieces.take(pass.first.room());
    room.second = pieces.take(pass.second.room());
    room.weights = pieces.take(weights);
    room.bias = pieces.take(static_cast<std::size_t>(desc_.outputs) * sizeof(float));
    room.end = pieces.floats();
    return room;
  }
  Room forward_room(std::byte* block) const {
    return room_of(block, *passes_.forward, pack_forward_.scratchpad(), 0);
  }
  Room data_room(std::byte* block) const {
    return room_of(block, *passes_.data, pack_data_.scratchpad(),
                   passes_.data->desc.weights_desc().get_size());
  }
  Room weights_room(std::byte* block) const {
    return room_of(block, *passes_.weights, unpack_.scratchpad(),
                   passes_.weights->desc.diff_weights_desc().get_size());
  }

  std::size_t packed_bytes() const { return passes_.forward->desc.weights_desc().get_size(); }
  // Returns the weights in the order of the forward pass, made anew when they have changed.
  const void* packed_for_forward(Context& ctx, const Tensor& w, std::byte* scratchpad) {
    const std::uint64_t version = w.storage()->version();
    if (packed_ && packed_from_ == w.storage() && packed_version_ == version)
      return packed_->data();
    if (!packed_) packed_ = host_memory(packed_bytes());
    pack_forward_.run(w.read(ctx), packed_->data(), scratchpad);
    packed_from_ = w.storage();
    packed_version_ = version;
    return packed_->data();
  }

  void backward_data(Context& ctx, const Tensor& w, const Tensor& dy, Tensor& dx) {
    const std::byte* const slope = dy.read(ctx, passes_.y.layout);
    std::byte* const out = dx.write(ctx, passes_.blocked_x.layout);
    const Room room = data_room(scratch(ctx, data_room(nullptr).end));
    pack_data_.run(w.read(ctx), room.weights, room.scratchpad);
    const auto& pass = *passes_.data;
    run(pass.primitive,
        {{DNNL_ARG_DIFF_DST, over(pass.desc.diff_dst_desc(), pass.first.read(slope, room.first))},
         {DNNL_ARG_WEIGHTS, over(pass.desc.weights_desc(), room.weights)},
         {DNNL_ARG_DIFF_SRC, over(pass.desc.diff_src_desc(), pass.second.place(out, room.second))},
         {DNNL_ARG_SCRATCHPAD, over(pass.desc.scratchpad_desc(), room.scratchpad)}});
    pass.second.write(room.second, out);
  }

  void backward_weights(Context& ctx, const Tensor& x, const Tensor& dy, Tensor& dw, Tensor* db) {
    const std::byte* const in = x.read(ctx, passes_.x.layout);
    const std::byte* const slope = dy.read(ctx, passes_.y.layout);
    const Room room = weights_room(scratch(ctx, weights_room(nullptr).end));
    const auto& pass = *passes_.weights;
    run(pass.primitive,
        {{DNNL_ARG_SRC, over(pass.desc.src_desc(), pass.first.read(in, room.first))},
         {DNNL_ARG_DIFF_DST, over(pass.desc.diff_dst_desc(), pass.second.read(slope, room.second))},
         {DNNL_ARG_DIFF_WEIGHTS, over(pass.desc.diff_weights_desc(), room.weights)},
         {DNNL_ARG_DIFF_BIAS, over(pass.desc.diff_bias_desc(), room.bias)},
         {DNNL_ARG_SCRATCHPAD, over(pass.desc.scratchpad_desc(), room.scratchpad)}});
    unpack_.run(room.weights, desc_.overwrites_dw ? dw.write(ctx) : dw.mut(ctx), room.scratchpad);
    if (db == nullptr) return;
    float* const sums = db->mut();
    const auto* const made = reinterpret_cast<const float*>(room.bias);
    for (std::int64_t k = 0; k < desc_.outputs; ++k) sums[k] += made[k];
  }

  ConvDesc desc_;
  ConvPasses passes_;
  Reorder pack_forward_, pack_data_, unpack_;
  std::shared_ptr<Memory> packed_;  // the weights for forward passes, and what they were made of
  std::shared_ptr<Storage> packed_from_;
  std::uint64_t packed_version_ = 0;
};

// Blocks of channels with much room left multiply mostly zeros.
bool fills_blocks(std::int64_t channels, int block) {
  const std::int64_t padded = (channels + block - 1) / block * block;
  return 4 * channels >= 3 * padded;
}

Why supports(const ConvDesc& desc, const Context& ctx) {
  const int block = channel_block();
  if (desc.axes.size() != 2)
    return str("the bottom has ", desc.axes.size(), " spatial axes, not 2");
  if (desc.is_empty()) return "there are no images";
  constexpr int kWithAvx512 = 16;
  if (block < kWithAvx512 && ctx.precision() != Precision::kBfloat16)
    return "without AVX-512 its kernels are slower than ours";
  if (!fills_blocks(desc.outputs, block) ||
      (desc.channels >= block && !fills_blocks(desc.channels, block)))
    return str("its blocks of ", block, " channels would be a quarter empty or more");
  const std::int64_t channels = desc.channels / desc.groups, outputs = desc.outputs / desc.groups;
  const bool is_depthwise = channels == 1 && outputs == 1;
  if (desc.groups > 1 && !is_depthwise && (channels % block != 0 || outputs % block != 0))
    return str("its groups of ", channels, " and ", outputs, " channels are no whole blocks of ",
               block);
  if (!ConvPasses(desc, ctx).are_there())
    return "the library has no code for this on this processor";
  return kYes;
}

}  // namespace

const ConvImpl kConv{"onednn", supports,
                     [](const ConvDesc& desc, Context& ctx) -> std::unique_ptr<ConvKernel> {
                       return std::make_unique<Conv>(desc, ctx);
                     }};

}  // namespace shoal::ops::dnnl
