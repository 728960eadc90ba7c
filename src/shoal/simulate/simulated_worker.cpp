#include "shoal/simulate/simulated_worker.h"

#include <algorithm>

#include "shoal/net/net.h"

namespace shoal::simulate {

ComputeSlices slices_of(const SimulatedJob& job, int worker, const Net& net, int iter_size) {
  const std::vector<Compute::Layer>& measured = job.process_of(worker).compute.layers;
  const bool overlap = job.cluster().overlap;
  if (measured.empty()) return slices_of(net, estimated_shares(net), iter_size, overlap);
  LayerShares shares;
  for (const auto& layer : net.layers()) {
    const auto found = std::ranges::find(measured, layer->name(), &Compute::Layer::name);
    if (found == measured.end())
      throw ConfigError(Code::kConfig, "the measured times of layers have none of layer '",
                        layer->name(), "': they are another net's");
    shares.forward.push_back(found->forward);
    shares.backward.push_back(found->backward);
  }
  normalize(shares);
  return slices_of(net, shares, iter_size, overlap);
}

}  // namespace shoal::simulate
