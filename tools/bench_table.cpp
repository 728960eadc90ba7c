// Measures how fast rows go to a table service and back, beside a bare Asio program that moves the
// same bytes. Every process of a measurement is a process of its own, which this program starts
// from itself; all talk over loopback.
#include <gflags/gflags.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "common/bare_asio.h"
#include "common/child.h"
#include "common/link_rates.h"
#include "common/tool.h"
#include "shoal/base/log.h"
#include "shoal/base/processor.h"
#include "shoal/table/placement.h"
#include "shoal/table/table.h"

DEFINE_int32(mib, 256, "MiB of rows");
DEFINE_int32(repeats, 5, "times that all rows go there and back");
DEFINE_int32(row_floats, shoal::table::kRowFloats, "numbers in a row");
DEFINE_int32(echoes, 5000, "rows of 4 KiB sent one by one, for the latency");
DEFINE_int32(threads, 1, "threads for input and output in each process");
DEFINE_int64(window, 512 * 1024, "bytes that a link gives to the system before it waits");
DEFINE_string(local_transport, "TCP", "TCP, as the bare program does; or AUTO");
DEFINE_bool(rows, false, "measures lengths of rows");
DEFINE_bool(encrypt, false, "measures a link, encrypted beside in clear");
DEFINE_string(
    part, "",
    "the part that a process plays: bare_server, bare_client, table; set by this program itself");
DEFINE_int32(rank, 0, "rank of a process");
DEFINE_int32(processes, 1, "processes of the job");
DEFINE_string(role, "b", "b, w or s: both, worker, server");
DEFINE_int32(port, 0, "port of process 0, or of the bare server");
DEFINE_int32(clients, 1, "clients of the bare server");

namespace shoal {
namespace {

using table::RowId;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::size_t row_bytes() { return static_cast<std::size_t>(FLAGS_row_floats) * 4; }
std::size_t bytes_of_rows() {
  return (static_cast<std::size_t>(FLAGS_mib) << 20) / row_bytes() * row_bytes();
}

// ---- what the parts do, and print: "begin end" in seconds, then microseconds of single echoes
// ----

void measure(const std::function<void()>& all_rows, const std::function<void()>& one_row) {
  if (FLAGS_mib > 0) {
    all_rows();
    const double begin = seconds_now();
    for (int i = 0; i < FLAGS_repeats; ++i) all_rows();
    std::printf("%.6f %.6f\n", begin, seconds_now());
  } else {
    std::printf("0 0\n");
    for (int i = 0; i < FLAGS_echoes; ++i) {
      const double begin = seconds_now();
      one_row();
      std::printf("%.1f\n", (seconds_now() - begin) * 1e6);
    }
  }
}

int bare_server() {
  table::BareServer server(std::max(bytes_of_rows(), row_bytes()), row_bytes());
  std::printf("%d\n", server.port());
  std::fflush(stdout);
  server.serve(FLAGS_clients);
  return 0;
}

int bare_client() {
  const std::size_t bytes = std::max(bytes_of_rows(), row_bytes());
  std::vector<char> source(bytes), target(bytes);
  table::BareClient client(static_cast<std::uint16_t>(FLAGS_port));
  const auto exchange = [&] { client.exchange(source, target, row_bytes(), bytes / row_bytes()); };
  measure(exchange, exchange);
  return 0;
}

table::ServiceOptions service_options() {
  table::ServiceOptions options;
  options.rank = static_cast<std::uint32_t>(FLAGS_rank);
  options.processes = static_cast<std::uint32_t>(FLAGS_processes);
  options.worker = FLAGS_role != "s";
  options.server = FLAGS_role != "w";
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

table::Plan plan_of(const table::RosterBody& roster) {
  table::Plan plan{.workers = 0, .servers = 0, .rule = {}, .scheme = {}, .rows = {}};
  for (const auto& process : roster.processes) {
    plan.workers = static_cast<std::uint16_t>(plan.workers + (process.worker >= 0));
    plan.servers = static_cast<std::uint16_t>(plan.servers + (process.server >= 0));
  }
  const std::size_t rows = std::max<std::size_t>(1, bytes_of_rows() / row_bytes());
  for (std::size_t row = 0; row < rows; ++row)
    plan.rows.edit().push_back({.length = static_cast<std::uint32_t>(FLAGS_row_floats),
                                .priority = static_cast<std::uint32_t>(row)});
  table::place(plan.rows.edit(), plan.servers);
  return plan;
}

void work(table::Table& table) {
  const table::Plan plan = plan_of(table.roster());
  const std::size_t length = static_cast<std::size_t>(FLAGS_row_floats);
  std::vector<float> weights(plan.rows.size() * length, 1), gradients(weights.size(), 1e-6f);
  const auto part_of = [&](std::vector<float>& all, RowId row) {
    return std::span<float>(all).subspan(row * length, length);
  };
  std::vector<RowId> rows(plan.rows.size());
  std::iota(rows.begin(), rows.end(), RowId{0});
  or_throw(table.create(
      plan,
      [&](RowId row, table::Part part) {
        return part == table::Part::kWeights ? part_of(weights, row) : std::span<float>();
      },
      [&](RowId row, table::Part) { return part_of(weights, row); }));
  for (const RowId row : rows) table.get(row, 0, table::Part::kWeights);
  or_throw(table.wait(rows));
  table::Clock clock = 0;
  table::Traffic before{}, after{};
  std::vector<table::Push> pushes;
  const auto iteration = [&] {
    or_throw(table.start(clock));
    if (clock == 1) before = table.traffic();
    pushes.clear();
    for (auto row = rows.rbegin(); row != rows.rend(); ++row)
      pushes.push_back({.row = *row,
                        .clock = clock,
                        .rate = 1e-3f,
                        .payload = table::as_payload({.data = part_of(gradients, *row)})});
    table.push(pushes);
    or_throw(table.wait(rows));
    ++clock;
    after = table.traffic();
  };
  measure(iteration, iteration);
  std::printf("%llu %llu\n", static_cast<unsigned long long>(after.bytes_sent - before.bytes_sent),
              static_cast<unsigned long long>(after.bytes_received - before.bytes_received));
  or_throw(table.finish(clock));
  table.release();
}

int table_process() {
  const auto service = or_throw(table::Service::create(service_options()));
  if (service->table())
    work(*service->table());
  else
    or_throw(service->serve({}));
  return 0;
}

// ---- processes ----

using Children = std::vector<std::unique_ptr<Child>>;

std::unique_ptr<Child> start(std::vector<std::string> flags) {
  for (const auto& [name, value] : {std::pair{"mib", str(FLAGS_mib)},
                                    {"repeats", str(FLAGS_repeats)},
                                    {"row_floats", str(FLAGS_row_floats)},
                                    {"echoes", str(FLAGS_echoes)},
                                    {"threads", str(FLAGS_threads)},
                                    {"window", str(FLAGS_window)},
                                    {"local_transport", FLAGS_local_transport}})
    flags.push_back(str("--", name, "=", value));
  return std::make_unique<Child>(std::move(flags));
}

struct Outcome {
  double seconds = 0;
  std::vector<double> echoes, sent, received;
};

Outcome collect(Children& workers, bool traffic) {
  Outcome outcome;
  double begin = 1e300, end = 0;
  for (const auto& worker : workers) {
    begin = std::min(begin, worker->number());
    end = std::max(end, worker->number());
    if (FLAGS_mib == 0)
      for (int i = 0; i < FLAGS_echoes; ++i) outcome.echoes.push_back(worker->number());
    if (!traffic) continue;
    outcome.sent.push_back(worker->number());
    outcome.received.push_back(worker->number());
  }
  outcome.seconds = end - begin;
  std::sort(outcome.echoes.begin(), outcome.echoes.end());
  return outcome;
}

Outcome run_bare(int clients) {
  const auto server = start({"--part=bare_server", str("--clients=", clients)});
  const int port = static_cast<int>(server->number());
  Children all;
  for (int i = 0; i < clients; ++i)
    all.push_back(start({"--part=bare_client", str("--port=", port)}));
  return collect(all, false);
}

// One letter a process, as in --role.
Outcome run_table(const std::string& roles) {
  const int port = unused_port();
  Children workers, servers;
  for (std::size_t rank = 0; rank < roles.size(); ++rank)
    (roles[rank] == 's' ? servers : workers)
        .push_back(start({"--part=table", str("--rank=", rank), str("--processes=", roles.size()),
                          str("--role=", roles[rank]), str("--port=", port)}));
  return collect(workers, true);
}

// ---- what is printed ----

double gigabytes_a_second(const Outcome& outcome, int workers) {
  return 2e-9 * static_cast<double>(bytes_of_rows()) * workers * FLAGS_repeats / outcome.seconds;
}

void print_rates() {
  std::printf(
      "push and pull of %d MiB in rows of %d KiB between 1 server and W workers, %d times; GB/s "
      "through the server, both ways together\n",
      FLAGS_mib, FLAGS_row_floats / 256, FLAGS_repeats);
  for (const int workers : {1, 2, 4}) {
    const Outcome bare = run_bare(workers),
                  table = run_table("s" + std::string(static_cast<std::size_t>(workers), 'w')),
                  again = run_bare(workers);
    const double reference =
        (gigabytes_a_second(bare, workers) + gigabytes_a_second(again, workers)) / 2;
    std::printf("  W=%d  bare Asio %.2f (%.2f, %.2f)  table service %.2f  ratio %.2f\n", workers,
                reference, gigabytes_a_second(bare, workers), gigabytes_a_second(again, workers),
                gigabytes_a_second(table, workers), gigabytes_a_second(table, workers) / reference);
    std::fflush(stdout);
  }
}

double percentile(const Outcome& outcome, double part) {
  return outcome
      .echoes[static_cast<std::size_t>(part * static_cast<double>(outcome.echoes.size() - 1))];
}

void print_latency() {
  gflags::FlagSaver saver;
  FLAGS_mib = 0;
  FLAGS_row_floats = 1024;
  const Outcome bare = run_bare(1), table = run_table("sw");
  std::printf(
      "a row of 4 KiB there and back, %d times: bare Asio p50 %.0f us p99 %.0f us; table service "
      "p50 %.0f us p99 %.0f us; ratio of p50 %.2f\n",
      FLAGS_echoes, percentile(bare, 0.5), percentile(bare, 0.99), percentile(table, 0.5),
      percentile(table, 0.99), percentile(table, 0.5) / percentile(bare, 0.5));
}

void print_bytes() {
  gflags::FlagSaver saver;
  FLAGS_mib = 64;
  for (const char* roles : {"bb", "bbbb"}) {
    const Outcome outcome = run_table(roles);
    const double processes = static_cast<double>(outcome.sent.size());
    const double expected =
        2 * static_cast<double>(bytes_of_rows()) * (processes - 1) / processes * FLAGS_repeats;
    for (std::size_t rank = 0; rank < outcome.sent.size(); ++rank)
      std::printf(
          "%zu processes, each worker and server: rank %zu sent %.4f and received %.4f of 2 |W| 4 "
          "(P-1)/P bytes an iteration\n",
          outcome.sent.size(), rank, outcome.sent[rank] / expected,
          outcome.received[rank] / expected);
  }
}

void print_row_lengths() {
  gflags::FlagSaver saver;
  std::printf("1 server and 1 worker, %d MiB, by length of rows\n", FLAGS_mib);
  for (const int floats : {1024, 4096, 16'384, 32'768, 65'536, 131'072, 262'144, 1'048'576}) {
    FLAGS_row_floats = floats;
    const Outcome table = run_table("sw");
    std::printf("  %5d KiB  %.2f GB/s\n", floats / 256, gigabytes_a_second(table, 1));
    std::fflush(stdout);
  }
}

void print_encryption() {
  const std::size_t floats = static_cast<std::size_t>(FLAGS_row_floats),
                    rows = bytes_of_rows() / row_bytes() * static_cast<std::size_t>(FLAGS_repeats);
  const double gigabytes = 1e-9 * static_cast<double>(rows * row_bytes());
  std::printf(
      "%s\none link over loopback, %.1f GB in rows of %d KiB one way; GB/s, and GB for each "
      "second that an end computes\n",
      processor_name().c_str(), gigabytes, FLAGS_row_floats / 256);
  for (const bool encrypted : {false, true, false, true}) {
    const LinkRates rates =
        measure_link(encrypted ? table::Encrypt::kAlways : table::Encrypt::kNever, rows, floats);
    std::printf("  %-9s  %5.2f GB/s  sender %5.2f GB/s a core  receiver %5.2f GB/s a core\n",
                encrypted ? "encrypted" : "clear", gigabytes / rates.wall, gigabytes / rates.sender,
                gigabytes / rates.receiver);
    std::fflush(stdout);
  }
}

int bench(const std::vector<std::string>&) {
  if (FLAGS_part == "bare_server") return bare_server();
  if (FLAGS_part == "bare_client") return bare_client();
  if (FLAGS_part == "table") return table_process();
  if (FLAGS_rows) return print_row_lengths(), 0;
  if (FLAGS_encrypt) return print_encryption(), 0;
  print_rates();
  print_latency();
  print_bytes();
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  return shoal::run_tool(argc, argv,
                         "bench_table [--rows | --encrypt]\n\nMeasures the table service on "
                         "loopback beside a bare Asio "
                         "program.",
                         &shoal::bench);
}
