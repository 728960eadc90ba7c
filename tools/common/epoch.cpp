#include "common/epoch.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "common/records.h"
#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/data/parts.h"
#include "shoal/proto/fields.h"
#include "shoal/proto/net.pb.h"
#include "shoal/solver/recipe.h"

namespace shoal {

void report_epoch(const SolverParameter& param, const std::string& name, const Solver& solver) {
  const std::int64_t items = solver.items_per_update();
  const auto records = records_of(train_net_of(param, name), Counting::kCheap);
  if (!records || items == 0) return;
  const auto iterations = static_cast<double>(*records) / static_cast<double>(items);
  LOG(INFO) << "One epoch, " << *records << " records, is " << iterations
            << " iterations; max_iter " << param.max_iter() << " is "
            << param.max_iter() / iterations << " epochs";
}

Records records_for(const parallel::JobSpec& job, const Share& share) {
  NetParameter net = train_net_of(job.solver, job.name);
  bool parts = false;
  const auto take_part = [&](auto& data) {
    if (data.shared_file_system() || share.clients == 1) return;
    parts = true;
    data.set_source(part_path(data.source(),
                              share.suffix.empty() ? std::to_string(share.client) : share.suffix));
  };
  for (LayerParameter& layer : *net.mutable_layer()) {
    if (reads_data_param(layer)) take_part(*layer.mutable_data_param());
    if (layer.type() == "ImageData") take_part(*layer.mutable_image_data_param());
  }
  return {records_of(net, Counting::kCheap).value_or(0), parts};
}

std::uint64_t epoch_of_job(const Records& records, const Share& share) {
  return records.own * (records.parts ? static_cast<std::uint64_t>(share.clients) : 1);
}

void compare_parts(const Records& records, Team& team) {
  if (!records.parts) return;
  const std::vector<std::string> sizes = or_throw(team.gather(std::to_string(records.own)));
  // Only the chief gets the sizes.
  const bool equal = std::ranges::adjacent_find(sizes, std::ranges::not_equal_to()) == sizes.end();
  if (equal || std::ranges::count(sizes, "0") > 0) return;
  LOG(WARNING) << "The workers' parts of the data have " << join(sizes)
               << " records: workers with fewer records repeat them more often";
}

void compare_shares(int replicas, const std::vector<double>& weights, Team& team) {
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<std::string> shares;
  for (const double weight : weights) shares.push_back(str(weight / all));
  const std::vector<std::string> said = or_throw(team.gather(str(
      "replicas: ", replicas, ", shares: ", shares.empty() ? "none" : shoal::join(shares, " "))));
  for (std::size_t worker = 1; worker < said.size(); ++worker)
    if (said[worker] != said[0])
      throw ConfigError(Code::kUsage, "worker ", worker, " has '", said[worker],
                        "' where worker 0 has '", said[0],
                        "': --replicas, the number of GPUs, and --data_sharding or weight= must be "
                        "the same for all workers; a machine with more GPUs runs a worker on each "
                        "(slots= and gpus= in the machinefile)");
}

}  // namespace shoal
