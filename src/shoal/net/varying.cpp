#include "shoal/net/varying.h"

#include <algorithm>
#include <map>

#include "shoal/net/build.h"

namespace shoal {
namespace {

void leave_no_items(Blob& blob) {
  std::vector<std::int64_t> dims = blob.shape().dims();
  dims.at(0) = 0;
  blob.reshape(Shape(dims));
}

// Returns whether the layer can follow bottoms without items; the pass that brings such will say
// why not.
bool can_follow(Net& net, int layer) {
  try {
    net.layers()[static_cast<std::size_t>(layer)]->reshape(net.context(), net.bottoms(layer),
                                                           net.tops(layer));
  } catch (const ConfigError&) {
    return false;
  }
  return true;
}

}  // namespace

Varying find_varying(Net& net) {
  const int n = static_cast<int>(net.layers().size());
  Varying varying{std::vector<bool>(static_cast<std::size_t>(n)), {}};
  const auto varies = [&](const Blob* blob) { return varying.blobs.contains(blob); };
  for (int i = 0; i < n; ++i) {
    const bool sizes_tops = net.layers()[static_cast<std::size_t>(i)]->sizes_tops();
    if (!sizes_tops && std::ranges::none_of(net.bottoms(i), varies)) continue;
    varying.layers[static_cast<std::size_t>(i)] = true;
    std::map<const Blob*, Shape> full;
    for (const Blob* top : net.tops(i)) full[top] = top->shape();
    const bool follows = can_follow(net, i);
    for (Blob* top : net.tops(i)) {
      if (sizes_tops) leave_no_items(*top);
      if (!follows || top->shape() != full.at(top)) varying.blobs.insert(top);
    }
  }
  for (int i = 0; i < n; ++i)
    if (varying.layers[static_cast<std::size_t>(i)])
      reshape_layer(*net.layers()[static_cast<std::size_t>(i)], net.context(), net.bottoms(i),
                    net.tops(i));
  return varying;
}

// Counts the first bottom of a loss alone: the matrix of an InfogainLoss is there in any case.
bool has_work(const Net& net, int layer) {
  const auto has_numbers = [](const Blob* blob) { return blob->data.count() > 0; };
  const Bottoms bottoms = net.bottoms(layer);
  const bool is_loss = net.layers()[static_cast<std::size_t>(layer)]->makes_missing_top();
  const Bottoms counted = is_loss ? bottoms.first(1) : bottoms;
  const Tops tops = net.tops(layer);
  return std::ranges::any_of(counted, has_numbers) &&
         (tops.empty() || std::ranges::any_of(tops, has_numbers));
}

}  // namespace shoal
