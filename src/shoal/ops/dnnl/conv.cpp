// oneDNN's convolution: by Winograd's algorithm where the library has it and sums of direct
// products are not asked for, with images in blocks of channels.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "shoal/ops/dnnl/engine.h"
#include "shoal/ops/dnnl/impls.h"
#include "shoal/ops/gemm.h"
#include "shoal/ops/pointwise.h"

namespace shoal::ops::dnnl {
namespace {

using lib::algorithm;
using lib::convolution_backward_data;
using lib::convolution_backward_weights;
using lib::convolution_forward;
using Desc = lib::memory::desc;
using Tag = lib::memory::format_tag;

// The sizes of a convolution in the library's terms.
struct Sizes {
  explicit Sizes(const ConvDesc& desc) {
    const std::int64_t groups = desc.groups, outputs = desc.outputs / groups,
                       channels = desc.channels / groups;
    x = {desc.images, desc.channels};
    y = {desc.images, desc.outputs};
    w = {outputs, channels};
    if (groups > 1) w.insert(w.begin(), groups);
    for (const WindowAxis& axis : desc.axes) {
      x.push_back(axis.in);
      y.push_back(axis.out);
      w.push_back(axis.kernel);
      stride.push_back(axis.stride);
      dilation.push_back(axis.dilation - 1);
      pad.push_back(axis.pad);
    }
  }
  lib::memory::dims x, w, y, stride, dilation, pad;
};

// Between the plain order of weights and that of a primitive. The primitive is made once.
class Reorder {
 public:
  Reorder(const Desc& from, const Desc& to, bool adds) : from_(from), to_(to) {
    lib::primitive_attr attributes = own_scratchpad();
    if (adds) {
      lib::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
    const lib::reorder::primitive_desc desc(engine(), from, engine(), to, attributes);
    scratchpad_ = desc.scratchpad_desc();
    reorder_ = lib::reorder(desc);
  }
  std::size_t scratchpad() const { return scratchpad_.get_size(); }
  void run(const void* from, void* to, std::byte* scratchpad) const {
    dnnl::run(reorder_, {{DNNL_ARG_FROM, over(from_, from)},
                         {DNNL_ARG_TO, over(to_, to)},
                         {DNNL_ARG_SCRATCHPAD, over(scratchpad_, scratchpad)}});
  }

 private:
  Desc from_, to_, scratchpad_;
  lib::reorder reorder_;
};

// A pass of a convolution: the primitive, and the weights (or their gradient) as it has them.
template <class Primitive>
struct Pass {
  typename Primitive::primitive_desc desc;
  Primitive primitive;
  bool winograd = false;
  explicit Pass(const typename Primitive::primitive_desc& made, bool by_winograd)
      : desc(made), primitive(made), winograd(by_winograd) {}
  std::size_t scratchpad() const { return desc.scratchpad_desc().get_size(); }
  lib::memory scratchpad_at(std::byte* bytes) const { return over(desc.scratchpad_desc(), bytes); }
};

// Makes the first of the algorithms that the library has code for.
template <class Primitive, class Describe>
std::optional<Pass<Primitive>> first_of(bool may_be_winograd, const Describe& describe) {
  for (const bool winograd : {true, false}) {
    if (winograd && !may_be_winograd) continue;
    try {
      const auto desc =
          describe(winograd ? algorithm::convolution_winograd : algorithm::convolution_direct);
      if (is_generated(desc.impl_info_str())) return Pass<Primitive>(desc, winograd);
    } catch (const lib::error&) {
    }
  }
  return std::nullopt;
}

// The three passes, and how images lie for them.
struct Passes {
  Passes(const ConvDesc& conv, const Context& ctx) {
    const ThreadsOf threads(ctx);
    const int block = channel_block();
    const auto f32 = lib::memory::data_type::f32;
    const Tag blocked = block == 16 ? Tag::nChw16c : Tag::nChw8c;
    // an image of few channels is read as it comes from the data
    reads_plain = conv.groups == 1 && conv.channels < block;
    in = blocked_channels(conv.channels, conv.in_count(), block);
    out = blocked_channels(conv.outputs, conv.out_count(), block);
    const Sizes sizes(conv);
    const Desc x(sizes.x, f32, reads_plain ? Tag::nchw : blocked), dx(sizes.x, f32, blocked),
        w(sizes.w, f32, Tag::any), b({conv.outputs}, f32, Tag::a), y(sizes.y, f32, blocked);
    const lib::primitive_attr attributes = own_scratchpad();
    const bool winograd = !ctx.direct_convolution() && conv.groups == 1;
    const auto forward_of = [&](algorithm how, const Desc& from) {
      return describe<convolution_forward>(attributes, lib::prop_kind::forward_training, how, from,
                                           w, b, y, sizes.stride, sizes.dilation, sizes.pad,
                                           sizes.pad);
    };
    forward =
        first_of<convolution_forward>(winograd, [&](algorithm how) { return forward_of(how, x); });
    weights = first_of<convolution_backward_weights>(winograd, [&](algorithm how) {
      return describe_backward<convolution_backward_weights>(attributes, forward_of(how, x), how, x,
                                                             w, b, y, sizes.stride, sizes.dilation,
                                                             sizes.pad, sizes.pad);
    });
    data = first_of<convolution_backward_data>(winograd, [&](algorithm how) {
      return describe_backward<convolution_backward_data>(attributes, forward_of(how, dx), how, dx,
                                                          w, y, sizes.stride, sizes.dilation,
                                                          sizes.pad, sizes.pad);
    });
    plain_w = Desc(sizes.w, f32, conv.groups > 1 ? Tag::abcde : Tag::abcd);
  }
  bool are_there() const { return forward && weights && data; }
  const LayoutPtr& input() const { return reads_plain ? plain : in; }

  bool reads_plain = false;
  LayoutPtr plain, in, out;  // of x in plain order; of x and dx in blocks; of y and dy
  std::optional<Pass<convolution_forward>> forward;
  std::optional<Pass<convolution_backward_data>> data;
  std::optional<Pass<convolution_backward_weights>> weights;
  Desc plain_w;
};

class Conv final : public ConvKernel {
 public:
  Conv(const ConvDesc& desc, Context& ctx)
      : desc_(desc),
        passes_(desc, ctx),
        pack_forward_(passes_.plain_w, passes_.forward->desc.weights_desc(), false),
        pack_data_(passes_.plain_w, passes_.data->desc.weights_desc(), false),
        unpack_(passes_.weights->desc.diff_weights_desc(), passes_.plain_w, !desc.overwrites_dw) {}

  KernelNeeds needs(const Context&) const override {
    return {.workspace = forward_room(nullptr).end,
            .input = passes_.in,
            .output = passes_.out,
            .backward_workspace = std::max(data_room(nullptr).end, weights_room(nullptr).end)};
  }
  std::string how() const override {
    const auto name = [](bool winograd) { return winograd ? "winograd" : "direct"; };
    return str("forward ", name(passes_.forward->winograd), ", to data ",
               name(passes_.data->winograd), ", to weights ", name(passes_.weights->winograd));
  }

  void forward(Context& ctx, const Tensor& x, const Tensor& w, const Tensor* b,
               Tensor& y) override {
    const ThreadsOf threads(ctx);
    const void* const in = x.read(ctx, passes_.input());
    void* const out = y.write(ctx, passes_.out);
    const Room room = forward_room(scratch(ctx, forward_room(nullptr).end));
    const void* const weights = packed_for_forward(ctx, w, room.scratchpad);
    const void* bias = room.bias;
    if (b != nullptr)
      bias = b->in();
    else
      std::fill_n(reinterpret_cast<float*>(room.bias), desc_.outputs, 0.0f);
    const auto& pass = *passes_.forward;
    run(pass.primitive, {{DNNL_ARG_SRC, over(pass.desc.src_desc(), in)},
                         {DNNL_ARG_WEIGHTS, over(pass.desc.weights_desc(), weights)},
                         {DNNL_ARG_BIAS, over(pass.desc.bias_desc(), bias)},
                         {DNNL_ARG_DST, over(pass.desc.dst_desc(), out)},
                         {DNNL_ARG_SCRATCHPAD, pass.scratchpad_at(room.scratchpad)}});
    // not by the library's own ReLU, which makes a zero of a NaN
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
  // Where a pass works in the context's scratch.
  struct Room {
    std::byte *scratchpad = nullptr, *weights = nullptr, *bias = nullptr;
    std::int64_t end = 0;  // floats of all of it
  };
  static std::byte* scratch(Context& ctx, std::int64_t floats) {
    return reinterpret_cast<std::byte*>(ctx.scratch(floats).data());
  }
  std::size_t bias_bytes() const { return static_cast<std::size_t>(desc_.outputs) * sizeof(float); }
  Room forward_room(std::byte* block) const {
    Pieces pieces(block);
    Room room;
    room.scratchpad =
        pieces.take(std::max(passes_.forward->scratchpad(), pack_forward_.scratchpad()));
    room.bias = pieces.take(bias_bytes());
    room.end = pieces.floats();
    return room;
  }
  Room data_room(std::byte* block) const {
    Pieces pieces(block);
    Room room;
    room.scratchpad = pieces.take(std::max(passes_.data->scratchpad(), pack_data_.scratchpad()));
    room.weights = pieces.take(passes_.data->desc.weights_desc().get_size());
    room.end = pieces.floats();
    return room;
  }
  Room weights_room(std::byte* block) const {
    Pieces pieces(block);
    Room room;
    room.scratchpad = pieces.take(std::max(passes_.weights->scratchpad(), unpack_.scratchpad()));
    room.weights = pieces.take(passes_.weights->desc.diff_weights_desc().get_size());
    room.bias = pieces.take(bias_bytes());
    room.end = pieces.floats();
    return room;
  }

  // The weights in the order of the forward pass, made anew when they have changed.
  const void* packed_for_forward(Context& ctx, const Tensor& w, std::byte* scratchpad) {
    const std::uint64_t version = w.storage()->version();
    if (!packed_)
      packed_ = host_memory(passes_.forward->desc.weights_desc().get_size());
    else if (packed_from_ == w.storage().get() && packed_version_ == version)
      return packed_->data();
    pack_forward_.run(w.read(ctx), packed_->data(), scratchpad);
    packed_from_ = w.storage().get();
    packed_version_ = version;
    return packed_->data();
  }

  void backward_data(Context& ctx, const Tensor& w, const Tensor& dy, Tensor& dx) {
    const void* const slope = dy.read(ctx, passes_.out);
    void* const out = dx.write(ctx, passes_.in);
    const Room room = data_room(scratch(ctx, data_room(nullptr).end));
    pack_data_.run(w.read(ctx), room.weights, room.scratchpad);
    const auto& pass = *passes_.data;
    run(pass.primitive, {{DNNL_ARG_DIFF_DST, over(pass.desc.diff_dst_desc(), slope)},
                         {DNNL_ARG_WEIGHTS, over(pass.desc.weights_desc(), room.weights)},
                         {DNNL_ARG_DIFF_SRC, over(pass.desc.diff_src_desc(), out)},
                         {DNNL_ARG_SCRATCHPAD, pass.scratchpad_at(room.scratchpad)}});
  }

  void backward_weights(Context& ctx, const Tensor& x, const Tensor& dy, Tensor& dw, Tensor* db) {
    const void* const in = x.read(ctx, passes_.input());
    const void* const slope = dy.read(ctx, passes_.out);
    const Room room = weights_room(scratch(ctx, weights_room(nullptr).end));
    const auto& pass = *passes_.weights;
    run(pass.primitive, {{DNNL_ARG_SRC, over(pass.desc.src_desc(), in)},
                         {DNNL_ARG_DIFF_DST, over(pass.desc.diff_dst_desc(), slope)},
                         {DNNL_ARG_DIFF_WEIGHTS, over(pass.desc.diff_weights_desc(), room.weights)},
                         {DNNL_ARG_DIFF_BIAS, over(pass.desc.diff_bias_desc(), room.bias)},
                         {DNNL_ARG_SCRATCHPAD, pass.scratchpad_at(room.scratchpad)}});
    unpack_.run(room.weights, desc_.overwrites_dw ? dw.write(ctx) : dw.mut(ctx), room.scratchpad);
    if (db == nullptr) return;
    float* const sums = db->mut();
    const auto* const made = reinterpret_cast<const float*>(room.bias);
    for (std::int64_t k = 0; k < desc_.outputs; ++k) sums[k] += made[k];
  }

  ConvDesc desc_;
  Passes passes_;
  Reorder pack_forward_, pack_data_, unpack_;
  std::shared_ptr<Memory> packed_;  // the weights for forward passes
  const Storage* packed_from_ = nullptr;
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
  if (!fills_blocks(desc.outputs, block) ||
      (desc.channels >= block && !fills_blocks(desc.channels, block)))
    return str("its blocks of ", block, " channels would be a quarter empty or more");
  const std::int64_t channels = desc.channels / desc.groups, outputs = desc.outputs / desc.groups;
  const bool depthwise = channels == 1 && outputs == 1;
  if (desc.groups > 1 && !depthwise && (channels % block != 0 || outputs % block != 0))
    return str("its groups of ", channels, " and ", outputs, " channels are no whole blocks of ",
               block);
  if (desc.is_empty()) return "there are no images";
  if (!Passes(desc, ctx).are_there()) return "the library has no code for this on this processor";
  return kYes;
}

}  // namespace

const ConvImpl kConv{"onednn", supports,
                     [](const ConvDesc& desc, Context& ctx) -> std::unique_ptr<ConvKernel> {
                       return std::make_unique<Conv>(desc, ctx);
                     }};

}  // namespace shoal::ops::dnnl
