// Lets a caller work on a net's blobs between passes and parts of passes (NetOptions::interactive).
#include "shoal/base/log.h"
#include "shoal/net/build.h"
#include "shoal/net/net.h"
#include "shoal/net/passes.h"
#include "shoal/ops/vector.h"
#include "shoal/proto/config_error.h"

namespace shoal {

Result<float> Net::forward(int first, int last) {
  CHECK(0 <= first && first <= last && last < std::ssize(layers_)) << first << " to " << last;
  if (first == 0)
    if (Status status = follow_inputs(); !status.ok()) return status.error();
  may_record_ = false;
  if (Status status = passes_->forward.run_steps(first, last); !status.ok()) return status.error();
  float loss = 0;
  for (int i = first; i <= last; ++i)
    each_loss_of(i, [&](const Tensor& top, float weight) {
      for (const float value : top.host()) loss += weight * value;
    });
  return loss;
}

Status Net::backward(int first, int last) {
  CHECK(!options_.forward_only) << "net '" << name() << "' was built without a backward pass";
  const int n = static_cast<int>(layers_.size());
  CHECK(0 <= last && last <= first && first < n) << first << " to " << last;
  return passes_->backward.run_steps(n - 1 - first, n - 1 - last);
}

std::vector<Shape> Net::shapes_at(int layer) const {
  std::vector<Shape> shapes;
  for (const Blob* bottom : bottoms(layer)) shapes.push_back(bottom->shape());
  for (const Blob* top : tops(layer)) shapes.push_back(top->shape());
  return shapes;
}

void Net::note_shapes(int i, bool ran) {
  if (!options_.interactive) return;
  Wiring& wires = wiring_[static_cast<std::size_t>(i)];
  wires.shapes = shapes_at(i);
  wires.ran = ran;
}

// Reshapes a layer of an interactive net whose blobs have other shapes than it gave or found.
Status Net::follow_shapes(int i) {
  const Wiring& wires = wiring_[static_cast<std::size_t>(i)];
  Layer& layer = *layers_[static_cast<std::size_t>(i)];
  if (!options_.interactive || (!layer.reshapes_each_pass() && shapes_at(i) == wires.shapes))
    return {};
  try {
    reshape_layer(layer, context_, wires.bottoms, wires.tops);
  } catch (const ConfigError& error) {
    return Error{error.error().code, with_own_names(error.what())};
  }
  fill_loss_gradients(i);
  return {};
}

Status Net::make_ready_for_backward(int i) {
  if (!options_.interactive) return {};
  const Wiring& wires = wiring_[static_cast<std::size_t>(i)];
  const Layer& layer = *layers_[static_cast<std::size_t>(i)];
  if (shapes_at(i) != wires.shapes)
    return Error{Code::kUsage,
                 str(layer_place(layer.param()),
                     ": a bottom or top was reshaped since the layer's last forward pass; another "
                     "must come before its backward pass")};
  if (wires.ran || wires.bottoms.empty() || layer.reshapes_each_pass()) return {};
  forward_at(i);
  note_shapes(i, true);
  return context_.failed() ? failure_of(i) : Status();
}

void Net::fill_loss_gradients(int i) {
  const Layer& layer = *layers_[static_cast<std::size_t>(i)];
  const Tops all = tops(i);
  for (std::size_t t = 0; t < all.size(); ++t)
    if (const float weight = layer.loss_gradient(static_cast<int>(t)); weight != 0)
      ops::fill(context_, weight, all[t]->grad);
}

}  // namespace shoal
