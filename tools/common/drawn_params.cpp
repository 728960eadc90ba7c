#include "common/drawn_params.h"

#include <cmath>

#include "common/drawn_inputs.h"
#include "shoal/onnx/export.h"
#include "shoal/onnx/weight_files.h"

namespace shoal {
namespace {

bool is_weight(const Blob& param) { return param.shape().axes() > 1; }

void draw_param(const std::string& name, Blob& param, Random& random) {
  const auto is = [&](const char* ending) { return name.ends_with(ending); };
  for (float& number : param.data.host_out()) {
    if (is_weight(param))
      number = random.uniform(-1, 1);
    else if (is(".factor"))
      number = 1;
    else if (is(".variance") || is(".scale") || is(".weight") || is(".0"))
      number = random.uniform(0.5f, 1.5f);
    else
      number = random.uniform(-0.1f, 0.1f);
  }
}

double deviation_of(std::span<const float> numbers) {
  double sum = 0, squares = 0;
  for (const double number : numbers) sum += number, squares += number * number;
  const auto count = static_cast<double>(numbers.size());
  return std::sqrt(std::max(0.0, squares / count - sum / count * (sum / count)));
}

// Scales the layer's weights so that its first top has the deviation 1, and makes the tops anew.
void even_out(Net& net, int i) {
  Layer& layer = *net.layers()[static_cast<std::size_t>(i)];
  const Tops tops = net.tops(i);
  const double deviation = tops.empty() ? 0 : deviation_of(tops[0]->data.host());
  if (!(deviation > 0) || !std::isfinite(deviation)) return;
  bool scaled = false;
  for (const auto& param : layer.params()) {
    if (!is_weight(*param)) continue;
    scaled = true;
    for (float& number : param->data.host_mut()) number /= static_cast<float>(deviation);
  }
  if (scaled) layer.forward(net.context(), net.bottoms(i), tops);
}

}  // namespace

void draw_params(Net& net, std::uint64_t seed) {
  Random random(seed);
  for (const auto& layer : net.layers())
    for (int i = 0; i < static_cast<int>(layer->params().size()); ++i)
      draw_param(onnx::param_name(*layer, i), *layer->params()[static_cast<std::size_t>(i)],
                 random);
  for (Blob* input : onnx::input_blobs(net)) draw_input(net, *input, -1, 1, random);
  net.after_forward([&](int layer) {
    even_out(net, layer);
    return Status();
  });
  or_throw(net.forward());
  net.after_forward(nullptr);
}

}  // namespace shoal
