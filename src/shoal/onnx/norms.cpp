// Converts layers that normalize.
#include "shoal/onnx/converters.h"

namespace shoal::onnx {
namespace {

// Returns the mean over these axes, which stay with size 1.
std::string mean_over(LayerExport& x, const std::string& value, const Sizes& axes) {
  return x.add("ReduceMean", {value}, {{"axes", axes}, {"keepdims", std::int64_t{1}}});
}

// Returns the sizes in which a number a channel lies on the axes of the bottom.
Sizes by_channel(const LayerExport& x, std::int64_t channels) {
  Sizes dims{channels};
  for (int i = 2; i < x.bottom().axes(); ++i) dims.push_back(1);
  return dims;
}

std::vector<float> copy_of(std::span<const float> numbers) {
  return {numbers.begin(), numbers.end()};
}

// (x - mean) / sqrt(variance + eps) with the statistics of the numbers themselves.
std::string standardized(LayerExport& x, float eps) {
  Sizes axes = axes_between(2, x.bottom().axes());
  axes.insert(axes.begin(), 0);
  const std::string centred = x.add("Sub", {x.in(), mean_over(x, x.in(), axes)});
  const std::string variance = mean_over(x, x.add("Mul", {centred, centred}), axes);
  return x.add("Div", {centred, x.add("Sqrt", {x.add("Add", {variance, x.number(eps)})})});
}

// Makes the top of the value times a param, plus another if there is one; -1: none.
void give_scaled(LayerExport& x, const std::string& value, int factor, int shift) {
  if (factor < 0) return x.give("Identity", {value});
  const Sizes dims = by_channel(x, x.param_data(factor).count());
  if (shift < 0) return x.give("Mul", {value, x.weight(factor, dims)});
  x.give("Add", {x.add("Mul", {value, x.weight(factor, dims)}), x.weight(shift, dims)});
}

}  // namespace

void convert_batch_norm(LayerExport& x) {
  const BatchNormParameter& norm = x.param().batch_norm_param();
  const int factor = x.params() > 3 ? 3 : -1, shift = x.params() > 4 ? 4 : -1;
  if (norm.has_use_global_stats() && !norm.use_global_stats())
    return give_scaled(x, standardized(x, norm.eps()), factor, shift);
  std::vector<float> mean = copy_of(x.param_data(0).host()),
                     variance = copy_of(x.param_data(1).host());
  const float sums = x.param_data(2).host()[0], one = sums == 0 ? 0 : 1 / sums;
  for (float& number : mean) number *= one;
  for (float& number : variance) number *= one;
  const Sizes dims{std::ssize(mean)};
  const std::vector<float> ones(mean.size(), 1.0f), zeros(mean.size(), 0.0f);
  const std::string scale = factor < 0 ? x.numbers(ones, dims) : x.weight(factor),
                    bias = shift < 0 ? x.numbers(zeros, dims) : x.weight(shift);
  // ONNX wants a channel axis.
  const bool has_channels = x.bottom().axes() > 1;
  const std::string value = has_channels ? x.in() : x.reshaped(x.in(), {x.bottom_dims()[0], {1}});
  const Names inputs{value, scale, bias, x.numbers(mean, dims), x.numbers(variance, dims)};
  const Attributes attributes{{"epsilon", norm.eps()}};
  if (has_channels) return x.give("BatchNormalization", inputs, attributes);
  x.give_reshaped(x.add("BatchNormalization", inputs, attributes));
}

// The number of params tells PSPNet's layer, with running statistics, from SegNet's.
void convert_bn(LayerExport& x) {
  const BNParameter& bn = x.param().bn_param();
  if (x.params() == 2) {
    const bool learnt = bn.bn_mode() == BNParameter::INFERENCE;
    return give_scaled(x, learnt ? x.in() : standardized(x, 1e-9f), 0, 1);
  }
  const Sizes dims{x.param_data(0).count()};
  x.give("BatchNormalization",
         {x.in(), x.weight(0, dims), x.weight(1, dims), x.weight(2, dims), x.weight(3, dims)},
         {{"epsilon", bn.eps()}});
}

void convert_lrn(LayerExport& x) {
  const LRNParameter& lrn = x.param().lrn_param();
  const std::int64_t size = lrn.local_size(), pad = (size - 1) / 2;
  if (lrn.norm_region() == LRNParameter::ACROSS_CHANNELS)
    return x.give(
        "LRN", {x.in()},
        {{"size", size}, {"alpha", lrn.alpha()}, {"beta", lrn.beta()}, {"bias", lrn.k()}});
  const std::string squares = x.add("Mul", {x.in(), x.in()});
  const std::string mean = x.add("AveragePool", {squares},
                                 {{"kernel_shape", Sizes{size, size}},
                                  {"strides", Sizes{1, 1}},
                                  {"pads", Sizes{pad, pad, pad, pad}},
                                  {"count_include_pad", std::int64_t{1}}});
  const std::string sum = x.add("Add", {x.add("Mul", {mean, x.number(lrn.alpha())}), x.number(1)});
  x.give("Mul", {x.in(), x.add("Pow", {sum, x.number(-lrn.beta())})});
}

void convert_mvn(LayerExport& x) {
  const MVNParameter& mvn = x.param().mvn_param();
  const std::string value =
      x.top_dims() == x.bottom_dims() ? x.in() : x.reshaped(x.in(), x.top_dims());
  const Sizes axes = axes_between(mvn.across_channels() ? 1 : 2, 4);
  const std::string mean = mean_over(x, value, axes);
  if (!mvn.normalize_variance()) return x.give("Sub", {value, mean});
  const std::string centred = x.add("Sub", {value, mean});
  const std::string deviation =
      x.add("Sqrt", {mean_over(x, x.add("Mul", {centred, centred}), axes)});
  x.give("Div", {centred, x.add("Add", {deviation, x.number(mvn.eps())})});
}

void convert_normalize(LayerExport& x) {
  const NormalizeParameter& norm = x.param().norm_param();
  const Sizes axes = axes_between(1, norm.across_spatial() ? x.bottom().axes() : 2);
  const std::string sum =
      x.add("ReduceSumSquare", {x.in()}, {{"axes", axes}, {"keepdims", std::int64_t{1}}});
  const std::string length = x.add("Sqrt", {x.add("Add", {sum, x.number(norm.eps())})});
  const std::int64_t factors = x.param_data(0).count();
  const Sizes dims = norm.channel_shared() ? Sizes{} : by_channel(x, factors);
  x.give("Mul", {x.add("Div", {x.in(), length}), x.weight(0, dims)});
}

}  // namespace shoal::onnx
