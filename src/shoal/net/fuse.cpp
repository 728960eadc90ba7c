#include "shoal/net/fuse.h"

#include <algorithm>
#include <map>
#include <string>

namespace shoal {
namespace {

// Types of layers whose kernels can apply the follower's function to their result.
struct Pair {
  const char *maker, *follower;
};
constexpr Pair kPairs[] = {{"Convolution", "ReLU"}};

bool is_listed(const LayerParameter& maker, const LayerParameter& follower) {
  return std::ranges::any_of(kPairs, [&](const Pair& pair) {
    return maker.type() == pair.maker && follower.type() == pair.follower;
  });
}

bool works_in_place(const LayerParameter& layer) {
  return layer.bottom_size() == 1 && layer.top_size() == 1 && layer.bottom(0) == layer.top(0);
}

}  // namespace

std::vector<Fusion> find_fusions(const NetParameter& with_splits) {
  std::vector<Fusion> fusions;
  std::map<std::string, int> makers;  // of each blob, the layer that wrote it last
  for (int i = 0; i < with_splits.layer_size(); ++i) {
    const LayerParameter& layer = with_splits.layer(i);
    if (works_in_place(layer) && makers.contains(layer.bottom(0))) {
      const int maker = makers.at(layer.bottom(0));
      if (with_splits.layer(maker).top_size() == 1 && is_listed(with_splits.layer(maker), layer))
        fusions.push_back({.maker = maker, .follower = i});
    }
    for (const std::string& top : layer.top()) makers[top] = i;
  }
  return fusions;
}

}  // namespace shoal
