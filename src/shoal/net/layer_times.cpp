#include "shoal/net/layer_times.h"

#include <algorithm>
#include <utility>

namespace shoal {

LayerTimes::LayerTimes(Net& net) : net_(net), layers_(net.layers().size()) {
  for (std::vector<Marks>* const marks : {&forward_, &backward_})
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const Device& device = net.context().device();
      marks->push_back({device.make_event(/*timed=*/true), device.make_event(/*timed=*/true)});
    }
  const auto at = [](std::vector<Marks>& marks, int layer) -> Marks& {
    return marks[static_cast<std::size_t>(layer)];
  };
  net.before_forward([=, this](int i) { return begin(at(forward_, i)), Status(); });
  net.after_forward([=, this](int i) { return end(at(forward_, i)), Status(); });
  net.before_backward([=, this](int i) { return begin(at(backward_, i)), Status(); });
  net.after_backward([=, this](std::span<const int> layers) {  // each comes alone
    if (net_.needs_backward(layers[0])) end(at(backward_, layers[0]));
    return Status();
  });
}

void LayerTimes::add() {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    layers_[i].forward += forward_[i].take();
    layers_[i].backward += backward_[i].take();
  }
}

double LayerTimes::Marks::take() {
  return std::exchange(noted, false) ? end->seconds_since(*begin) : 0;
}

void LayerTimes::clear() { std::ranges::fill(layers_, Seconds()); }

void LayerTimes::stop() {
  net_.before_forward({});
  net_.after_forward({});
  net_.before_backward({});
  net_.after_backward({});
}

}  // namespace shoal
