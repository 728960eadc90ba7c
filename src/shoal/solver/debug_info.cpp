#include "shoal/solver/debug_info.h"

#include <algorithm>
#include <cmath>

#include "shoal/base/log.h"
#include "shoal/ops/vector.h"

namespace shoal {
namespace {

double mean_magnitude(Net& net, const Tensor& tensor) {
  const Tensor* const one[] = {&tensor};
  return ops::asum(net.context(), one) /
         static_cast<double>(std::max<std::int64_t>(tensor.count(), 1));
}

// Returns whether `blob` comes from a layer that takes part in backward, so that its gradient was
// written.
bool has_gradient(const Net& net, const Blob* blob, int before) {
  for (int i = before - 1; i >= 0; --i)
    for (const Blob* top : net.tops(i))
      if (top == blob) return net.needs_backward(i);
  return false;
}

const Layer& layer_at(const Net& net, int layer) {
  return *net.layers()[static_cast<std::size_t>(layer)];
}

}  // namespace

void log_forward(Net& net, int layer) {
  const Layer& l = layer_at(net, layer);
  for (const Blob* top : net.tops(layer))
    LOG(INFO) << "    [Forward] Layer " << l.name() << ", top blob " << top->name
              << " data: " << mean_magnitude(net, top->data);
  for (std::size_t i = 0; i < l.params().size(); ++i)
    LOG(INFO) << "    [Forward] Layer " << l.name() << ", param blob " << i
              << " data: " << mean_magnitude(net, l.params()[i]->data);
}

void log_backward(Net& net, int layer) {
  if (!net.needs_backward(layer)) return;
  const Layer& l = layer_at(net, layer);
  for (const Blob* bottom : net.bottoms(layer))
    if (has_gradient(net, bottom, layer))
      LOG(INFO) << "    [Backward] Layer " << l.name() << ", bottom blob " << bottom->name
                << " diff: " << mean_magnitude(net, bottom->grad);
  for (std::size_t i = 0; i < l.params().size(); ++i)
    if (l.param_propagates(static_cast<int>(i)))
      LOG(INFO) << "    [Backward] Layer " << l.name() << ", param blob " << i
                << " diff: " << mean_magnitude(net, l.params()[i]->grad);
}

void log_params(Net& net) {
  std::vector<const Tensor*> data, grads;
  for (const NetParam& param : net.params()) {
    data.push_back(&param.blob->data);
    grads.push_back(&param.blob->grad);
  }
  Context& ctx = net.context();
  LOG(INFO) << "    [Backward] All net params (data, diff): L1 norm = (" << ops::asum(ctx, data)
            << ", " << ops::asum(ctx, grads) << "); L2 norm = ("
            << std::sqrt(ops::sum_of_squares(ctx, data)) << ", "
            << std::sqrt(ops::sum_of_squares(ctx, grads)) << ")";
}

}  // namespace shoal
