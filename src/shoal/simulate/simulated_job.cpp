#include "shoal/simulate/simulated_job.h"

#include <algorithm>

#include "shoal/base/log.h"
#include "shoal/simulate/simulated_table.h"

namespace shoal::simulate {

using table::Message;
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
    ports_.push_back({{.bandwidth = process.bandwidth}, {.bandwidth = process.bandwidth}});
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

// Messages within a process take no time.
SimulatedLinkOptions SimulatedJob::between(std::uint32_t first, std::uint32_t second) {
  SimulatedLinkOptions link;
  link.as_messages = options_.dry || first == second;
  link.latency = {};
  if (first == second) return link;
  const Process &a = cluster_.processes[first], &b = cluster_.processes[second];
  link.latency = std::max(a.latency, b.latency);
  link.jitter = std::max(a.jitter, b.jitter);
  if (cluster_.shared) {
    link.out = {&ports_[first].out, &ports_[second].out};
    link.in = {&ports_[first].in, &ports_[second].in};
  } else {
    link.bandwidth = a.bandwidth > 0 && b.bandwidth > 0 ? std::min(a.bandwidth, b.bandwidth)
                                                        : std::max(a.bandwidth, b.bandwidth);
  }
  return link;
}

SimulatedLink& SimulatedJob::link(int worker, int server) {
  const std::size_t number = link_number(worker, server);
  if (links_[number]) return *links_[number];
  SimulatedEnd client{
      .received = [this, worker,
                   server](Message&& m) { tables_[worker]->received(server, std::move(m)); },
      .next = [this, worker, server]() { return tables_[worker]->next(server); }};
  SimulatedEnd shard{
      .received = [this, worker, server](Message&& m) { arrived(server, worker, std::move(m)); },
      .next = [this, number]() { return out_.pop(number); }};
  links_[number] = std::make_unique<SimulatedLink>(
      time_, between(rank_of_worker_[worker], servers_[server].rank),
      Random(options_.seed, kFirstStream + number), std::move(client), std::move(shard));
  return *links_[number];
}

void SimulatedJob::connect() {
  links_.resize(rank_of_worker_.size() * servers_.size());
  out_ = MessageQueues(links_.size());
  for (std::uint32_t rank = 0; rank < cluster_.processes.size(); ++rank) {
    SimulatedLinkOptions line = between(rank, 0);
    if (cluster_.coordinator_latency && rank != 0) line.latency = *cluster_.coordinator_latency;
    SimulatedEnd process{.received = [this, rank](const Message& m) { hear(rank, m); }};
    SimulatedEnd coordinator{.received = [this, rank](const Message& m) { coordinate(rank, m); }};
    to_coordinator_.push_back(std::make_unique<SimulatedLink>(
        time_, line, Random(options_.seed, kFirstStream + links_.size() + rank), std::move(process),
        std::move(coordinator)));
  }
}

void SimulatedJob::install_plan(const table::Plan& plan, const table::Table::Source& initial) {
  const auto messages = table::initial_of(plan, initial);
  for (int server = 0; server < servers(); ++server)
    for (const Message& message : messages[server]) {
      table::Outbox ready;  // for the chief, which knows already
      const Status status = shard(server).handle(0, message, ready);
      if (!status.ok()) return fail(status.error());
    }
}

// A server handles one message after the other, and a push takes time.
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
  table::Shard& shard = *servers_[server].shard;
  table::Outbox out;
  const Status status = shard.handle(worker, message, out);
  dispatch(server, out);
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

Histogram SimulatedJob::version_staleness() const {
  Histogram all(table::StalenessCounts::kClasses);
  for (int worker = 0; worker < workers(); ++worker) add(staleness(worker).pushes, all);
  return all;
}

void SimulatedJob::dispatch(int server, table::Outbox& out) {
  Server& here = servers_[server];
  for (table::Outgoing& one : out) {
    if (one.to == table::kCoordinator) {
      to_coordinator_[here.rank]->send(0, std::move(one.message));
      continue;
    }
    out_.push(link_number(one.to, server), urgency_of(one.message, *here.shard->plan()),
              std::move(one.message));
    link(one.to, server).wake(1);
  }
}

void SimulatedJob::coordinate(std::uint32_t rank, const Message& message) {
  std::vector<table::Dispatch> out;
  const Status status = coordinator_.handle(rank, message, time_.now(), out);
  dispatch(out);
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
    for (const auto counter : {&table::ShardCounters::merges, &table::ShardCounters::contributions,
                               &table::ShardCounters::dropped, &table::ShardCounters::repeated,
                               &table::ShardCounters::early, &table::ShardCounters::refused,
                               &table::ShardCounters::parked})
      all.*counter += one.*counter;
    all.staleness.resize(std::max(all.staleness.size(), one.staleness.size()));
    add(one.staleness, all.staleness);
  }
  return all;
}

table::Traffic SimulatedJob::traffic(int worker) const {
  const std::uint32_t rank = rank_of_worker_[worker];
  const int own_server = roster().processes[rank].server;
  table::Traffic all;
  const auto add = [&](const SimulatedLink& link, int own) {
    const SimulatedLink::Counters &out = link.counters(own), &in = link.counters(1 - own);
    all.bytes_sent += out.bytes;
    all.frames_sent += out.frames;
    all.bytes_received += in.bytes;
    all.frames_received += in.frames;
  };
  const auto used = [&](int client, int server) {
    return links_[link_number(client, server)].get();
  };
  for (int server = 0; server < servers(); ++server)
    if (const SimulatedLink* link = used(worker, server); link && server != own_server)
      add(*link, 0);
  for (int client = 0; client < workers() && own_server >= 0; ++client) {
    const SimulatedLink* const link = used(client, own_server);
    if (link && client != worker) add(*link, 1);
    if (link && client == worker)
      all.local_bytes += link->counters(0).bytes + link->counters(1).bytes;
  }
  for (std::uint32_t other = 1; other < to_coordinator_.size(); ++other)
    if (other == rank || rank == 0) add(*to_coordinator_[other], rank == 0 ? 1 : 0);
  if (const double bandwidth = process_of(worker).bandwidth; bandwidth > 0) {
    all.sending = to_instant(static_cast<double>(all.bytes_sent) / bandwidth);
    all.receiving = to_instant(static_cast<double>(all.bytes_received) / bandwidth);
  }
  return all;
}

}  // namespace shoal::simulate
