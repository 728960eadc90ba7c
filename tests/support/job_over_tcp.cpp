#include "support/job.h"
#include "support/schemes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <latch>
#include <numeric>
#include <thread>

#include "shoal/base/log.h"
#include "shoal/base/random.h"
#include "shoal/table/placement.h"

namespace shoal::test {

using table::Clock;
using table::Part;
using table::RowId;
using table::Table;
using table::Want;

table::Plan plan_of(const Training& training, const table::RosterBody& roster) {
  table::Plan plan{.workers = 0,
                   .servers = 0,
                   .rule = training.rule,
                   .clip = training.clip,
                   .scheme = table::scheme_of(training.scheme),
                   .rows = {}};
  for (const auto& process : roster.processes) {
    plan.workers = static_cast<std::uint16_t>(plan.workers + (process.worker >= 0));
    plan.servers = static_cast<std::uint16_t>(plan.servers + (process.server >= 0));
  }
  for (const std::uint32_t length : training.lengths)
    plan.rows.edit().push_back(
        {.length = length,
         .priority = static_cast<std::uint32_t>(plan.rows.size()),
         .server = static_cast<std::uint16_t>(plan.rows.size() % plan.servers)});
  return plan;
}

float gradient_of(const Training& training, int workers, int worker, Clock clock, RowId row,
                  std::size_t i) {
  const auto step = static_cast<std::size_t>(clock);
  if (training.whole)
    return static_cast<float>(workers * (1 + worker + static_cast<int>((step + i + row) % 5)));
  const std::size_t mixed =
      (i * 2654435761u) ^ (step * 40503u + row * 9176u + static_cast<std::size_t>(worker) * 6151u);
  return static_cast<float>(mixed % 10'007) / 10'007.0f - 0.3f;
}

float first_weight(RowId row, std::size_t i) { return static_cast<float>(row + i % 3); }

namespace {

Status run_iterations(Table& table, const Training& training, const table::Plan& plan,
                      RowValues& gradients) {
  std::vector<RowId> all(plan.rows.size());
  std::iota(all.begin(), all.end(), RowId{0});
  for (Clock clock = 0; clock < training.iterations; ++clock) {
    const Result<Want> want = table.start(clock);
    if (!want.ok()) return want.error();
    training.at(table, clock, want.value());
    for (RowId row = 0; row < plan.rows.size(); ++row) {
      for (std::size_t i = 0; i < gradients[row].size(); ++i)
        gradients[row][i] = gradient_of(training, plan.workers, table.worker(), clock, row, i);
      table.push({.row = row,
                  .clock = clock,
                  .rate = training.rate,
                  .payload = table::as_payload({.data = gradients[row]})});
    }
    if (Status status = table.wait(all); !status.ok()) return status;
  }
  const Result<std::string> all_done = table.ask(table::Topic::kBarrier, 1'000'000, {});
  if (!all_done.ok()) return all_done.error();
  for (const RowId row : all) table.get(row, training.iterations, Part::kWeights);
  return table.wait(all);
}

}  // namespace

Result<RowValues> train(Table& table, const Training& training) {
  const table::Plan plan = plan_of(training, table.roster());
  RowValues weights, gradients;
  for (RowId row = 0; row < plan.rows.size(); ++row) {
    weights.emplace_back(plan.rows[row].length);
    gradients.emplace_back(plan.rows[row].length);
    if (table.worker() == 0)
      for (std::size_t i = 0; i < weights[row].size(); ++i) weights[row][i] = first_weight(row, i);
  }
  const RowValues first = weights;
  Status status = table.create(
      plan,
      [&](RowId row, Part part) {
        return part == Part::kWeights ? std::span<const float>(first[row])
                                      : std::span<const float>();
      },
      [&](RowId row, Part) { return std::span<float>(weights[row]); });
  if (status.ok()) {
    std::vector<RowId> all(plan.rows.size());
    std::iota(all.begin(), all.end(), RowId{0});
    for (const RowId row : all) table.get(row, plan.start, Part::kWeights);
    status = table.wait(all);
  }
  if (status.ok()) status = run_iterations(table, training, plan, gradients);
  if (status.ok()) status = table.finish(training.iterations);
  table.release();
  if (!status.ok()) return status.error();
  return weights;
}

JobOverTcp::JobOverTcp(const std::string& roles, bool through_proxies) : ports_(roles.size()) {
  const std::size_t count = roles.size();
  services.resize(count);
  weights.resize(count);
  for (std::size_t rank = 0; rank < count; ++rank) {
    table::ServiceOptions one;
    one.rank = static_cast<std::uint32_t>(rank);
    one.processes = static_cast<std::uint32_t>(count);
    one.worker = roles[rank] != 's';
    one.server = roles[rank] != 'w';
    one.port = rank == 0 || through_proxies ? ports_[rank] : std::uint16_t{0};
    one.host = std::string("host-") + static_cast<char>('a' + rank);
    one.token = "secret of the job";
    one.configuration = "net: \"lenet\"\nbase_lr: 0.01\n";
    one.seed = 7;
    one.start = std::chrono::seconds(60);
    std::uint16_t port = one.port;
    if (through_proxies) {
      proxies_.push_back(std::make_unique<FaultyLink>(port));
      port = proxies_.back()->port();
      one.advertise = str("127.0.0.1:", port);
    }
    one.coordinator = rank == 0 ? str("127.0.0.1:", port) : options[0].coordinator;
    options.push_back(std::move(one));
  }
}

JobOverTcp::~JobOverTcp() = default;

std::vector<Status> JobOverTcp::start() {
  std::vector<Status> results(size());
  std::vector<std::jthread> threads;
  for (std::size_t rank = 0; rank < size(); ++rank)
    threads.emplace_back([&, rank] {
      auto made = table::Service::create(options[rank]);
      if (made.ok())
        services[rank] = std::move(made).value();
      else
        results[rank] = made.error();
    });
  return threads.clear(), results;
}

std::vector<Status> JobOverTcp::run(const Life& life) {
  std::vector<Status> results = start();
  std::vector<std::jthread> threads;
  for (std::size_t rank = 0; rank < size(); ++rank)
    if (services[rank])
      threads.emplace_back([&, rank] {
        results[rank] = life(rank, *services[rank]);
        services[rank].reset();
      });
  return threads.clear(), results;
}

std::vector<Status> JobOverTcp::train_all(const Training& training) {
  return run([&](std::size_t rank, table::Service& service) -> Status {
    if (!service.table()) return service.serve({});
    Result<RowValues> result = train(*service.table(), training);
    if (!result.ok()) return result.error();
    weights[rank] = std::move(result).value();
    return {};
  });
}

std::vector<Status> run_workers(
    int workers, int servers, const std::function<Status(int worker, table::Table& table)>& life) {
  std::string roles;
  for (int rank = 0; rank < std::max(workers, servers); ++rank)
    roles += rank >= workers ? 's' : rank >= servers ? 'w' : 'b';
  return JobOverTcp(roles).run([&](std::size_t rank, table::Service& service) -> Status {
    if (!service.table()) return service.serve({});
    return life(static_cast<int>(rank), *service.table());
  });
}

void expect_all_ok(const std::vector<Status>& results) {
  for (std::size_t rank = 0; rank < results.size(); ++rank)
    EXPECT_TRUE(results[rank].ok()) << "rank " << rank << ": " << results[rank].error().message;
}

}  // namespace shoal::test
