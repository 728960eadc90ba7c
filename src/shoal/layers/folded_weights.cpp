#include "shoal/layers/folded_weights.h"

#include <cmath>
#include <span>
#include <utility>

#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

bool has_running_statistics(const LayerParameter& layer) {
  const BatchNormParameter& norm = layer.batch_norm_param();
  const bool global = norm.has_use_global_stats() ? norm.use_global_stats() : layer.phase() == TEST;
  return layer.type() == "BatchNorm" && global;
}

bool scales_channels(const LayerParameter& layer) {
  const ScaleParameter& scale = layer.scale_param();
  return layer.type() == "Scale" && layer.bottom_size() == 1 && scale.axis() == 1 &&
         scale.num_axes() == 1;
}

// Makes y factor[k] + shift[k] of each channel k of y; y itself at first.
struct Channels {
  std::vector<double> factor, shift;
  explicit Channels(std::int64_t count)
      : factor(static_cast<std::size_t>(count), 1), shift(static_cast<std::size_t>(count), 0) {}
  // Scales and shifts the channel's result once more.
  void then(std::size_t k, double by, double plus) {
    factor[k] *= by;
    shift[k] = shift[k] * by + plus;
  }
};

// The factor is param `first`, the shift the one after it, if there is one.
void add_scale(const Layer& layer, std::size_t first, Channels& channels) {
  const std::span<const float> factor = layer.params()[first]->data.host();
  std::span<const float> shift;
  if (layer.params().size() > first + 1) shift = layer.params()[first + 1]->data.host();
  for (std::size_t k = 0; k < factor.size(); ++k)
    channels.then(k, factor[k], shift.empty() ? 0 : shift[k]);
}

void add_batch_norm(const Layer& layer, Channels& channels) {
  const std::span<const float> mean = layer.params()[0]->data.host(),
                               variance = layer.params()[1]->data.host();
  const double sums = layer.params()[2]->data.host()[0], share = sums == 0 ? 0 : 1 / sums;
  const double eps = layer.param().batch_norm_param().eps();
  for (std::size_t k = 0; k < mean.size(); ++k) {
    const double inverse = 1 / std::sqrt(variance[k] * share + eps);
    channels.then(k, inverse, -mean[k] * share * inverse);
  }
  if (layer.params().size() > 3) add_scale(layer, 3, channels);
}

}  // namespace

bool FoldedWeights::add(const Layer& next, std::int64_t outputs) {
  if (!has_running_statistics(next.param()) && !scales_channels(next.param())) return false;
  if (next.params()[0]->shape() != Shape{outputs}) return false;
  layers_.push_back(&next);
  forget();
  return true;
}

std::vector<FoldedWeights::Source> FoldedWeights::sources(const Tensor& w, const Tensor* b) const {
  std::vector<Source> all;
  const auto read = [&](const Tensor& tensor) {
    all.push_back({tensor.storage(), tensor.storage()->version()});
  };
  read(w);
  if (b != nullptr) read(*b);
  for (const Layer* layer : layers_)
    for (const auto& param : layer->params()) read(param->data);
  return all;
}

void FoldedWeights::update(const Tensor& w, const Tensor* b) {
  std::vector<Source> now = sources(w, b);
  if (now == made_of_) return;
  const std::int64_t outputs = w.shape()[0];
  Channels channels(outputs);
  for (const Layer* layer : layers_)
    if (layer->type() == "BatchNorm")
      add_batch_norm(*layer, channels);
    else
      add_scale(*layer, 0, channels);
  weight_.reshape(w.shape());
  weight_.storage()->bind(host_memory(weight_.bytes()), 0);
  bias_.reshape(Shape{outputs});
  const std::span<const float> from = w.host();
  const std::span<float> weight = weight_.host_out(), bias = bias_.host_out();
  const std::size_t each = from.size() / bias.size();
  for (std::size_t k = 0; k < bias.size(); ++k) {
    for (std::size_t i = k * each; i < (k + 1) * each; ++i)
      weight[i] = static_cast<float>(from[i] * channels.factor[k]);
    const double before = b == nullptr ? 0 : b->host()[k];
    bias[k] = static_cast<float>(before * channels.factor[k] + channels.shift[k]);
  }
  made_of_ = std::move(now);
}

}  // namespace shoal
