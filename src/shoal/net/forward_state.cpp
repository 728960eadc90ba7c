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

void ForwardState::save(const Net& net) {
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
