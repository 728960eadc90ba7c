#include "shoal/ops/dnnl/conv_passes.h"

#include <vector>

namespace shoal::ops::dnnl {
namespace {

using lib::algorithm;
using lib::convolution_backward_data;
using lib::convolution_backward_weights;
using lib::convolution_forward;
using Desc = lib::memory::desc;
using Tag = lib::memory::format_tag;
constexpr auto kFloat = lib::memory::data_type::f32;

// The sizes of a convolution in the library's terms.
struct Sizes {
  explicit Sizes(const ConvDesc& desc) {
    x = {desc.images, desc.channels};
    y = {desc.images, desc.outputs};
    w = {desc.outputs / desc.groups, desc.channels / desc.groups};
    if (desc.groups > 1) w.insert(w.begin(), desc.groups);
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

// One way to make a pass.
struct Way {
  algorithm how;
  NumberType type;  // of the numbers that are multiplied
};

// Returns the ways by preference. Winograd's algorithm multiplies less by a factor of 2.25 to 4,
// and the library has it in float32 alone; with processors whose products of 16 bits are fast it is
// the faster one for large maps of many channels, where its transforms cost least.
std::vector<Way> ways_of(const ConvDesc& conv, const Context& ctx, NumberType lying,
                         bool winograd) {
  constexpr Way kWinograd{algorithm::convolution_winograd, NumberType::kFloat32};
  constexpr Way kWide{algorithm::convolution_direct, NumberType::kFloat32};
  constexpr Way kShort{algorithm::convolution_direct, NumberType::kBfloat16};
  const bool may = winograd && !ctx.direct_convolution() && conv.groups == 1;
  std::vector<Way> ways;
  if (may && lying == NumberType::kFloat32) ways.push_back(kWinograd);
  if (lying == NumberType::kBfloat16) {
    constexpr std::int64_t kManyChannels = 256, kLargeMap = 28 * 28;
    const bool is_large = conv.channels >= kManyChannels && conv.outputs >= kManyChannels &&
                          conv.out_count() >= kLargeMap;
    if (may && (is_large || short_products_are_slow())) ways.push_back(kWinograd);
    ways.push_back(kShort);
  }
  ways.push_back(kWide);
  return ways;
}

// Makes the first pass of these that the library has generated code for: describe(way) describes
// it, widened(desc, pass) gives it the copies that it needs.
template <class Primitive, class Describe, class Widen>
std::optional<Pass<Primitive>> first_of(const std::vector<Way>& ways, const Describe& describe,
                                        const Widen& widen) {
  for (const Way& way : ways) try {
      const auto desc = describe(way);
      if (!is_generated(desc.impl_info_str())) continue;
      Pass<Primitive> pass{desc, Primitive(desc), way.how == algorithm::convolution_winograd};
      widen(pass);
      return pass;
    } catch (const lib::error&) {
      // The library has no such pass.
    }
  return std::nullopt;
}

// Copies of images that lie otherwise than the primitive wants them.
Widened copies(const Images& images, const Desc& wanted) {
  return images.desc == wanted ? Widened() : Widened(images.desc, wanted);
}

}  // namespace

ConvPasses::ConvPasses(const ConvDesc& conv, const Context& ctx) {
  const ThreadsOf threads(ctx);
  const NumberType lying =
      ctx.precision() == Precision::kBfloat16 ? NumberType::kBfloat16 : NumberType::kFloat32;
  const int block = channel_block();
  const Tag blocked = block == 16 ? Tag::nChw16c : Tag::nChw8c;
  const Sizes sizes(conv);
  // An image of few channels is read as it comes from the data.
  const bool reads_plain = conv.groups == 1 && conv.channels < block;
  const Tag x_order = reads_plain ? Tag::nchw : blocked;
  const auto images = [&](const lib::memory::dims& dims, std::int64_t channels, std::int64_t inner,
                          Tag order) {
    const bool is_plain = order == Tag::nchw && lying == NumberType::kFloat32;
    return Images{is_plain
                      ? nullptr
                      : blocked_channels(channels, inner, order == Tag::nchw ? 1 : block, lying),
                  Desc(dims, type_of(lying), order)};
  };
  x = images(sizes.x, conv.channels, conv.in_count(), x_order);
  blocked_x = images(sizes.x, conv.channels, conv.in_count(), blocked);
  y = images(sizes.y, conv.outputs, conv.out_count(), blocked);
  plain_w = Desc(sizes.w, kFloat, conv.groups > 1 ? Tag::abcde : Tag::abcd);

  const lib::primitive_attr attributes = own_scratchpad();
  const auto ways = [&](bool winograd) { return ways_of(conv, ctx, lying, winograd); };
  const Desc b({conv.outputs}, kFloat, Tag::a), dw(sizes.w, kFloat, Tag::any);
  const auto w = [&](const Way& way) { return Desc(sizes.w, type_of(way.type), Tag::any); };
  const auto in = [&](const Way& way, Tag order) {
    return Desc(sizes.x, type_of(way.type), order);
  };
  const auto out = [&](const Way& way) { return Desc(sizes.y, type_of(way.type), blocked); };
  const auto forward_of = [&](const Way& way, Tag order) {
    return describe<convolution_forward>(attributes, lib::prop_kind::forward_training, way.how,
                                         in(way, order), w(way), b, out(way), sizes.stride,
                                         sizes.dilation, sizes.pad, sizes.pad);
  };
  forward = first_of<convolution_forward>(
      ways(conv.winograd.forward), [&](const Way& way) { return forward_of(way, x_order); },
      [&](auto& pass) {
        pass.first = copies(x, pass.desc.src_desc());
        pass.second = copies(y, pass.desc.dst_desc());
      });
  weights = first_of<convolution_backward_weights>(
      ways(conv.winograd.weights),
      [&](const Way& way) {
        return describe_backward<convolution_backward_weights>(
            attributes, forward_of(way, x_order), way.how, in(way, x_order), dw, b, out(way),
            sizes.stride, sizes.dilation, sizes.pad, sizes.pad);
      },
      [&](auto& pass) {
        pass.first = copies(x, pass.desc.src_desc());
        pass.second = copies(y, pass.desc.diff_dst_desc());
      });
  data = first_of<convolution_backward_data>(
      ways(conv.winograd.data),
      [&](const Way& way) {
        return describe_backward<convolution_backward_data>(
            attributes, forward_of(way, blocked), way.how, in(way, blocked), w(way), out(way),
            sizes.stride, sizes.dilation, sizes.pad, sizes.pad);
      },
      [&](auto& pass) {
        pass.first = copies(y, pass.desc.diff_dst_desc());
        pass.second = copies(blocked_x, pass.desc.diff_src_desc());
      });
}

}  // namespace shoal::ops::dnnl
