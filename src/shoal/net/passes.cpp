#include "shoal/net/passes.h"

#include <bit>
#include <vector>

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
  to.push_back(static_cast<std::uintptr_t>(bytes_together()));
}

bool Net::Passes::Steps::together(int first, int last) const {
  std::int64_t bytes = 0;
  for (int step = first; step <= last; ++step)
    for (const auto& param : net_.layers_[at(step)]->params())
      bytes += static_cast<std::int64_t>(param->data.bytes());
  return first == last || bytes <= bytes_together();
}

Status Net::Passes::Forward::begin(int step) {
  return net_.before_forward_ ? net_.before_forward_(step) : Status();
}

Status Net::Passes::Forward::work(int step) {
  if (Status status = net_.follow_shapes(step); !status.ok()) return status;
  if (Status status = net_.size_tops(step); !status.ok()) return status;
  net_.forward_at(step);
  net_.note_shapes(step, true);
  return net_.context_.failed() ? net_.failure_of(step) : Status();
}

Status Net::Passes::Forward::end(int first, int last) {
  if (!net_.after_forward_) return {};
  for (int layer = first; layer <= last; ++layer)
    if (Status status = net_.after_forward_(layer); !status.ok()) return status;
  return {};
}

Status Net::Passes::Backward::begin(int step) {
  const bool is_called = net_.wiring_[at(step)].needs_backward && net_.before_backward_;
  return is_called ? net_.before_backward_(static_cast<int>(at(step))) : Status();
}

Status Net::Passes::Backward::work(int step) {
  Wiring& wires = net_.wiring_[at(step)];
  if (!wires.needs_backward) return {};
  const int layer = static_cast<int>(at(step));
  if (Status status = net_.make_ready_for_backward(layer); !status.ok()) return status;
  net_.prepare_gradients(layer);
  if (wires.backward >= 0) {
    const LentScratch lent(net_.context_, wires.backward_scratch);
    net_.backward_of(wires.backward);
  }
  return net_.context_.failed() ? net_.failure_of(layer) : Status();
}

Status Net::Passes::Backward::end(int first, int last) {
  if (!net_.after_backward_) return {};
  std::vector<int> layers;
  for (int step = first; step <= last; ++step) layers.push_back(static_cast<int>(at(step)));
  return net_.after_backward_(layers);
}

}  // namespace shoal
