#include "shoal/net/blob_layouts.h"

#include <algorithm>

#include "shoal/net/net.h"
#include "shoal/ops/op.h"

namespace shoal {
namespace {

// Returns the tensor's layout, if layers that keep layouts write their tops in it, too: it is a
// layout for every shape, and it takes fewer bytes than the plain one or the kernels of the host
// know it.
LayoutPtr kept_layout(const BlobLayouts& layouts, const Tensor& tensor) {
  const auto found = layouts.find(tensor.storage().get());
  if (found == layouts.end() || found->second->depends_on_shape()) return nullptr;
  const LayoutPtr& layout = found->second;
  const bool smaller = layout->bytes(tensor.shape()) < tensor.bytes();
  return smaller || layout->like(tensor.shape()) ? layout : nullptr;
}

bool has_own(const Layer& layer, LayoutPtr KernelNeeds::*which) {
  return std::ranges::any_of(layer.choices(), [which](const ops::Choice& choice) {
    return choice.needs.*which != nullptr;
  });
}

// Returns the layouts that kernels ask for.
BlobLayouts ask_kernels(const Net& net) {
  BlobLayouts layouts;
  const auto keep_in = [&](const LayoutPtr& layout, const Tensor& tensor) {
    if (!layout) return;
    tensor.storage()->require(layout->bytes(tensor.shape()));
    layouts[tensor.storage().get()] = layout;
  };
  for (int i = 0; i < static_cast<int>(net.layers().size()); ++i)
    for (const ops::Choice& choice : net.layers()[i]->choices()) {
      for (const Blob* top : net.tops(i)) keep_in(choice.needs.output, top->data);
      for (const Blob* bottom : net.bottoms(i)) keep_in(choice.needs.input, bottom->grad);
    }
  return layouts;
}

}  // namespace

// Layouts go through layers that take them over from others; a layer that writes plain numbers into
// a storage ends them.
BlobLayouts layouts_of(const Net& net) {
  BlobLayouts layouts = ask_kernels(net);
  const auto put = [&](const Tensor& tensor, const LayoutPtr& layout) {
    if (layout) {
      tensor.storage()->require(layout->bytes(tensor.shape()));
      layouts[tensor.storage().get()] = layout;
    } else if (kept_layout(layouts, tensor)) {
      layouts.erase(tensor.storage().get());
    }
  };
  // Returns the same kind of layout for a tensor of another shape.
  const auto like = [](const LayoutPtr& layout, const Tensor& tensor) {
    const LayoutPtr own = layout ? layout->like(tensor.shape()) : nullptr;
    return own ? own : layout;
  };
  const int n = static_cast<int>(net.layers().size());
  for (int i = 0; i < n; ++i) {
    const Layer& layer = *net.layers()[i];
    if (has_own(layer, &KernelNeeds::output)) continue;
    const Bottoms bottoms = net.bottoms(i);
    LayoutPtr all;
    const Layer::KeepsLayout keeps = layer.keeps_layout();
    if (keeps.data && !bottoms.empty()) all = kept_layout(layouts, bottoms[0]->data);
    for (const Blob* bottom : bottoms)
      if (!keeps.of_first && !kept_layout(layouts, bottom->data)) all = nullptr;
    for (const Blob* top : net.tops(i)) put(top->data, like(all, top->data));
  }
  // Layers that keep a layout come first; then those that write plain gradients have their way.
  for (const bool keeps : {true, false})
    for (int i = 0; i < n; ++i) {
      const Layer& layer = *net.layers()[i];
      if (layer.keeps_layout().grad != keeps || has_own(layer, &KernelNeeds::input)) continue;
      for (const Blob* bottom : net.bottoms(i))
        put(bottom->grad, keeps ? kept_layout(layouts, bottom->data) : nullptr);
    }
  return layouts;
}

std::size_t bytes_in(const BlobLayouts& layouts, const Tensor& tensor) {
  const LayoutPtr layout = kept_layout(layouts, tensor);
  return layout ? layout->bytes(tensor.shape()) : tensor.storage()->required();
}

}  // namespace shoal
