#include "support/layer_rig.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "shoal/base/log.h"
#include "shoal/proto/net.pb.h"

namespace shoal::test {

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

Numbers values(const Tensor& tensor) {
  const std::span<const float> host = tensor.host();
  return {host.begin(), host.end()};
}

void put(const Numbers& numbers, Tensor& tensor) {
  const std::span<float> out = tensor.host_out();
  CHECK(numbers.size() == out.size())
      << numbers.size() << " numbers for shape " << tensor.shape().str();
  std::ranges::copy(numbers, out.begin());
}

void poison(Tensor& tensor) { std::ranges::fill(tensor.host_out(), kPoison); }

bool is_poison(const Tensor& tensor) {
  return std::ranges::all_of(tensor.host(), [](float x) { return std::isnan(x); });
}

bool any_nan(const Tensor& tensor) {
  return std::ranges::any_of(tensor.host(), [](float x) { return std::isnan(x); });
}

double relative_error(const Numbers& got, const Numbers& want, double floor) {
  CHECK(got.size() == want.size()) << got.size() << " numbers, not " << want.size();
  double worst = 0, largest = floor;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double difference = std::fabs(double{got[i]} - double{want[i]});
    worst = std::isnan(difference) ? std::numeric_limits<double>::infinity()
                                   : std::max(worst, difference);
    if (std::isinf(worst)) return worst;
    largest = std::max(largest, std::fabs(double{want[i]}));
  }
  return worst == 0 ? 0 : worst / largest;
}

LayerParameter parse_layer(const std::string& prototxt) {
  NetParameter net;
  CHECK(google::protobuf::TextFormat::ParseFromString(prototxt, &net))
      << "not a layer: " << prototxt;
  CHECK(net.layer_size() == 1) << prototxt;
  return net.layer(0);
}

LayerRig::LayerRig(const LayerParameter& param, const std::vector<Shape>& bottoms, int threads,
                   std::uint64_t seed, const Device* device)
    : context_({.device = device, .threads = threads, .seed = seed}), layer_(make_layer(param)) {
  CHECK(param.bottom_size() == static_cast<int>(bottoms.size())) << param.DebugString();
  for (int i = 0; i < param.bottom_size(); ++i) {
    bottoms_.push_back(owned_.emplace_back(std::make_unique<Blob>(param.bottom(i))).get());
    bottoms_.back()->reshape(bottoms[static_cast<std::size_t>(i)]);
  }
  for (int i = 0; i < param.top_size(); ++i) {
    const bool same = i < param.bottom_size() && param.bottom(i) == param.top(i);
    if (!same) owned_.push_back(std::make_unique<Blob>(param.top(i)));
    tops_.push_back(same ? bottoms_[static_cast<std::size_t>(i)] : owned_.back().get());
  }
  layer_->setup(context_, bottoms_, tops_);
  layer_->load_own_blobs();
  std::vector<float> weights;
  for (int i = 0; i < tops(); ++i) weights.push_back(loss_weight(i));
  layer_->set_loss_weights(weights);
  layer_->reshape(context_, bottoms_, tops_);
  read_inputs();
  for (const auto& blob : layer_->params()) param_values_.push_back(values(blob->data));
}

LayerRig::~LayerRig() = default;

bool LayerRig::in_place() const {
  return !tops_.empty() && !bottoms_.empty() && tops_[0] == bottoms_[0];
}

void LayerRig::read_inputs() {
  inputs_.clear();
  for (const Blob* blob : bottoms_)
    inputs_.emplace_back(static_cast<std::size_t>(blob->data.count()), 0.0f);
}

void LayerRig::load_params() {
  for (int i = 0; i < params(); ++i) put(param_value(i), param(i).data);
}

void LayerRig::reshape(const std::vector<Shape>& bottoms) {
  CHECK(bottoms.size() == bottoms_.size());
  for (std::size_t i = 0; i < bottoms.size(); ++i) bottoms_[i]->reshape(bottoms[i]);
  layer_->reshape(context_, bottoms_, tops_);
  read_inputs();
}

void LayerRig::size_tops() {
  if (!layer_->sizes_tops()) return;
  layer_->reshape(context_, bottoms_, tops_);
  layer_->size_tops(context_, bottoms_, tops_);
}

void LayerRig::forward() {
  for (int i = 0; i < bottoms(); ++i) put(input(i), bottom(i).data);
  size_tops();
  if (!layer_->keeps_tops())
    for (Blob* blob : tops_) poison(blob->data);
  for (int i = 0; i < bottoms(); ++i) put(input(i), bottom(i).data);
  context_.random() = Random(context_.random().state().seed);
  layer_->forward(context_, bottoms_, tops_);
  const std::optional<Failure> failure = context_.take_failure();
  CHECK(!failure) << layer_->name() << ": " << failure->error.message;
}

void LayerRig::backward(const std::vector<Numbers>& top_grads, const std::vector<bool>& propagate) {
  for (Blob* blob : bottoms_) poison(blob->grad);
  for (int i = 0; i < tops(); ++i) put(top_grads.at(static_cast<std::size_t>(i)), top(i).grad);
  layer_->backward(context_, tops_, propagate, bottoms_);
}

void LayerRig::clear_param_grads() {
  for (int i = 0; i < params(); ++i) std::ranges::fill(param(i).grad.host_out(), 0.0f);
}

float LayerRig::loss_weight(int i) const {
  const LayerParameter& param = layer_->param();
  return i < param.loss_weight_size() ? param.loss_weight(i) : layer_->default_loss_weight(i);
}

bool LayerRig::has_loss() const {
  for (int i = 0; i < tops(); ++i)
    if (loss_weight(i) != 0) return true;
  return false;
}

double LayerRig::loss() {
  double loss = 0;
  for (int i = 0; i < tops(); ++i)
    for (const float x : top(i).data.host()) loss += double{loss_weight(i)} * x;
  return loss;
}

std::vector<Numbers> LayerRig::top_values() {
  std::vector<Numbers> all;
  for (const Blob* blob : tops_) all.push_back(values(blob->data));
  return all;
}

std::vector<Numbers> LayerRig::bottom_grads() {
  std::vector<Numbers> all;
  for (const Blob* blob : bottoms_) all.push_back(values(blob->grad));
  return all;
}

std::vector<Numbers> LayerRig::param_grads() {
  std::vector<Numbers> all;
  for (const auto& blob : layer_->params()) all.push_back(values(blob->grad));
  return all;
}

}  // namespace shoal::test
