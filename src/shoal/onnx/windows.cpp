// Converts layers that slide windows over planes, or make planes of another size.
#include <algorithm>

#include "shoal/layers/window.h"
#include "shoal/onnx/converters.h"

namespace shoal::onnx {
namespace {

// The window of a convolution, as attributes.
struct ConvWindow {
  ConvWindow(const LayerExport& x, int first_spatial)
      : axes(read_window(x.param(), x.bottom().axes() - first_spatial)) {
    // ONNX has no convolution without a spatial axis.
    if (axes.empty()) axes.push_back({.kernel = 1, .stride = 1, .pad = 0, .dilation = 1});
  }
  Attributes attributes(std::int64_t group) const {
    Sizes kernel, stride, dilation, pads;
    for (const ops::WindowAxis& axis : axes) {
      kernel.push_back(axis.kernel);
      stride.push_back(axis.stride);
      dilation.push_back(axis.dilation);
      pads.push_back(axis.pad);
    }
    for (std::size_t i = 0; i < axes.size(); ++i) pads.push_back(pads[i]);
    return {{"kernel_shape", kernel},
            {"strides", stride},
            {"pads", pads},
            {"dilations", dilation},
            {"group", group}};
  }
  std::vector<ops::WindowAxis> axes;
};

// The axes before the channels become one, and a plane has one axis at least.
Dims image_dims(const Dims& dims, int channel_axis) {
  Dims images{{1}};
  for (int i = 0; i < channel_axis; ++i) {
    const Dim& dim = dims[static_cast<std::size_t>(i)];
    images[0].size *= dim.size;
    if (dim.kind != Dim::Kind::kFixed) images[0].kind = dim.kind;
  }
  images.insert(images.end(), dims.begin() + channel_axis, dims.end());
  if (images.size() == 2) images.push_back({1});
  return images;
}

// Makes the tops of the bottoms by an operator on (N, C, plane...), whose weight has these sizes.
void give_windows(LayerExport& x, const std::string& op, int channel_axis, Sizes weight,
                  const Attributes& attributes) {
  for (int i = 0; i < x.bottoms(); ++i) {
    const Dims dims = image_dims(x.bottom_dims(i), channel_axis);
    const bool is_images = dims == x.bottom_dims(i);
    Names inputs{is_images ? x.in(i) : x.reshaped(x.in(i), dims), x.weight(0, weight)};
    if (x.params() > 1) inputs.push_back(x.weight(1));
    if (is_images)
      x.give(op, inputs, attributes, i);
    else
      x.give_reshaped(x.add(op, inputs, attributes), i);
  }
}

int channel_axis_of(const LayerExport& x) {
  return x.bottom().canonical(x.param().convolution_param().axis());
}

Sizes weight_sizes(const LayerExport& x) {
  Sizes sizes = x.param_data(0).shape().dims();
  if (sizes.size() == 2) sizes.push_back(1);
  return sizes;
}

// Leaves out the rows and columns that pad_beg and pad_end cut off.
std::string cut_off(LayerExport& x, const InterpParameter& interp) {
  const std::int64_t begin = -std::int64_t{interp.pad_beg()}, end = interp.pad_end();
  if (begin == 0 && end == 0) return x.in();
  return x.add("Slice",
               {x.in(), x.integers({begin, begin}),
                x.integers({x.bottom()[2] + end, x.bottom()[3] + end}), x.integers({2, 3})});
}

// Puts each number where the mask says. The last of several with one place stays, as
// ScatterElements does it in onnxruntime.
void give_unpooled(LayerExport& x) {
  const Dims& in = x.bottom_dims();
  const std::int64_t places = x.bottom().count(2), all = x.top().count(2);
  const std::string numbers = x.reshaped(x.in(0), {in[0], in[1], {places}});
  const std::string mask =
      x.add("Cast", {x.reshaped(x.in(1), {in[0], in[1], {places}})}, {{"to", kInt64Type}});
  const std::string zeros = x.add("Expand", {x.number(0), x.sizes_with(numbers, 3, {all})});
  x.give_reshaped(x.add("ScatterElements", {zeros, mask, numbers}, {{"axis", std::int64_t{2}}}));
}

}  // namespace

void convert_convolution(LayerExport& x) {
  const int axis = channel_axis_of(x);
  const std::int64_t group = x.bottom()[axis] / x.param_data(0).shape()[1];
  give_windows(x, "Conv", axis, weight_sizes(x), ConvWindow(x, axis + 1).attributes(group));
}

void convert_deconvolution(LayerExport& x) {
  const int axis = channel_axis_of(x);
  const std::int64_t group = x.top()[axis] / x.param_data(0).shape()[1];
  give_windows(x, "ConvTranspose", axis, weight_sizes(x),
               ConvWindow(x, axis + 1).attributes(group));
}

// A convolution, of each channel by itself, whose outputs are one tap of the window each.
void convert_im2col(LayerExport& x) {
  const int axis = channel_axis_of(x);
  const std::int64_t channels = x.bottom()[axis], taps = x.top()[axis] / channels;
  const ConvWindow window(x, axis + 1);
  std::vector<float> weight(static_cast<std::size_t>(channels * taps * taps));
  for (std::int64_t i = 0; i < channels * taps; ++i)
    weight[static_cast<std::size_t>(i * taps + i % taps)] = 1;
  Sizes dims{channels * taps, 1};
  for (const ops::WindowAxis& one : window.axes) dims.push_back(one.kernel);
  const std::string images = x.reshaped(x.in(), image_dims(x.bottom_dims(), axis));
  x.give_reshaped(
      x.add("Conv", {images, x.numbers(std::move(weight), dims)}, window.attributes(channels)));
}

void convert_interp(LayerExport& x) {
  const std::string value = cut_off(x, x.param().interp_param());
  x.give("Resize", {value, "", "", x.sizes_with(value, 4, {x.top()[2], x.top()[3]})},
         {{"mode", "linear"}, {"coordinate_transformation_mode", "align_corners"}});
}

void convert_upsample(LayerExport& x) {
  if (x.bottoms() == 2) return give_unpooled(x);
  const std::int64_t times = x.top()[2] / x.bottom()[2];
  const auto scale = static_cast<float>(times);
  x.give("Resize", {x.in(), "", x.numbers({1, 1, scale, scale}, {4})},
         {{"mode", "nearest"},
          {"coordinate_transformation_mode", "asymmetric"},
          {"nearest_mode", "floor"}});
}

}  // namespace shoal::onnx
