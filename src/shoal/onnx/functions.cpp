// Converts layers that apply one function to each number, or along one axis.
#include <cmath>

#include "shoal/onnx/converters.h"

namespace shoal::onnx {
namespace {

// ln(base) of Exp and Log, whose -1 stands for e.
float log_of(float base) { return base == -1 ? 1 : std::log(base); }

// Returns shift + scale x, without what changes nothing.
std::string scaled(LayerExport& x, float scale, float shift) {
  std::string value = x.in();
  if (scale != 1) value = x.add("Mul", {value, x.number(scale)});
  if (shift != 0) value = x.add("Add", {value, x.number(shift)});
  return value;
}

}  // namespace

void convert_abs(LayerExport& x) { x.give("Abs", {x.in()}); }
void convert_bnll(LayerExport& x) { x.give("Softplus", {x.in()}); }
void convert_sigmoid(LayerExport& x) { x.give("Sigmoid", {x.in()}); }
void convert_tanh(LayerExport& x) { x.give("Tanh", {x.in()}); }

void convert_clip(LayerExport& x) {
  const ClipParameter& clip = x.param().clip_param();
  x.give("Clip", {x.in(), x.number(clip.min()), x.number(clip.max())});
}

void convert_dropout(LayerExport& x) {
  const DropoutParameter& dropout = x.param().dropout_param();
  if (dropout.sample_weights_test() && dropout.dropout_ratio() > 0)
    x.refuse("sample_weights_test drops numbers at random in phase TEST too");
  if (dropout.scale_train())
    x.give("Identity", {x.in()});
  else
    x.give("Mul", {x.in(), x.number(1 - dropout.dropout_ratio())});
}

void convert_elu(LayerExport& x) {
  x.give("Elu", {x.in()}, {{"alpha", x.param().elu_param().alpha()}});
}

void convert_exp(LayerExport& x) {
  const ExpParameter& exp = x.param().exp_param();
  const float log_base = log_of(exp.base());
  const std::string power =
      x.add("Exp", {x.add("Mul", {x.in(), x.number(log_base * exp.scale())})});
  x.give("Mul", {power, x.number(std::exp(log_base * exp.shift()))});
}

void convert_log(LayerExport& x) {
  const LogParameter& log = x.param().log_param();
  x.give("Mul",
         {x.add("Log", {scaled(x, log.scale(), log.shift())}), x.number(1 / log_of(log.base()))});
}

void convert_power(LayerExport& x) {
  const PowerParameter& power = x.param().power_param();
  if (power.power() == 0 || power.scale() == 0) {
    // shift^power, whatever the number is; 0 times it would be NaN for one that is not finite.
    const std::string none = x.add("Clip", {x.in(), x.number(0), x.number(0)});
    x.give("Add", {none, x.number(std::pow(power.shift(), power.power()))});
  } else if (power.power() != 1) {
    x.give("Pow", {scaled(x, power.scale(), power.shift()), x.number(power.power())});
  } else if (power.shift() != 0) {
    x.give("Add", {scaled(x, power.scale(), 0), x.number(power.shift())});
  } else {
    x.give("Mul", {x.in(), x.number(power.scale())});
  }
}

void convert_prelu(LayerExport& x) {
  // The slopes are spread over the axes behind the channels.
  Sizes dims{x.param_data(0).count()};
  if (!x.param().prelu_param().channel_shared())
    dims.resize(static_cast<std::size_t>(x.bottom().axes() - 1), 1);
  x.give("PRelu", {x.in(), x.weight(0, dims)});
}

void convert_relu(LayerExport& x) {
  const float slope = x.param().relu_param().negative_slope();
  if (slope == 0)
    x.give("Relu", {x.in()});
  else
    x.give("LeakyRelu", {x.in()}, {{"alpha", slope}});
}

void convert_relu6(LayerExport& x) {
  const float slope = x.param().relu6_param().negative_slope();
  if (slope == 0)
    x.give("Clip", {x.in(), x.number(0), x.number(6)});
  else
    x.give("Min", {x.add("LeakyRelu", {x.in()}, {{"alpha", slope}}), x.number(6)});
}

void convert_softmax(LayerExport& x) {
  x.give("Softmax", {x.in()}, {{"axis", canonical(x.param().softmax_param().axis(), x.bottom())}});
}

void convert_swish(LayerExport& x) {
  const float beta = x.param().swish_param().beta();
  const std::string slope = beta == 1 ? x.in() : x.add("Mul", {x.in(), x.number(beta)});
  x.give("Mul", {x.in(), x.add("Sigmoid", {slope})});
}

void convert_threshold(LayerExport& x) {
  const std::string above =
      x.add("Greater", {x.in(), x.number(x.param().threshold_param().threshold())});
  x.give("Cast", {above}, {{"to", kFloatType}});
}

}  // namespace shoal::onnx
