#include "shoal/simulate/simulated_worker.h"

#include <algorithm>

#include "shoal/net/net.h"

namespace shoal::simulate {

SimulatedWorker::SimulatedWorker(const WorkerSetup& setup, int number)
    : job_(setup.job),
      number_(number),
      tally_(setup.tally),
      thread_(setup.slots),
      table_(job_, number, thread_),
      random_(setup.options.seed, static_cast<std::uint64_t>(number)) {}

WorkerFigures SimulatedWorker::figures() const {
  WorkerFigures figures = table_.figures;
  figures.traffic = job_.traffic(number_);
  return figures;
}

void SimulatedWorker::start() {
  job_.time().at(Instant{}, [this] { resume(); });
  thread_.start([this] {
    Status outcome;
    try {
      outcome = work();
    } catch (const ConfigError& error) {
      outcome = error.error();
    }
    table_.enter();
    if (!outcome.ok()) table_.abort(outcome.error());
    table_.figures.seconds = to_seconds(table_.now());
  });
}

void SimulatedWorker::count_iteration(double samples) {
  ++table_.figures.iterations;
  table_.figures.samples += samples;
  ++tally_.iterations;
  tally_.samples += samples;
}

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
