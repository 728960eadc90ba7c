// Measures the cost of an iteration by the number of workers. Workers wait instead of computing, so
// that many fit on a machine; all else is real: each is a Service of its own with two threads of
// this process, each server is a process, and rows travel in frames over loopback.
#include <gflags/gflags.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/bare_asio.h"
#include "common/child.h"
#include "common/tool.h"
#include "shoal/base/log.h"
#include "shoal/base/timer.h"
#include "shoal/table/placement.h"
#include "shoal/table/table.h"

DEFINE_int32(workers, 64, "largest number of workers");
DEFINE_int32(least, 1, "smallest number of workers; it is doubled up to --workers");
DEFINE_int32(servers, 2, "processes that hold rows");
DEFINE_double(compute_ms, 50,
              "milliseconds that a worker computes in an iteration, without its waits");
DEFINE_int32(layers, 8, "layers that the small rows belong to");
DEFINE_int32(rows, 64, "number of small rows");
DEFINE_int32(floats, 256, "numbers in a small row");
DEFINE_int32(iterations, 30, "iterations that are measured for each number of workers");
DEFINE_bool(lenet, true, "measures rows like LeNet's too");
DEFINE_string(scheme, "bsp", "when updates are made and read: bsp, ssp S, async");
DEFINE_int32(threads, 1, "threads for input and output in each server");
DEFINE_double(throttle, 0, "bytes a second each way of a process; 0: no limit");
DEFINE_string(send_order, "priority",
              "order of rows: priority (what the next forward pass needs first) or arrival");
DEFINE_double(allowed, 1.1,
              "most that an iteration may take, as a multiple of its floor, to be called flat, "
              "while bytes are not the limit");
DEFINE_string(part, "", "server in the processes that this program starts");
DEFINE_int32(rank, 0, "rank of a server");
DEFINE_int32(processes, 1, "processes of the job");
DEFINE_int32(port, 0, "port of process 0");

namespace shoal {
namespace {

using std::chrono::duration;
using std::chrono::milliseconds;
using table::Clock;
using table::RowId;

constexpr Clock kWarmUp = 3;  // iterations that are not measured

double seconds_now() {
  return duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double cpu_seconds() {
  timespec time{};
  PCHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) == 0);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// ---- what is trained ----

using Layers = std::vector<std::vector<std::uint32_t>>;  // lengths of rows

Layers small_rows() {
  Layers layers(static_cast<std::size_t>(FLAGS_layers));
  for (int row = 0; row < FLAGS_rows; ++row)
    layers[static_cast<std::size_t>(row * FLAGS_layers / FLAGS_rows)].push_back(
        static_cast<std::uint32_t>(FLAGS_floats));
  return layers;
}

Layers lenet() {
  const std::vector<std::vector<std::size_t>> params{
      {500, 20}, {25'000, 50}, {400'000, 500}, {5000, 10}};
  constexpr std::size_t kTotal = 431'080;
  Layers layers;
  for (const auto& layer : params) {
    layers.emplace_back();
    for (const std::size_t count : layer)
      for (const std::uint32_t length :
           table::cut_for(count, kTotal, FLAGS_servers, table::longest_row(kTotal)))
        layers.back().push_back(length);
  }
  return layers;
}

table::Plan plan_of(const Layers& layers, int workers) {
  table::Plan plan{.workers = static_cast<std::uint16_t>(workers),
                   .servers = static_cast<std::uint16_t>(FLAGS_servers),
                   .rule = {.momentum = 0.9f},
                   .scheme = or_throw(table::parse_scheme(FLAGS_scheme)),
                   .rows = {}};
  for (std::uint32_t layer = 0; layer < layers.size(); ++layer)
    for (const std::uint32_t length : layers[layer])
      plan.rows.edit().push_back({.length = length, .priority = layer});
  table::place(plan.rows.edit(), FLAGS_servers);
  return plan;
}

std::size_t floats_of(const table::Plan& plan) {
  std::size_t floats = 0;
  for (const table::Row& row : plan.rows) floats += row.length;
  return floats;
}

// ---- a worker ----

// Time that passes as if something were computed. What was waited for is not computed; what one
// step took too long, the next makes up for.
class Pace {
 public:
  void compute(double seconds) {
    due_ += seconds;
    wait_until(std::chrono::steady_clock::time_point(
        std::chrono::duration_cast<std::chrono::steady_clock::duration>(duration<double>(due_))));
  }
  void waited(double seconds) { due_ += seconds; }

 private:
  double due_ = seconds_now();
};

struct Measured {
  std::vector<double> iterations;  // seconds
  double begin = 0, end = 0;       // of all of them
  double servers_cpu = 0, workers_cpu = 0;
  double bytes = 0, frames = 0;  // both ways
};

class Worker {
 public:
  Worker(table::Table& table, const Layers& layers, table::Plan plan)
      : table_(table),
        plan_(std::move(plan)),
        numbers_(floats_of(plan_), 1),
        gradients_(numbers_.size(), 1e-6f) {
    RowId row = 0;
    std::size_t begin = 0;
    for (const auto& layer : layers) {
      rows_.emplace_back();
      for (const std::uint32_t length : layer) {
        rows_.back().push_back(row++);
        begins_.push_back(std::exchange(begin, begin + length));
      }
    }
  }

  // `cpu` is called where the measurement begins, and where it ends, while all workers stand.
  Measured run(const std::function<void(Measured&, double sign)>& cpu) {
    const auto first = [this](RowId row, table::Part part) {
      return part == table::Part::kWeights ? part_of(numbers_, row) : std::span<float>();
    };
    or_throw(table_.create(plan_, first,
                           [this](RowId row, table::Part) { return part_of(numbers_, row); }));
    for (RowId row = 0; row < plan_.rows.size(); ++row) table_.get(row, 0, table::Part::kWeights);
    const Clock end = kWarmUp + FLAGS_iterations;
    Measured measured;
    for (Clock clock = 0; clock < end; ++clock) {
      if (clock == kWarmUp) {
        stand(clock);
        cpu(measured, -1);
        add_traffic(measured, -1);
        measured.begin = seconds_now();
        or_throw(table_.ask(table::Topic::kBarrier, clock + 1, {}));
        pace_.waited(seconds_now() - measured.begin);
      }
      const double begin = seconds_now();
      iterate(clock);
      if (clock >= kWarmUp) measured.iterations.push_back(seconds_now() - begin);
    }
    stand(end + 1);
    measured.end = seconds_now();
    cpu(measured, 1);
    add_traffic(measured, 1);
    or_throw(table_.ask(table::Topic::kBarrier, end + 2, {}));
    or_throw(table_.finish(end));
    table_.release();
    return measured;
  }

 private:
  std::span<float> part_of(std::vector<float>& all, RowId row) {
    return std::span<float>(all).subspan(begins_[row], plan_.rows[row].length);
  }

  void add_traffic(Measured& measured, double sign) const {
    const table::Traffic traffic = table_.traffic();
    measured.bytes += sign * static_cast<double>(traffic.bytes_sent + traffic.bytes_received);
    measured.frames += sign * static_cast<double>(traffic.frames_sent + traffic.frames_received);
  }

  // All rows are here, and all workers.
  void stand(Clock round) {
    const double begin = seconds_now();
    for (const auto& rows : rows_) or_throw(table_.wait(rows));
    or_throw(table_.ask(table::Topic::kBarrier, round, {}));
    pace_.waited(seconds_now() - begin);
  }

  // A third of the time is the forward pass, layer by layer, each when its rows are there; they are
  // pushed layer by layer in the backward pass.
  void iterate(Clock clock) {
    const double step = FLAGS_compute_ms * 1e-3 / 3 / static_cast<double>(rows_.size());
    or_throw(table_.start(clock));
    for (const auto& rows : rows_) {
      const double begin = seconds_now();
      or_throw(table_.wait(rows));
      pace_.waited(seconds_now() - begin);
      pace_.compute(step);
    }
    for (auto rows = rows_.rbegin(); rows != rows_.rend(); ++rows) {
      pace_.compute(2 * step);
      pushes_.clear();
      for (const RowId row : *rows)
        pushes_.push_back({.row = row,
                           .clock = clock,
                           .rate = 1e-3f,
                           .payload = table::as_payload({.data = part_of(gradients_, row)})});
      table_.push(pushes_);
    }
  }

  table::Table& table_;
  const table::Plan plan_;
  std::vector<std::vector<RowId>> rows_;  // by layer
  std::vector<std::size_t> begins_;       // by row
  std::vector<float> numbers_, gradients_;
  std::vector<table::Push> pushes_;  // of a layer
  Pace pace_;
};

// ---- a job ----

table::ServiceOptions service_options(int rank, int processes, int port) {
  table::ServiceOptions options;
  options.rank = static_cast<std::uint32_t>(rank);
  options.processes = static_cast<std::uint32_t>(processes);
  options.server = rank < FLAGS_servers;
  options.worker = !options.server;
  options.coordinator = str("127.0.0.1:", port);
  options.port = static_cast<std::uint16_t>(rank == 0 ? port : 0);
  options.host = "here";
  options.token = "bench";
  options.local_transport = table::LocalTransport::kTcp;  // as between machines
  options.throttle = FLAGS_throttle;
  options.order = FLAGS_send_order == "arrival" ? table::Order::kArrival : table::Order::kPriority;
  options.threads = options.server ? FLAGS_threads : 1;
  return options;
}

int serve() {
  const auto service =
      or_throw(table::Service::create(service_options(FLAGS_rank, FLAGS_processes, FLAGS_port)));
  or_throw(service->serve({}));
  return 0;
}

// Returns the measurements of all workers, in one.
Measured sum_of(const std::vector<Measured>& all) {
  Measured sum = all.front();
  for (std::size_t i = 1; i < all.size(); ++i) {
    sum.iterations.insert(sum.iterations.end(), all[i].iterations.begin(), all[i].iterations.end());
    sum.begin = std::min(sum.begin, all[i].begin);
    sum.end = std::max(sum.end, all[i].end);
    sum.bytes += all[i].bytes;
    sum.frames += all[i].frames;
  }
  std::sort(sum.iterations.begin(), sum.iterations.end());
  return sum;
}

Measured run_job(const Layers& layers, int workers) {
  const int port = unused_port(), processes = FLAGS_servers + workers;
  std::vector<std::unique_ptr<Child>> servers;
  for (int rank = 0; rank < FLAGS_servers; ++rank)
    servers.push_back(std::make_unique<Child>(std::vector<std::string>{
        "--part=server", str("--rank=", rank), str("--processes=", processes), str("--port=", port),
        str("--servers=", FLAGS_servers), str("--threads=", FLAGS_threads),
        str("--throttle=", FLAGS_throttle), str("--send_order=", FLAGS_send_order)}));
  const auto cpu = [&servers](Measured& measured, double sign) {
    measured.workers_cpu += sign * cpu_seconds();
    for (const auto& server : servers) measured.servers_cpu += sign * server->cpu_seconds();
  };
  std::vector<Measured> measured(static_cast<std::size_t>(workers));
  std::vector<Status> ended(measured.size());
  std::vector<std::jthread> threads;
  for (std::size_t worker = 0; worker < measured.size(); ++worker)
    threads.emplace_back([&, worker] {
      try {
        const auto service = or_throw(table::Service::create(
            service_options(FLAGS_servers + static_cast<int>(worker), processes, port)));
        measured[worker] = Worker(*service->table(), layers, plan_of(layers, workers))
                               .run([&](Measured& own, double sign) {
                                 if (worker == 0) cpu(own, sign);
                               });
      } catch (const ConfigError& error) {
        ended[worker] = error.error();
      }
    });
  threads.clear();
  for (const Status& status : ended) or_throw(status);
  return sum_of(measured);
}

// ---- what is printed ----

double percentile(const std::vector<double>& sorted, double part) {
  return sorted[static_cast<std::size_t>(part * static_cast<double>(sorted.size() - 1))];
}

struct Line {
  int workers = 0;
  double median = 0, transfer = 0;  // ms
};

Line print_line(int workers, const Measured& m, double rate) {
  if (FLAGS_throttle > 0)
    rate = std::min(rate, 2 * FLAGS_throttle * std::min(workers, FLAGS_servers));
  const double gib = m.bytes / (1 << 30), per_iteration = 1.0 / FLAGS_iterations;
  const Line line{workers, percentile(m.iterations, 0.5) * 1e3,
                  m.bytes * per_iteration / rate * 1e3};
  const double floor = std::max(FLAGS_compute_ms, line.transfer), seconds = m.end - m.begin;
  std::printf("%8d %8.1f %8.1f %8.1f %8.2f %10.2f %9.0f %11.2f %11.2f %11.2f\n", workers,
              line.median, percentile(m.iterations, 0.95) * 1e3, floor, line.median / floor,
              m.bytes * per_iteration / (1 << 20), m.frames * per_iteration, m.servers_cpu / gib,
              m.workers_cpu / gib, (m.servers_cpu + m.workers_cpu) / seconds);
  std::fflush(stdout);
  return line;
}

void print_verdict(const std::vector<Line>& lines) {
  const auto is_free = [](const Line& line) { return line.transfer < FLAGS_compute_ms; };
  const auto is_slow = [&](const Line& line) {
    return is_free(line) && line.median > FLAGS_allowed * FLAGS_compute_ms;
  };
  const auto slow = std::find_if(lines.begin(), lines.end(), is_slow);
  const auto limited = std::find_if_not(lines.begin(), lines.end(), is_free);
  if (slow != lines.end())
    std::printf(
        "  not flat: with %d workers an iteration takes %.2f of the computing, and their bytes "
        "would take %.2f\n",
        slow->workers, slow->median / FLAGS_compute_ms, slow->transfer / FLAGS_compute_ms);
  else if (limited != lines.end())
    std::printf("  flat, until from %d workers on bytes are the limit\n", limited->workers);
  else
    std::printf("  flat: bytes are the limit nowhere\n");
}

void print_case(const char* name, const Layers& layers) {
  const table::Plan plan = plan_of(layers, 1);
  const std::size_t mean = std::max<std::size_t>(1, floats_of(plan) / plan.rows.size());
  const double rate = table::bare_rate(256 * 1024), small = table::bare_rate(mean * 4);
  std::printf(
      "%s: %zu rows, %.2f MiB, on %d servers, scheme %s, %.0f ms of computing. A bare Asio program "
      "moves %.2f GB/s in rows of 256 KiB,\n"
      "which is the floor, and %.2f GB/s in rows of %.1f KiB. CPU is seconds for each GiB that is "
      "moved either way; cores are those busy, of %u.\n",
      name, plan.rows.size(), static_cast<double>(floats_of(plan)) * 4 / (1 << 20), FLAGS_servers,
      FLAGS_scheme.c_str(), FLAGS_compute_ms, rate * 1e-9, small * 1e-9,
      static_cast<double>(mean) * 4 / 1024, std::thread::hardware_concurrency());
  std::printf("%8s %8s %8s %8s %8s %10s %9s %11s %11s %11s\n", "workers", "ms", "p95", "floor",
              "of it", "MiB", "frames", "server CPU", "worker CPU", "cores");
  std::vector<Line> lines;
  for (int workers = FLAGS_least; workers <= FLAGS_workers; workers *= 2)
    lines.push_back(print_line(workers, run_job(layers, workers), rate));
  print_verdict(lines);
}

int bench(const std::vector<std::string>&) {
  if (FLAGS_part == "server") return serve();
  if (FLAGS_send_order != "priority" && FLAGS_send_order != "arrival")
    throw ConfigError(Code::kUsage,
                      str("--send_order=", FLAGS_send_order, ": known are priority and arrival"));
  if (FLAGS_least < 1 || FLAGS_servers < 1 || FLAGS_layers < 1 || FLAGS_rows < FLAGS_layers ||
      FLAGS_floats < 1 || FLAGS_iterations < 1 || FLAGS_compute_ms <= 0)
    throw ConfigError(Code::kUsage, "numbers are 1 or more, and no layer is without a row");
  print_case("small rows", small_rows());
  if (FLAGS_lenet) print_case("LeNet", lenet());
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  return shoal::run_tool(
      argc, argv,
      "bench_cluster [--workers=64] [--servers=2] [--compute_ms=50] [--scheme=bsp]\n\n"
      "Measures an iteration by the number of workers, which wait instead of computing.",
      &shoal::bench);
}
