// Reads kernel, stride, pad and dilation of convolution_param.
#include "shoal/layers/window.h"

#include <optional>

#include "shoal/base/log.h"
#include "shoal/layers/filler.h"
#include "shoal/ops/backend.h"
#include "shoal/ops/tuning.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

using Values = google::protobuf::RepeatedField<std::uint32_t>;

using Given = std::optional<std::int64_t>;

// Returns one value an axis: from the repeated field `all`, or from the pair _h and _w, which are
// for two axes; `value` where nothing is given.
std::vector<std::int64_t> spread(const LayerParameter& param, const char* field, int axes,
                                 const Values& all, Given h, Given w, std::int64_t value) {
  if (h || w) {
    if (axes != 2)
      throw config_error(param, field, "_h and ", field,
                         "_w are for 2 spatial axes; the bottom has ", axes);
    if (!all.empty())
      throw config_error(param, field, " is given both for all axes and as ", field, "_h or ",
                         field, "_w; give one of them");
    return {h.value_or(value), w.value_or(value)};
  }
  if (all.size() > 1 && all.size() != axes)
    throw config_error(param, field, " has ", all.size(), " values for ", axes,
                       " spatial axes; give one, or one an axis");
  std::vector<std::int64_t> values;
  for (int i = 0; i < axes; ++i)
    values.push_back(all.empty() ? value : all[all.size() == 1 ? 0 : i]);
  return values;
}

// A window of bounded numbers spans what 64 bits hold.
void check_range(const LayerParameter& param, const char* field, std::int64_t least,
                 const std::vector<std::int64_t>& values) {
  for (const std::int64_t value : values)
    if (value < least || value > Shape::kMaxCount)
      throw config_error(param, field, " is ", value, "; it must be from ", least, " to ",
                         Shape::kMaxCount);
}

}  // namespace

std::vector<ops::WindowAxis> read_window(const LayerParameter& param, int axes) {
  const ConvolutionParameter& conv = param.convolution_param();
  if (conv.kernel_size_size() == 0 && axes > 0 && !(conv.has_kernel_h() && conv.has_kernel_w()))
    throw config_error(param, "convolution_param needs kernel_size, or kernel_h and kernel_w");
  const auto given = [](bool has, std::uint32_t value) { return has ? Given(value) : Given(); };
  const auto kernel =
      spread(param, "kernel", axes, conv.kernel_size(), given(conv.has_kernel_h(), conv.kernel_h()),
             given(conv.has_kernel_w(), conv.kernel_w()), 0);
  const auto stride =
      spread(param, "stride", axes, conv.stride(), given(conv.has_stride_h(), conv.stride_h()),
             given(conv.has_stride_w(), conv.stride_w()), 1);
  const auto pad = spread(param, "pad", axes, conv.pad(), given(conv.has_pad_h(), conv.pad_h()),
                          given(conv.has_pad_w(), conv.pad_w()), 0);
  const auto dilation = spread(param, "dilation", axes, conv.dilation(), {}, {}, 1);
  check_range(param, "the kernel's size", 1, kernel);
  check_range(param, "stride", 1, stride);
  check_range(param, "pad", 0, pad);
  check_range(param, "dilation", 1, dilation);
  std::vector<ops::WindowAxis> result;
  for (std::size_t i = 0; i < kernel.size(); ++i)
    result.push_back(
        {.kernel = kernel[i], .stride = stride[i], .pad = pad[i], .dilation = dilation[i]});
  return result;
}

void slide_over(const LayerParameter& param, const Shape& bottom, int first_spatial,
                std::vector<ops::WindowAxis>& axes) {
  for (std::size_t i = 0; i < axes.size(); ++i) {
    ops::WindowAxis& axis = axes[i];
    axis.in = bottom[first_spatial + static_cast<int>(i)];
    const std::int64_t padded = axis.in + 2 * axis.pad;
    if (extent(axis) > padded)
      throw config_error(param, "the kernel spans ", extent(axis), " on spatial axis ", i,
                         ", but the input there is ", axis.in,
                         axis.pad > 0 ? str(" and ", padded, " with its padding") : "",
                         "; bottom: ", bottom.str());
    axis.out = (padded - extent(axis)) / axis.stride + 1;
  }
  check_padded(param, bottom, axes);
}

void check_padded(const LayerParameter& param, const Shape& bottom,
                  std::span<const ops::WindowAxis> axes) {
  std::int64_t count = 1;
  std::string sizes;
  for (const ops::WindowAxis& axis : axes) {
    const std::int64_t padded = axis.in + 2 * axis.pad;
    sizes += str(sizes.empty() ? "" : " x ", padded);
    if (padded > 0 && count > Shape::kMaxCount / padded)
      throw config_error(param, "the plane with its padding, ", sizes, ", has more than ",
                         Shape::kMaxCount, " elements; bottom: ", bottom.str());
    count *= padded;
  }
}

ConvolutionBase::Outputs ConvolutionBase::outputs_for(std::int64_t) const {
  return {param().convolution_param().num_output(), param().convolution_param().group()};
}

void ConvolutionBase::setup(Context& ctx, Bottoms bottoms, Tops) {
  const ConvolutionParameter& conv = param().convolution_param();
  const Shape& bottom = bottoms[0]->shape();
  channel_axis_ = axis_of(bottom, conv.axis(), "axis");
  desc_.axes = read_window(param(), bottom.axes() - channel_axis_ - 1);
  if (conv.force_nd_im2col())
    LOG(WARNING) << layer_place(param())
                 << ": force_nd_im2col has no effect: kernels are chosen by shape; time "
                    "--explain_ops says which";
  const std::int64_t channels = bottom[channel_axis_];
  const auto [outputs, groups] = outputs_for(channels);
  if (outputs < 1) throw config_error(param(), "num_output must be given, and be 1 or more");
  if (groups < 1) throw config_error(param(), "group is 0; it must be 1 or more");
  if (channels % groups != 0)
    throw config_error(param(), "group ", groups, " does not divide the bottom's ", channels,
                       " channels");
  if (outputs % groups != 0)
    throw config_error(param(), "group ", groups, " does not divide num_output ", outputs);
  desc_.channels = transposed() ? outputs : channels;
  desc_.outputs = transposed() ? channels : outputs;
  desc_.groups = groups;
  std::vector<std::int64_t> weight{desc_.outputs, desc_.channels / groups};
  for (const ops::WindowAxis& axis : desc_.axes) weight.push_back(axis.kernel);
  add_param(ctx, Shape(weight), conv.weight_filler());
  has_bias_ = conv.bias_term();
  if (has_bias_) add_param(ctx, Shape{outputs}, conv.bias_filler());
}

void ConvolutionBase::reshape(Context& ctx, Bottoms bottoms, Tops tops) {
  const Shape& bottom = bottoms[0]->shape();
  for (const Blob* other : bottoms)
    if (other->shape() != bottom)
      throw config_error(param(), "all bottoms must have one shape; '", bottoms[0]->name, "' is ",
                         bottom.str(), ", '", other->name, "' is ", other->shape().str());
  const std::int64_t channels = transposed() ? desc_.outputs : desc_.channels;
  if (bottom.axes() != channel_axis_ + 1 + static_cast<int>(desc_.axes.size()) ||
      bottom[channel_axis_] != channels)
    throw config_error(param(), "was made for ", channels, " channels on axis ", channel_axis_,
                       " and ", desc_.axes.size(), " spatial axes; the bottom is now ",
                       bottom.str());
  desc_.images = bottom.count(0, channel_axis_);
  std::vector<std::int64_t> top(bottom.dims().begin(), bottom.dims().begin() + channel_axis_);
  top.push_back(transposed() ? desc_.channels : desc_.outputs);
  for (const std::int64_t size : slide(bottom, desc_.axes)) top.push_back(size);
  for (Blob* blob : tops) blob->reshape(Shape(top));
  choose(ctx);
}

void ConvolutionBase::choose(Context& ctx) {
  ops::ConvDesc desc = desc_;
  std::string engine = engine_of(param(), param().convolution_param().engine());
  const ops::TunedConv* const tuned = tuned_ ? ctx.tuning()->find(desc, ctx, *tuned_) : nullptr;
  if (tuned != nullptr) {
    engine = tuned->impl;
    if (desc.winograd != ops::kNoPass) desc.winograd = tuned->winograd;
  }
  if (!conv_.select("conv", ops::backend(ctx).conv, desc, ctx, engine)) return;
  if (tuned != nullptr) conv_.explain_by(tuned->times);
  kernel_changed();
}

void ConvolutionBase::tune(Context& ctx, Backward passes) {
  if (!engine_of(param(), param().convolution_param().engine()).empty()) return;
  tuned_ = transposed() ? ops::PassSet{passes.to_bottoms, true, passes.to_params}
                        : ops::PassSet{true, passes.to_bottoms, passes.to_params};
  ctx.tuning()->measure(desc_, ctx, *tuned_);
  choose(ctx);
}

bool ConvolutionBase::leave_winograd(Context& ctx) {
  const std::vector<ops::Choice> all = conv_.choices();
  if (all.empty() || !all[0].needs.has_winograd) return false;
  desc_.winograd = ops::kNoPass;
  choose(ctx);
  return !conv_.choices()[0].needs.has_winograd;  // which stays while there are no images
}

}  // namespace shoal
