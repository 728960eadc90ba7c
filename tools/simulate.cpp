// Trains a net on a cluster that is imagined: docs/simulate.md.
#include <gflags/gflags.h>

#include <chrono>
#include <cstdio>

#include "common/job_flags.h"
#include "common/machine.h"
#include "common/run_job.h"
#include "common/tool.h"
#include "shoal/base/log.h"
#include "shoal/proto/io.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/simulate/simulation.h"

DEFINE_string(solver, "", "the solver, a prototxt");
DEFINE_string(cluster, "", "the cluster, a prototxt (src/shoal/proto/cluster.proto)");
DEFINE_double(seconds, 0, "end after so many virtual seconds");
DEFINE_double(samples, 0, "end after so many samples of all workers together");
DEFINE_int64(updates, 0, "end after so many updates of the weights");
DEFINE_int64(max_iter, 0, "iterations of each worker; default: the solver's");
DEFINE_string(target, "", "end when a test says so: \"accuracy 0.98\"; or when the loss of training does: \"train_loss 0.1\"");
DEFINE_double(test_every, 0, "virtual seconds between tests; default: the solver's test_interval at the workers' mean speed");
DEFINE_uint64(seed, 1, "of the network and the times of computing");
DEFINE_int32(threads, 0, "workers that really compute at once; 0: OMP_NUM_THREADS or all cores; the results do not depend on it");
DEFINE_string(out, "", "a folder for the run's files");

namespace shoal {
namespace {

constexpr const char* kUsage =
    "simulate --solver=FILE --cluster=FILE [--scheme=...] [--seconds=T] [--target=\"accuracy 0.98\"] [--out=FOLDER]\n\n"
    "Trains a net as a job of many processes would, with real gradients of real data, on a network and a clock that are imagined.";

void print_point(const simulate::Point& point) {
  std::printf("[%10.3f s] Iteration %lld, updates %lld, loss = %g (%.1f samples/s)\n", point.seconds, static_cast<long long>(point.iterations),
              static_cast<long long>(point.updates), point.loss, point.samples_per_second);
  int number = 0;
  for (const TestScore& score : point.scores)
    std::printf("[%10.3f s]     Test net output #%d: %s = %g\n", point.seconds, number++, score.output.c_str(), score.mean);
  std::fflush(stdout);
}

double mean_of(const std::vector<std::uint64_t>& histogram) {
  double sum = 0, count = 0;
  for (std::size_t i = 0; i < histogram.size(); ++i) sum += static_cast<double>(i * histogram[i]), count += static_cast<double>(histogram[i]);
  return count > 0 ? sum / count : 0;
}
std::size_t largest_of(const std::vector<std::uint64_t>& histogram) {
  std::size_t largest = 0;
  for (std::size_t i = 0; i < histogram.size(); ++i)
    if (histogram[i] > 0) largest = i;
  return largest;
}

void print_outcome(const simulate::Outcome& outcome, const std::string& scheme, double real) {
  double compute = 0, rows = 0, others = 0, samples = 0, sent = 0, received = 0;
  for (const simulate::WorkerFigures& worker : outcome.workers) {
    compute += worker.compute, rows += worker.rows, others += worker.others, samples += worker.samples;
    sent += static_cast<double>(worker.traffic.bytes_sent), received += static_cast<double>(worker.traffic.bytes_received);
  }
  const double workers = static_cast<double>(outcome.workers.size()), all = std::max(1e-12, workers * outcome.seconds);
  const simulate::Point& last = outcome.points.back();
  std::printf("\nEnded since %s; it took %.1f real seconds.\n\n", outcome.ending.c_str(), real);
  std::printf("| scheme | seconds | samples/s | updates | loss |");
  for (const TestScore& score : last.scores) std::printf(" %s |", score.output.c_str());
  std::printf(" sent B/s/worker | received B/s/worker | compute | rows wait | other wait | stale clocks mean/max | stale versions mean/max | dropped |\n");
  std::printf("|---|---|---|---|---|");
  for (std::size_t i = 0; i < last.scores.size(); ++i) std::printf("---|");
  std::printf("---|---|---|---|---|---|---|---|\n");
  std::printf("| %s | %.3f | %.1f | %lld | %.5g |", scheme.c_str(), outcome.seconds, samples / std::max(1e-12, outcome.seconds), static_cast<long long>(last.updates), last.loss);
  for (const TestScore& score : last.scores) std::printf(" %.5g |", score.mean);
  std::printf(" %.4g | %.4g | %.1f %% | %.1f %% | %.1f %% | %.2f/%zu | %.2f/%zu | %llu |\n", sent / all, received / all, 100 * compute / all, 100 * rows / all,
              100 * others / all, mean_of(outcome.counters.staleness), largest_of(outcome.counters.staleness), mean_of(outcome.version_staleness),
              largest_of(outcome.version_staleness), static_cast<unsigned long long>(outcome.counters.dropped));
}

int simulate_job(const std::vector<std::string>& words) {
  if (!words.empty()) throw ConfigError(Code::kUsage, "'", words[0], "' is not a flag; did you mean --solver=", words[0], "?");
  need_flag(FLAGS_solver, "solver");
  need_flag(FLAGS_cluster, "cluster");
  say_only_warnings(true);
  SolverParameter param = read_solver(FLAGS_solver, SnapshotPrefix::kAsWritten);
  merge_flags(job_flags(), param);
  if (FLAGS_max_iter > 0) param.set_max_iter(static_cast<std::int32_t>(FLAGS_max_iter));
  if (param.random_seed() < 0) param.set_random_seed(static_cast<std::int64_t>(FLAGS_seed));
  simulate::SimulationOptions options;
  options.name = FLAGS_solver;
  options.scheme = scheme_of(param, FLAGS_solver);
  options.seed = FLAGS_seed;
  options.seconds = FLAGS_seconds;
  options.samples = FLAGS_samples;
  options.updates = FLAGS_updates;
  if (!FLAGS_target.empty()) options.target = simulate::parse_target(FLAGS_target);
  options.test_every = FLAGS_test_every;
  options.threads = threads_to_use(FLAGS_threads);
  const auto start = std::chrono::steady_clock::now();
  const simulate::Outcome outcome = or_throw(simulate::simulate(param, simulate::read_cluster(FLAGS_cluster), options, print_point));
  for (const std::string& line : outcome.warnings) LOG(WARNING) << line;
  print_outcome(outcome, options.scheme, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) { return shoal::run_tool(argc, argv, shoal::kUsage, shoal::simulate_job); }
