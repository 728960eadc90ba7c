#include "shoal/simulate/simulated_job.h"

#include <algorithm>

#include "shoal/base/log.h"
#include "shoal/simulate/simulated_table.h"

namespace shoal::simulate {

using table::SimulatedEnd;
using table::SimulatedLink;
using table::SimulatedLinkOptions;

namespace {

void add(std::span<const std::uint64_t> counts, std::span<std::uint64_t> sums) {
  for (std::size_t i = 0; i < counts.size(); ++i) sums[i] += counts[i];
}

constexpr std::uint64_t kFirstStream = (std::uint64_t{1} << 32) + 1;  // workers use smaller ones

}  // namespace

void SimulatedJob::join() {
  for (std::uint32_t rank = 0; rank < cluster_.processes.size(); ++rank) {
    const Process& process = cluster_.processes[rank];
    if (process.worker) rank_of_worker_.push_back(rank);
    if (process.server) {
      const int number = servers();
      servers_.push_back(
          {.shard = std::make_unique<table::Shard>(number, options_.maker), .rank = rank});
      if (options_.dry) servers_.back().shard->count_only();
    }
    const double shared = cluster_.shared ? process.bandwidth : 0;
    ports_.push_back({.out = {.bandwidth = shared}, .in = {.bandwidth = shared}});
    const table::JoinBody join{
        rank, process.worker, process.server, str("simulated ", rank), str("simulated:", rank), ""};
    std::vector<table::Dispatch> out;
    const Status joined = coordinator_.handle(
        rank, table::Ask{table::Topic::kJoin, 0, encode(join)}, time_.now(), out);
    CHECK(joined.ok()) << joined.error().message;
  }
  CHECK(coordinator_.roster() != nullptr) << "all processes have joined";
  tables_.resize(workers());
}

// Returns the options of a link. Messages within a process take no time.
SimulatedLinkOptions SimulatedJob::between(std::uint32_t first, std::uint32_t second) {
  Ports &here = ports_[first], &there = ports_[second];
  if (first == second) return {.latency = {}, .copies = false, .out = {&here.local, &here.local}};
  const Process &a = cluster_.processes[first], &b = cluster_.processes[second];
  SimulatedLinkOptions link{.latency = std::max(a.latency, b.latency),
                            .jitter = std::max(a.jitter, b.jitter),
                            .copies = !options_.dry,
                            .out = {&here.out, &there.out},
                            .in = {&here.in, &there.in}};
  if (!cluster_.shared)
    link.bandwidth = a.bandwidth > 0 && b.bandwidth > 0 ? std::min(a.bandwidth, b.bandwidth)
                                                        : std::max(a.bandwidth, b.bandwidth);
  return link;
}

SimulatedLink& SimulatedJob::link(int worker, int server) {
  const std::size_t number = worker * servers_.size() + server;
  if (links_[number]) return *links_[number];
  SimulatedEnd client{
      .received = [this, worker,
                   server](Message&& m) { tables_[worker]->received(server, std::move(m)); },
      .next = [this, worker, server] { return tables_[worker]->next(server); }};
  SimulatedEnd shard{
      .received = [this, worker, server](Message&& m) { arrived(server, worker, std::move(m)); }};
  links_[number] = std::make_unique<SimulatedLink>(
      time_, between(rank_of_worker_[worker], servers_[server].rank),
      Random(options_.seed, kFirstStream + number), std::move(client), std::move(shard));
  return *links_[number];
}

void SimulatedJob::connect() {
  links_.resize(rank_of_worker_.size() * servers_.size());
  for (std::uint32_t rank = 0; rank < cluster_.processes.size(); ++rank) {
    SimulatedLinkOptions line = between(rank, 0);
    if (rank == 0)
      line.out = {};  // its traffic counts nowhere
    else if (cluster_.coordinator_latency)
      line.latency = *cluster_.coordinator_latency;
    SimulatedEnd process{.received = [this, rank](const Message& m) { hear(rank, m); }};
    SimulatedEnd coordinator{.received = [this, rank](const Message& m) { coordinate(rank, m); }};
    to_coordinator_.push_back(std::make_unique<SimulatedLink>(
        time_, line, Random(options_.seed, kFirstStream + links_.size() + rank), std::move(process),
        std::move(coordinator)));
  }
}

void SimulatedJob::install_plan(const Plan& plan, const table::Table::Source& initial) {
  past_updates_ = updates();
  tasks_ = 0;
  const auto messages = table::initial_of(plan, initial);
  for (int server = 0; server < servers(); ++server)
    for (const Message& message : messages[server]) {
      table::Outbox ready;  // for the chief, which knows already
      const Status status = shard(server).handle(0, message, ready);
      if (!status.ok()) return fail(status.error());
    }
}

std::int64_t SimulatedJob::updates() const {
  const Plan* const plan = servers_[0].shard->plan();
  if (plan == nullptr) return 0;
  const auto row = std::ranges::find(plan->rows, true, &table::Row::learns);
  if (row == plan->rows.end()) return past_updates_ + tasks_ / workers();
  const auto now = servers_[row->server].shard->look(static_cast<RowId>(row - plan->rows.begin()));
  return past_updates_ + (now ? now->version - plan->start : 0);
}

// Handles a message at its server, one after the other. A push takes time.
void SimulatedJob::arrived(int server, int worker, Message&& message) {
  Server& here = servers_[server];
  const auto* push = std::get_if<table::Push>(&message);
  const double each = cluster_.processes[here.rank].seconds_per_byte;
  const Instant takes =
      push ? to_instant(each * static_cast<double>(push->payload.bytes.size())) : Instant{};
  here.busy = std::max(here.busy, time_.now()) + takes;
  if (here.busy == time_.now()) return handle(server, worker, message);
  time_.at(here.busy,
           [this, server, worker, said = std::move(message)] { handle(server, worker, said); });
}

void SimulatedJob::handle(int server, int worker, const Message& message) {
  if (!this->status().ok()) return;
  Server& here = servers_[server];
  table::Outbox out;
  const Status status = here.shard->handle(worker, message, out);
  for (table::Outgoing& one : out) {
    if (one.to == table::kCoordinator) {
      to_coordinator_[here.rank]->send(0, std::move(one.message));
      continue;
    }
    const table::Urgency urgency = urgency_of(one.message, *here.shard->plan());
    link(one.to, server).send(1, std::move(one.message), urgency);
  }
  if (!status.ok()) fail(status.error());
}

table::StalenessCounts SimulatedJob::staleness(int worker) const {
  table::StalenessCounts counts;
  for (const Server& server : servers_) {
    const table::PushCounts pushes = server.shard->counts_of(worker);
    add(pushes.staleness, counts.pushes);
    counts.drops += pushes.dropped;
    if (server.rank == rank_of_worker_[worker])
      add(server.shard->counters().staleness, counts.reads);
  }
  return counts;
}

table::Staleness SimulatedJob::version_staleness() const {
  table::Staleness all{};
  for (int worker = 0; worker < workers(); ++worker) add(staleness(worker).pushes, all);
  return all;
}

void SimulatedJob::coordinate(std::uint32_t rank, const Message& message) {
  std::vector<table::Dispatch> out;
  const Status status = coordinator_.handle(rank, message, time_.now(), out);
  for (const table::Dispatch& one : out) to_coordinator_[one.rank]->send(1, one.message);
  if (!status.ok()) fail(status.error());
}

void SimulatedJob::hear(std::uint32_t rank, const Message& message) {
  if (const auto* directive = std::get_if<table::Directive>(&message);
      directive && directive->kind == table::DirectiveKind::kAbort)
    return fail({directive->code, directive->text});
  const auto& process = roster().processes[rank];
  if (std::holds_alternative<table::NormTotal>(message))
    handle(process.server, 0, message);
  else if (process.worker >= 0)
    tables_[process.worker]->heard(message);
}

void SimulatedJob::fail(const Error& error) {
  {
    const MutexLock lock(mutex_);
    if (!status_.ok()) return;
    status_ = error;
    failed_ = true;
  }
  for (SimulatedTable* const table : tables_) table->wake();
}

table::ShardCounters SimulatedJob::counters() const {
  table::ShardCounters all;
  for (const Server& server : servers_) {
    const table::ShardCounters one = server.shard->counters();
    all.merges += one.merges;
    all.contributions += one.contributions;
    all.dropped += one.dropped;
    add(one.staleness, all.staleness);
  }
  return all;
}

table::Traffic SimulatedJob::traffic(int worker) const {
  const auto& [out, in, local] = ports_[rank_of_worker_[worker]];
  table::Traffic all{.bytes_sent = out.bytes,
                     .bytes_received = in.bytes,
                     .frames_sent = out.frames,
                     .frames_received = in.frames,
                     .local_bytes = local.bytes};
  if (const double bandwidth = process_of(worker).bandwidth; bandwidth > 0) {
    all.sending = to_instant(static_cast<double>(all.bytes_sent) / bandwidth);
    all.receiving = to_instant(static_cast<double>(all.bytes_received) / bandwidth);
  }
  return all;
}

}  // namespace shoal::simulate
