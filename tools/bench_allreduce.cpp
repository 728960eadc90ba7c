// Measures how long the processes of a job take to sum a vector by a collective, each process one
// of its own, as workers of `train` do. scripts/bench_allreduce.py runs it beside gloo.
#include <gflags/gflags.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/child.h"
#include "common/tool.h"
#include "shoal/base/log.h"
#include "shoal/parallel/sums/allreduce.h"

DEFINE_int32(processes, 2, "processes of the job, each a worker and a server");
DEFINE_int64(kib, 256 * 1024, "KiB of the vector");
DEFINE_int32(repeats, 9, "sums that are measured, one after the other");
DEFINE_int32(warm_up, 4, "sums before those that are measured");
DEFINE_string(way, "ring", "tree, ring, halving_doubling or direct");
DEFINE_int32(threads, 1, "threads for input and output in each process");
DEFINE_int64(window, 512 * 1024, "bytes that a link gives to the system before it waits");
DEFINE_string(local_transport, "AUTO", "AUTO: through shared memory where possible; or TCP");
DEFINE_int32(rank, -1, "rank of a process; set by this program itself");
DEFINE_int32(port, 0, "port of process 0; set by this program itself");

namespace shoal {
namespace {

using parallel::Allreduce, parallel::RowWaits, parallel::Way;
using table::Clock, table::RowId;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Way way_of(const std::string& name) {
  for (const Way way : parallel::kCollectives) {
    std::string known = parallel::name_of(way);
    std::ranges::transform(known, known.begin(), [](char c) { return std::tolower(c); });
    if (known == name) return way;
  }
  throw ConfigError(Code::kUsage,
                    str("--way=", name, " is not tree, ring, halving_doubling or direct"));
}

std::size_t count() { return static_cast<std::size_t>(FLAGS_kib) * 1024 / sizeof(float); }

table::ServiceOptions service_options() {
  table::ServiceOptions options;
  options.rank = static_cast<table::Rank>(FLAGS_rank);
  options.processes = static_cast<std::uint32_t>(FLAGS_processes);
  options.coordinator = str("127.0.0.1:", FLAGS_port);
  options.port = static_cast<std::uint16_t>(FLAGS_rank == 0 ? FLAGS_port : 0);
  options.host = "here";
  options.token = "bench";
  options.threads = FLAGS_threads;
  options.local_transport =
      FLAGS_local_transport == "TCP" ? table::LocalTransport::kTcp : table::LocalTransport::kAuto;
  options.window = static_cast<std::size_t>(FLAGS_window);
  return options;
}

table::Plan plan_of(Way way) {
  std::vector<std::uint16_t> servers;
  for (int i = 0; i < FLAGS_processes; ++i) servers.push_back(static_cast<std::uint16_t>(i));
  const auto processes = static_cast<std::uint16_t>(FLAGS_processes);
  return {.workers = processes,
          .servers = processes,
          .rule = {},
          .scheme = {},
          .rows = parallel::rows_of(way, count(), 0, servers)};
}

// Sums once, with a summand of this number or of the numbers that are left from before.
void sum_once(table::Table& table, Allreduce& sum, RowWaits& waits, Clock clock,
              std::optional<float> number = {}) {
  or_throw(table.start(clock));
  or_throw(sum.expect(clock, waits));
  if (number) std::ranges::fill(sum.numbers(), *number);
  sum.start();
  while (!sum.is_done()) {
    or_throw(sum.wait(waits));
    sum.progress();
  }
}

// Prints the seconds of each sum.
void work(table::Table& table) {
  const Way way = way_of(FLAGS_way);
  Allreduce sum(table, way, FLAGS_processes, count(), 0);
  or_throw(table.create(
      plan_of(way), [](RowId, table::Part) { return std::span<const float>(); },
      [&](RowId row, table::Part) { return sum.destination(row); }));
  RowWaits waits(table);
  Clock clock = 0;
  sum_once(table, sum, waits, clock++, static_cast<float>(table.worker() + 1));
  const float wanted = static_cast<float>(FLAGS_processes * (FLAGS_processes + 1) / 2);
  CHECK(std::ranges::count(sum.numbers(), wanted) == static_cast<std::ptrdiff_t>(count()));
  for (int i = 0; i < FLAGS_warm_up; ++i) sum_once(table, sum, waits, clock++, 0.0f);
  for (int i = 0; i < FLAGS_repeats; ++i) {
    const double begin = seconds_now();
    sum_once(table, sum, waits, clock++);
    std::printf("%.6f\n", seconds_now() - begin);
  }
  or_throw(table.finish(clock));
  table.release();
}

int bench(const std::vector<std::string>&) {
  way_of(FLAGS_way);
  if (FLAGS_rank >= 0) {
    const auto service = or_throw(table::Service::create(service_options()));
    work(*service->table());
    return 0;
  }
  std::vector<std::unique_ptr<Child>> children;
  const int port = unused_port();
  for (int rank = 0; rank < FLAGS_processes; ++rank)
    children.push_back(std::make_unique<Child>(std::vector<std::string>{
        str("--rank=", rank), str("--port=", port), str("--processes=", FLAGS_processes),
        str("--kib=", FLAGS_kib), str("--repeats=", FLAGS_repeats),
        str("--warm_up=", FLAGS_warm_up), str("--way=", FLAGS_way),
        str("--threads=", FLAGS_threads), str("--local_transport=", FLAGS_local_transport),
        str("--window=", FLAGS_window)}));
  std::vector<double> seconds(static_cast<std::size_t>(FLAGS_repeats));
  for (const auto& child : children)
    for (double& slowest : seconds) slowest = std::max(slowest, child->number());
  for (const double one : seconds) std::printf("%.6f\n", one);
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  return shoal::run_tool(argc, argv,
                         "bench_allreduce [--processes=2] [--kib=262144] [--way=ring]\n\nPrints "
                         "the seconds of each sum of a vector over processes of this machine.",
                         &shoal::bench);
}
