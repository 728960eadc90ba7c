#include "shoal/net/passes.h"

#include <bit>

namespace shoal {

void Net::Passes::Steps::stamp(int step, std::vector<std::uintptr_t>& to) const {
  const Wiring& wires = net_.wiring_[at(step)];
  const Layer& layer = *net_.layers_[at(step)];
  const auto add = [&](const Blob& blob) {
    to.push_back(std::bit_cast<std::uintptr_t>(blob.data.storage().get()));
    to.push_back(std::bit_cast<std::uintptr_t>(blob.grad.storage().get()));
  };
  for (const Blob* blob : wires.bottoms) add(*blob);
  for (const Blob* blob : wires.tops) add(*blob);
  for (const auto& param : layer.params()) add(*param);
  to.push_back(std::bit_cast<std::uint32_t>(layer.gradient_scale()));
  to.push_back(replays(step));
}

Status Net::Passes::Forward::begin(int step) {
  return net_.before_forward_ ? net_.before_forward_(step) : Status();
}

Status Net::Passes::Forward::work(int step) {
  Wiring& wires = net_.wiring_[at(step)];
  if (!wires.fused_into) net_.layers_[at(step)]->forward(net_.context_, wires.bottoms, wires.tops);
  return net_.context_.failed() ? net_.failure_of(step) : Status();
}

Status Net::Passes::Forward::end(int step) {
  return net_.after_forward_ ? net_.after_forward_(step) : Status();
}

Status Net::Passes::Backward::begin(int step) {
  const bool is_called = net_.wiring_[at(step)].needs_backward && net_.before_backward_;
  return is_called ? net_.before_backward_(static_cast<int>(at(step))) : Status();
}

Status Net::Passes::Backward::work(int step) {
  Wiring& wires = net_.wiring_[at(step)];
  if (!wires.needs_backward) return {};
  const int layer = static_cast<int>(at(step));
  net_.prepare_gradients(layer);
  net_.layers_[at(step)]->backward(net_.context_, wires.tops, wires.propagate, wires.bottoms);
  return net_.context_.failed() ? net_.failure_of(layer) : Status();
}

Status Net::Passes::Backward::end(int step) {
  return net_.after_backward_ ? net_.after_backward_(static_cast<int>(at(step))) : Status();
}

}  // namespace shoal
