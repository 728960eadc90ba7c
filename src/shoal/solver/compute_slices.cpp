#include "shoal/solver/compute_slices.h"

#include <algorithm>

#include "shoal/net/net.h"

namespace shoal {
namespace {

constexpr double kPerElement = 10;  // the cost of reading or writing an element, in multiply-adds

// Returns the cost of a layer's forward pass, in multiply-adds.
double work_of(const Net& net, int layer) {
  const Layer& each = *net.layers()[static_cast<std::size_t>(layer)];
  // A data layer reads while other layers compute.
  if (net.bottoms(layer).empty()) return 0;
  double work = 0;
  for (const auto& blobs : {net.bottoms(layer), net.tops(layer)})
    for (const Blob* blob : blobs) work += kPerElement * static_cast<double>(blob->data.count());
  const bool transposed = each.type() == "Deconvolution";
  if (!transposed && each.type() != "Convolution" && each.type() != "InnerProduct") return work;
  const Blob& many = transposed ? *net.bottoms(layer)[0] : *net.tops(layer)[0];
  const auto outputs = static_cast<double>(many.shape().axes() > 1 ? many.shape()[1] : 1);
  return work + static_cast<double>(each.params()[0]->data.count()) *
                    static_cast<double>(many.data.count()) / outputs;
}

}  // namespace

LayerShares estimated_shares(const Net& net) {
  LayerShares shares;
  for (int i = 0; i < static_cast<int>(net.layers().size()); ++i) {
    const bool learns = !net.layers()[static_cast<std::size_t>(i)]->params().empty();
    shares.forward.push_back(work_of(net, i));
    shares.backward.push_back(net.needs_backward(i) ? shares.forward.back() * (learns ? 2 : 1) : 0);
  }
  normalize(shares);
  return shares;
}

void normalize(LayerShares& shares) {
  double sum = 0;
  for (std::size_t i = 0; i < shares.forward.size(); ++i)
    sum += shares.forward[i] + shares.backward[i];
  if (sum == 0) {
    shares.forward.back() = 1;
    return;
  }
  for (double& share : shares.forward) share /= sum;
  for (double& share : shares.backward) share /= sum;
}

ComputeSlices slices_of(const Net& net, const LayerShares& shares, int iter_size, bool overlap) {
  const std::size_t layers = net.layers().size();
  ComputeSlices slices{0, std::vector<double>(layers), std::vector<double>(layers),
                       std::vector<bool>(layers)};
  for (std::size_t i = 0; i < layers; ++i)
    slices.has_params[i] = !net.layers()[i]->params().empty();
  double* now = &slices.begin;
  for (std::size_t i = 0; i < layers; ++i) {
    if (slices.has_params[i]) now = &slices.forward[i];
    *now += shares.forward[i] / iter_size;
  }
  if (!overlap) {
    slices.begin = 0;
    std::ranges::fill(slices.forward, 0);
    *now = 1;
    return slices;
  }
  *now += 1 - 1.0 / iter_size;
  for (std::size_t i = layers; i-- > 0;) {
    *now += shares.backward[i] / iter_size;
    if (slices.has_params[i]) now = &slices.backward[i];
  }
  return slices;
}

}  // namespace shoal
