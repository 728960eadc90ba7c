#include "common/least_time.h"

#include <algorithm>
#include <set>

#include "shoal/net/net.h"

namespace shoal {
namespace {

double bytes_of(const auto& blobs) {
  double bytes = 0;
  for (const auto& blob : blobs)
    bytes += sizeof(float) * static_cast<double>(blob->shape().count());
  return bytes;
}

class Roofline {
 public:
  Roofline(const Net& net, const DeviceRates& rates) : net_(net), rates_(rates) {}

  std::vector<LeastTime> by_layer() {
    std::vector<LeastTime> times;
    for (int i = 0; i < static_cast<int>(net_.layers().size()); ++i) {
      times.push_back(of(i));
      if (net_.needs_backward(i)) with_gradient_.insert(net_.tops(i).begin(), net_.tops(i).end());
    }
    return times;
  }

 private:
  LeastTime of(int i) const {
    if (net_.bottoms(i).empty() || net_.fused_into(i) != nullptr) return {};
    const Layer& layer = *net_.layers()[static_cast<std::size_t>(i)];
    const bool splits = layer.type() == "Split";
    const double bottoms = bytes_of(net_.bottoms(i)), tops = bytes_of(net_.tops(i)),
                 params = bytes_of(layer.params());
    const double flops = 2 * static_cast<double>(layer.multiply_adds());
    LeastTime time;
    if (!splits) time.forward = longer(flops, bottoms + params + tops);
    if (!net_.needs_backward(i)) return time;
    double wanted = 0;  // gradients of bottoms
    for (const Blob* bottom : net_.bottoms(i))
      if (with_gradient_.contains(bottom)) wanted += bytes_of(std::span(&bottom, 1));
    // Backward reads gradients of tops, data and params, and writes those of bottoms and params.
    const double traffic = tops + (splits ? 0 : bottoms) + wanted + 2 * params;
    time.backward = longer(flops * ((params > 0) + (wanted > 0)), traffic);
    return time;
  }
  double longer(double flops, double bytes) const {
    return std::max(flops / rates_.flops, bytes / rates_.bytes);
  }

  const Net& net_;
  const DeviceRates rates_;
  std::set<const Blob*> with_gradient_;  // tops of the layers so far
};

}  // namespace

std::vector<LeastTime> least_times(const Net& net, const DeviceRates& rates) {
  return Roofline(net, rates).by_layer();
}

}  // namespace shoal
