#include "shoal/net/forward_state.h"

#include <algorithm>

namespace shoal {
namespace {

template <class F>
void for_each_changed(const Net& net, F f) {
  for (const auto& layer : net.layers()) {
    for (std::size_t i = 0; i < layer->params().size(); ++i)
      if (layer->default_lr_mult(static_cast<int>(i)) == 0) f(layer->params()[i]->data);
    for (Tensor& state : layer->carried()) f(state);
  }
}

}  // namespace

void ForwardState::save(Net& net) {
  const Device& device = net.context().device();
  // A device copies to memory of its own choice, and is waited for once.
  if (numbers_.empty() && !device.is_host())
    for_each_changed(net, [&](Tensor& tensor) { tensor.pin(device); });
  for_each_changed(net, [](const Tensor& tensor) { tensor.begin_download(); });
  numbers_.clear();
  for_each_changed(net, [this](const Tensor& tensor) {
    numbers_.emplace_back(tensor.host().begin(), tensor.host().end());
  });
}

void ForwardState::restore(const Net& net) const {
  auto saved = numbers_.begin();
  for_each_changed(net,
                   [&](Tensor& tensor) { std::ranges::copy(*saved++, tensor.host_out().begin()); });
}

}  // namespace shoal
