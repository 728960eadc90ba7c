// Trains a net on a simulated cluster (docs/simulating-a-cluster.md).
#include <gflags/gflags.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "common/job_flags.h"
#include "common/machine.h"
#include "common/run_job.h"
#include "common/solver_flags.h"
#include "common/tool.h"
#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/base/number.h"
#include "shoal/base/text.h"
#include "shoal/net/net.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/simulate/simulation.h"
#include "shoal/solver/recipe.h"

DEFINE_string(cluster, "", "the simulated cluster, a prototxt (src/shoal/proto/cluster.proto)");
DEFINE_double(seconds, 0, "end after so many virtual seconds");
DEFINE_double(samples, 0, "end after so many samples of all workers together");
DEFINE_int64(updates, 0, "end after so many updates of the weights");
DEFINE_string(target, "",
              "end when a test says so: \"accuracy 0.98\"; or when the loss of training does: "
              "\"train_loss 0.1\"");
DEFINE_double(test_every, 0,
              "virtual seconds between tests; default: the solver's test_interval at the workers' "
              "mean speed");
DEFINE_uint64(seed, 1, "seed of the random times of the network and of computing");
DEFINE_int32(threads, 0,
             "workers that really compute at once; 0: OMP_NUM_THREADS or all cores; the results do "
             "not depend on it");
DEFINE_string(out, "",
              "a folder for the run's files: metrics.<worker>.jsonl (docs/reference/metrics.md) "
              "and summary.md");
DEFINE_bool(
    dry, false,
    "simulate without numbers: nothing is learned and no data is read, so a thousand workers "
    "take seconds");
DEFINE_string(placement, "bytes",
              "how rows are placed on servers: bytes, or time (of the servers' links and updates)");
DEFINE_string(scaling, "",
              "with --dry: numbers of workers, as \"2,4,8\", all like the cluster's first; prints "
              "the time of an iteration for each, beside formulas");
DEFINE_string(
    esync_log_dir, "",
    "write each worker's iterations as ESync does, to DIR/worker<k>/iter-1.txt, iter-2.txt ...");

namespace shoal {
namespace {

constexpr const char* kUsage =
    "simulate --solver=FILE --cluster=FILE [--scheme=...] [--seconds=T] [--target=\"accuracy "
    "0.98\"] [--out=FOLDER]\n"
    "simulate --dry --solver=FILE --cluster=FILE --max_iter=N [--scaling=2,4,8,16]\n\n"
    "Trains a net as a job of many processes would, with real gradients of real data, on a "
    "simulated "
    "network and clock.\n"
    "--dry computes no numbers: it only says how long the job takes.";

void print_point(const simulate::Point& point) {
  std::printf("[%10.3f s] Iteration %lld, updates %lld, loss = %g (%.1f samples/s)\n",
              point.seconds, static_cast<long long>(point.iterations),
              static_cast<long long>(point.updates), point.loss, point.samples_per_second);
  int number = 0;
  for (const TestScore& score : point.scores)
    std::printf("[%10.3f s]     Test net output #%d: %s = %g\n", point.seconds, number++,
                score.output.c_str(), score.mean);
  std::fflush(stdout);
}

double mean_of(const table::Staleness& histogram) {
  double sum = 0, count = 0;
  for (std::size_t i = 0; i < histogram.size(); ++i) {
    sum += static_cast<double>(i * histogram[i]);
    count += static_cast<double>(histogram[i]);
  }
  return count > 0 ? sum / count : 0;
}
std::size_t largest_of(const table::Staleness& histogram) {
  std::size_t largest = 0;
  for (std::size_t i = 0; i < histogram.size(); ++i)
    if (histogram[i] > 0) largest = i;
  return largest;
}

using Columns = std::vector<std::pair<std::string, std::string>>;

// Returns "0.12 / 0.1".
std::string mean_and_median(std::vector<double> all) {
  if (all.empty()) return "none";
  double sum = 0;
  for (const double each : all) sum += each;
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  std::ranges::nth_element(all, middle);
  const auto rounded = [](double seconds) { return std::round(1e4 * seconds) / 1e4; };
  return str(rounded(sum / static_cast<double>(all.size())), " / ", rounded(*middle));
}

void add_failures(const simulate::FailureFigures& figures, Columns& columns) {
  columns.insert(columns.end(), {{"failures", str(figures.failures)},
                                 {"returns", str(figures.returns)},
                                 {"workers that took part, mean",
                                  str(std::round(100 * figures.mean_workers) / 100)},
                                 {"seconds without progress after a failure, mean / median",
                                  mean_and_median(figures.stops_by_failures)},
                                 {"after a return", mean_and_median(figures.stops_by_returns)}});
}

// Returns the line of a job's log that says how useful its compute was.
std::string useful_words(const simulate::FailureFigures& figures) {
  const auto percent = [&](double of) {  // rounded down: 100 % is all
    return str(std::floor(1e3 * std::min(1.0, figures.in_params / std::max(1e-12, of))) / 10, " %");
  };
  return str("\nUseful: ", percent(figures.computed), " of the ", std::llround(figures.computed),
             " steps computed are in the params; ", percent(figures.possible), " of the ",
             std::llround(figures.possible), " that all workers could have computed\n");
}

// Returns the summary of a run as a table in Markdown, with a line below it if workers may fail.
std::string summary_of(const simulate::Outcome& outcome) {
  simulate::WorkerFigures sum;
  for (const simulate::WorkerFigures& worker : outcome.workers) {
    sum.compute += worker.compute;
    sum.rows += worker.rows;
    sum.others += worker.others;
    sum.samples += worker.samples;
    sum.traffic.bytes_sent += worker.traffic.bytes_sent;
    sum.traffic.bytes_received += worker.traffic.bytes_received;
  }
  const double all = std::max(1e-12, static_cast<double>(outcome.workers.size()) * outcome.seconds);
  const simulate::Point& last = outcome.points.back();
  Columns columns = {{"scheme", outcome.scheme},
                     {"seconds", str(outcome.seconds)},
                     {"samples/s", str(sum.samples / std::max(1e-12, outcome.seconds))},
                     {"updates", str(last.updates)},
                     {"train loss", str(last.loss)}};
  for (const TestScore& score : last.scores)
    columns.emplace_back("test " + score.output, str(score.mean));
  const auto percent = [&](double part) { return str(std::round(1000 * part / all) / 10, " %"); };
  const auto staleness = [](const table::Staleness& histogram) {
    return str(mean_of(histogram), " / ", largest_of(histogram));
  };
  const Columns rest = {
      {"sent B/s a worker", str(static_cast<double>(sum.traffic.bytes_sent) / all)},
      {"received B/s a worker", str(static_cast<double>(sum.traffic.bytes_received) / all)},
      {"compute", percent(sum.compute)},
      {"waits for rows", percent(sum.rows)},
      {"waits for others", percent(sum.others)},
      {"stale clocks, mean / most", staleness(outcome.counters.staleness)},
      {"stale versions, mean / most", staleness(outcome.version_staleness)},
      {"dropped rows", str(outcome.counters.dropped)}};
  columns.insert(columns.end(), rest.begin(), rest.end());
  if (outcome.failures) add_failures(*outcome.failures, columns);
  std::string head = "|", line = "|", values = "|";
  for (const auto& [name, value] : columns) {
    head += " " + name + " |";
    line += "---|";
    values += " " + value + " |";
  }
  return head + "\n" + line + "\n" + values + "\n" +
         (outcome.failures ? useful_words(*outcome.failures) : "");
}

// Returns the seconds of an iteration of `workers` workers like the first of `like`, with one
// server or with one in each worker (`sharded`).
double iteration_of(const SolverParameter& param, const simulate::SimulationOptions& options,
                    const simulate::Cluster& like, int workers, bool sharded) {
  simulate::Cluster cluster = like;
  simulate::Process worker = like.processes[0];
  worker.server = sharded;
  cluster.processes.assign(static_cast<std::size_t>(workers), worker);
  simulate::Process server = worker;
  server.worker = false;
  server.server = true;
  if (!sharded) cluster.processes.push_back(server);
  const auto seconds = [&](int iterations) {
    SolverParameter some = param;
    some.set_max_iter(iterations);
    return or_throw(simulate::simulate(some, cluster, options)).seconds;
  };
  return (seconds(3) - seconds(1)) / 2;  // without the start
}

// Returns the numbers of workers of --scaling. Throws ConfigError, also where another flag would
// say what the table does not.
std::vector<int> scaling_from_flags(const SolverParameter& param) {
  if (FLAGS_seconds > 0 || FLAGS_samples > 0 || FLAGS_updates > 0)
    throw ConfigError(Code::kUsage,
                      "--scaling times whole iterations: there is no --seconds, no --samples and "
                      "no --updates");
  for (const SchemeParameter& scheme : param.scheme())
    if (scheme.type() != "bsp")
      throw ConfigError(Code::kUsage,
                        "--scaling compares the exchanges of bsp, and the scheme is '",
                        scheme.type(), "'");
  std::vector<int> all;
  for (const std::string& word : split(FLAGS_scaling, ',')) {
    const std::optional<int> workers = number_in<int>(word);
    if (!workers || *workers < 1)
      throw ConfigError(Code::kUsage, "--scaling=", FLAGS_scaling, ": '", word,
                        "' is no number of workers");
    all.push_back(*workers);
  }
  if (all.empty())
    throw ConfigError(Code::kUsage, "--scaling=", FLAGS_scaling, " has no number of workers");
  return all;
}

// Prints simulated times of an iteration by each exchange beside FireCaffe's cost model: the time
// of a synchronisation after all gradients are complete, for p workers, W bytes and B bytes a
// second.
void print_scaling(SolverParameter param, const simulate::SimulationOptions& options,
                   const simulate::Cluster& cluster) {
  const std::vector<int> numbers = scaling_from_flags(param);
  param.mutable_exchange()->clear_layer();  // a column is one way
  param.mutable_exchange()->set_way(ExchangeParameter::TABLE);
  const double bandwidth = cluster.processes[0].bandwidth;
  const double compute = cluster.processes[0].compute.mean;
  if (bandwidth <= 0)
    throw ConfigError(Code::kUsage,
                      "--scaling: the cluster's first worker has no limit of bandwidth, and the "
                      "formulas none of time");
  Context context(Context::Options{});
  const Net net(train_net_of(param, options.name), context);
  double bytes = 0;
  for (const NetParam& each : net.params())
    bytes += 4 * static_cast<double>(each.blob->data.count());
  const double unit = bytes / bandwidth;
  std::printf(
      "%.4g bytes of params, %.4g bytes/s, %.4g s of computing. Seconds of an iteration, "
      "simulated, "
      "with what overlaps; and by formula:\n"
      "computing, then one server p W/B, sharded and ring 2 W/B (p-1)/p, tree 2 W/B log2(p).\n\n",
      bytes, bandwidth, compute);
  constexpr ExchangeParameter::Way kWays[] = {
      ExchangeParameter::TABLE, ExchangeParameter::FACTORS,          ExchangeParameter::TREE,
      ExchangeParameter::RING,  ExchangeParameter::HALVING_DOUBLING, ExchangeParameter::DIRECT};
  std::string head = "| workers | one server | formula", line = "|---|---|---";
  for (const ExchangeParameter::Way way : kWays) {
    head += " | " + ExchangeParameter::Way_Name(way);
    line += "|---";
    const bool has_formula = way == ExchangeParameter::TABLE || way == ExchangeParameter::TREE;
    if (has_formula) head += " | formula", line += "|---";
  }
  std::printf("%s |\n%s|\n", head.c_str(), line.c_str());
  for (const int p : numbers) {
    std::printf("| %d | %.4g | %.4g", p, iteration_of(param, options, cluster, p, false),
                compute + unit * p);
    for (const ExchangeParameter::Way way : kWays) {
      SolverParameter by_way = param;
      by_way.mutable_exchange()->set_way(way);
      std::printf(" | %.4g", iteration_of(by_way, options, cluster, p, true));
      if (way == ExchangeParameter::TABLE) std::printf(" | %.4g", compute + 2 * unit * (p - 1) / p);
      if (way == ExchangeParameter::TREE) std::printf(" | %.4g", compute + 2 * unit * std::log2(p));
    }
    std::printf(" |\n");
    std::fflush(stdout);
  }
}

// Flags of real processes, which would change what a job does.
void check_no_processes() {
  constexpr const char* kFlags[] = {
      "hostfile",      "machinefile", "client_id",       "num_clients",
      "role",          "join",        "replicas",        "num_table_threads",
      "data_sharding", "throttle",    "emulate_step_ms", "send_order"};
  for (const char* flag : kFlags)
    if (given(flag))
      throw ConfigError(Code::kUsage, "--", flag,
                        " is about real processes; the file of --cluster says how many there are, "
                        "how long they compute and what lies between them");
}

void check_limits() {
  const std::pair<const char*, double> limits[] = {{"seconds", FLAGS_seconds},
                                                   {"samples", FLAGS_samples},
                                                   {"updates", static_cast<double>(FLAGS_updates)},
                                                   {"test_every", FLAGS_test_every}};
  for (const auto& [flag, value] : limits)
    if (!(value >= 0))
      throw ConfigError(Code::kUsage, "--", flag, " is ", value, "; it must be 0 or more");
}

simulate::SimulationOptions options_from_flags() {
  check_no_processes();
  check_limits();
  simulate::SimulationOptions options;
  options.name = FLAGS_solver;
  options.seed = FLAGS_seed;
  options.seconds = FLAGS_seconds;
  options.samples = FLAGS_samples;
  options.updates = FLAGS_updates;
  if (!FLAGS_target.empty()) options.target = simulate::parse_target(FLAGS_target);
  options.test_every = FLAGS_test_every;
  options.threads = threads_to_use(FLAGS_threads);
  options.out = FLAGS_out;
  if (FLAGS_placement != "bytes" && FLAGS_placement != "time")
    throw ConfigError(Code::kUsage, "--placement=", FLAGS_placement, ": known are bytes and time");
  options.by_time = FLAGS_placement == "time";
  options.esync_logs = FLAGS_esync_log_dir;
  options.dry = FLAGS_dry;
  if (FLAGS_scaling.empty()) options.saw = print_point;
  return options;
}

SolverParameter solver_from_flags() {
  SolverParameter param = solver_of_flags(SnapshotPrefix::kAsWritten);
  const bool has_scheme = param.scheme_size() > 0;
  merge_flags(job_flags(), param);
  if (!has_scheme) check_scheme_of_flags(param);
  if (param.random_seed() < 0) param.set_random_seed(static_cast<std::int64_t>(FLAGS_seed));
  return param;
}

int simulate_job(const std::vector<std::string>& words) {
  if (!words.empty())
    throw ConfigError(Code::kUsage, "'", words[0],
                      "' is not a flag; did you mean --solver=", words[0], "?");
  need_flag(FLAGS_solver, "solver");
  need_flag(FLAGS_cluster, "cluster");
  if (FLAGS_dry && !(FLAGS_target.empty() && FLAGS_out.empty() && FLAGS_esync_log_dir.empty()))
    throw ConfigError(
        Code::kUsage,
        "--dry learns nothing: there is no --target, no --out and no --esync_log_dir");
  if (!FLAGS_scaling.empty() && !FLAGS_dry)
    throw ConfigError(Code::kUsage, "--scaling is a matter of --dry");
  say_only_warnings(true);
  const SolverParameter param = solver_from_flags();
  const simulate::Cluster cluster = simulate::read_cluster(FLAGS_cluster);
  const simulate::SimulationOptions options = options_from_flags();
  if (!FLAGS_scaling.empty()) {
    print_scaling(param, options, cluster);
    return 0;
  }
  const auto start = std::chrono::steady_clock::now();
  const simulate::Outcome outcome = or_throw(simulate::simulate(param, cluster, options));
  for (const std::string& line : outcome.warnings) LOG(WARNING) << line;
  const std::string summary = summary_of(outcome);
  std::printf("\nEnded since %s; it took %.1f real seconds.\n\n%s", outcome.ending.c_str(),
              std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
              summary.c_str());
  if (!FLAGS_out.empty()) or_throw(write_file(FLAGS_out + "/summary.md", summary, Code::kUsage));
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  return shoal::run_tool(argc, argv, shoal::kUsage, shoal::simulate_job);
}
