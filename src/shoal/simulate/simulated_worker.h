// A worker of a simulated job, on a thread of its own in virtual time. Its work is the derived
// class's: one trains, the other computes no numbers.
#pragma once

#include "shoal/net/net.h"
#include "shoal/parallel/job/job_spec.h"
#include "shoal/simulate/failure_account.h"
#include "shoal/simulate/simulated_table.h"
#include "shoal/solver/compute_slices.h"

namespace shoal::simulate {

// Counts the work of all workers.
struct Tally {
  double samples = 0;
  std::int64_t iterations = 0;
  double losses = 0;         // the sum of the losses since the last point
  std::int64_t counted = 0;  // how many losses that are
  std::size_t ended = 0;     // workers
  // The params of worker 0's net, one after the other, where workers update some params themselves:
  // as they were in its last iteration, and at the end after it.
  std::vector<float> own_params{};
};

// The objects that all workers of a job share.
struct WorkerSetup {
  const parallel::JobSpec& spec;
  const SimulationOptions& options;
  const table::Servers& servers;  // as the placement of rows knows them
  SimulatedJob& job;
  ComputeSlots& slots;
  Tally& tally;
  FailureAccount* failures = nullptr;  // none where no worker fails
};
// A worker of the cluster, and the process that is in its place.
struct Place {
  int number = 0;
  Rank rank = 0;
  bool joins = false;  // the job, which trains
};

class SimulatedWorker {
 public:
  SimulatedWorker(const WorkerSetup& setup, const Place& place)
      : setup_(setup),
        place_(place),
        thread_(setup.slots),
        table_(setup.job, place.rank, thread_),
        random_(setup.options.seed, place.rank) {}
  virtual ~SimulatedWorker() = default;

  // ---- called by the scheduler ----
  void start() {
    setup_.job.time().at(Instant{}, [this] { resume(); });
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
      ++setup_.tally.ended;
    });
  }
  // Lets the worker go on until it computes, waits or ends.
  void resume() { thread_.resume(); }
  bool ended() const { return thread_.ended(); }
  bool is_lost() const { return table_.is_lost(); }
  const Place& place() const { return place_; }
  int number() const { return table_.worker(); }  // in this generation
  WorkerFigures figures() const {
    WorkerFigures figures = table_.figures_now();
    figures.traffic = setup_.job.traffic(place_.rank);
    return figures;
  }
  // Tell the account of failures that the process is lost; how many steps it has computed.
  virtual void be_lost() {}
  virtual void account() const {}
  // Writes a score to the worker's metrics, if it has any.
  virtual void record(const ScoreMetrics& score) { (void)score; }
  // Returns the values that forward passes change, running means for example, after the last
  // iteration.
  const std::vector<float>& running_sums() const { return running_sums_; }

 protected:
  // Returns when the worker's part of the job is done. An error, thrown or returned, ends the job.
  virtual Status work() = 0;
  const Compute& compute() const { return setup_.job.process_of(place_.rank).compute; }
  double draw_seconds() { return compute().draw(drawn_++, random_); }  // of the next iteration
  void count_iteration(double samples) {
    ++table_.figures.iterations;
    table_.figures.samples += samples;
    ++setup_.tally.iterations;
    setup_.tally.samples += samples;
  }

  const WorkerSetup setup_;
  const Place place_;
  SimThread thread_;
  SimulatedTable table_;
  std::vector<float> running_sums_;

 private:
  Random random_;
  std::size_t drawn_ = 0;  // iterations whose times were drawn
};

using Workers = std::vector<std::unique_ptr<SimulatedWorker>>;
template <class Worker, class... Shared>
Workers make_workers(const WorkerSetup& setup, const Shared&... shared) {
  Workers workers;
  for (int number = 0; number < setup.job.workers(); ++number)
    workers.push_back(std::make_unique<Worker>(
        setup, Place{.number = number, .rank = setup.job.rank_of(number)}, shared...));
  return workers;
}
Workers make_training_workers(const WorkerSetup& setup);
std::unique_ptr<SimulatedWorker> make_training_worker(const WorkerSetup& setup, const Place& place);
// Makes workers without numbers. The rows of their first phase exist when they start.
Workers make_dry_workers(const WorkerSetup& setup);

// Divides a worker's time among the layers: as they were measured, or estimated if they were not.
// Throws ConfigError if another net was measured.
inline ComputeSlices slices_of(const SimulatedJob& job, Rank rank, const Net& net, int iter_size) {
  const std::vector<Compute::Layer>& measured = job.process_of(rank).compute.layers;
  const bool overlap = job.cluster().overlap;
  if (measured.empty()) return slices_of(net, estimated_shares(net), iter_size, overlap);
  LayerShares shares;
  for (const auto& layer : net.layers()) {
    const auto found = std::ranges::find(measured, layer->name(), &Compute::Layer::name);
    if (found == measured.end())
      throw ConfigError(Code::kConfig, "the measured times of layers lack layer '", layer->name(),
                        "': they belong to another net");
    shares.forward.push_back(found->forward);
    shares.backward.push_back(found->backward);
  }
  normalize(shares);
  return slices_of(net, shares, iter_size, overlap);
}

}  // namespace shoal::simulate
