#include "shoal/net/fuse.h"

#include <algorithm>
#include <map>
#include <string>

namespace shoal {
namespace {

// Types of layers whose kernels can apply the follower's function to their result.
struct Pair {
  const char *maker, *follower;
  bool more = false;  // and that of a layer behind it
};
constexpr Pair kPairs[] = {{"Convolution", "BatchNorm", true},
                           {"Convolution", "Scale", true},
                           {"Convolution", "ReLU"},
                           {"BatchNorm", "Scale", true},
                           {"BatchNorm", "ReLU"},
                           {"ConvolutionDepthwise", "BatchNorm", true},
                           {"ConvolutionDepthwise", "Scale", true},
                           {"ConvolutionDepthwise", "ReLU"},
                           {"DepthwiseConvolution", "BatchNorm", true},
                           {"DepthwiseConvolution", "Scale", true},
                           {"DepthwiseConvolution", "ReLU"},
                           {"Eltwise", "ReLU"},
                           {"InnerProduct", "ReLU"}};

const Pair* find_pair(const LayerParameter& maker, const LayerParameter& follower) {
  const auto found = std::ranges::find_if(kPairs, [&](const Pair& pair) {
    return maker.type() == pair.maker && follower.type() == pair.follower;
  });
  return found == std::end(kPairs) ? nullptr : found;
}

bool works_in_place(const LayerParameter& layer) {
  return layer.bottom_size() == 1 && layer.top_size() == 1 && layer.bottom(0) == layer.top(0);
}

}  // namespace

std::vector<Fusion> find_fusions(const NetParameter& with_splits,
                                 const std::function<bool(const Fusion&)>& takes) {
  std::vector<Fusion> fusions;
  // The layer that wrote each blob last, or the one that can do that layer's work.
  std::map<std::string, int> makers;
  for (int i = 0; i < with_splits.layer_size(); ++i) {
    const LayerParameter& layer = with_splits.layer(i);
    if (works_in_place(layer) && makers.contains(layer.bottom(0))) {
      const Fusion fusion{.maker = makers.at(layer.bottom(0)), .follower = i};
      const LayerParameter& maker = with_splits.layer(fusion.maker);
      const Pair* const pair = find_pair(maker, layer);
      if (pair != nullptr && maker.top_size() == 1 && takes(fusion)) {
        fusions.push_back(fusion);
        if (pair->more) continue;
      }
    }
    for (const std::string& top : layer.top()) makers[top] = i;
  }
  return fusions;
}

}  // namespace shoal
