#include "shoal/simulate/simulated_job.h"

#include <algorithm>

#include "shoal/base/log.h"
#include "shoal/simulate/simulated_table.h"
#include "shoal/table/broken.h"

namespace shoal::simulate {

using table::SimulatedEnd;
using table::SimulatedLink;
using table::SimulatedLinkOptions;

namespace {

void add(std::span<const std::uint64_t> counts, std::span<std::uint64_t> sums) {
  for (std::size_t i = 0; i < counts.size(); ++i) sums[i] += counts[i];
}

// Workers use smaller streams; processes that join use larger ones than those of the beginning.
constexpr std::uint64_t kFirstStream = (std::uint64_t{1} << 32) + 1,
                        kLaterStreams = std::uint64_t{1} << 35,
                        kLaterServers = std::uint64_t{1} << 38;

}  // namespace

void SimulatedJob::join() {
  for (Rank rank = 0; rank < cluster_.processes.size(); ++rank) {
    const Process& process = cluster_.processes[rank];
    if (process.worker) rank_of_worker_.push_back(rank);
    worker_of_rank_.push_back(process.worker ? workers() - 1 : -1);
    if (process.server) serving_.push_back(&add_server(rank));
    open(process);
    const table::JoinBody join{
        rank, process.worker, process.server, str("simulated ", rank), str("simulated:", rank), ""};
    std::vector<table::Dispatch> out;
    const Status joined = coordinator_.handle(
        rank, table::Ask{table::Topic::kJoin, 0, encode(join)}, time_.now(), out);
    CHECK(joined.ok()) << joined.error().message;
  }
  CHECK(coordinator_.roster() != nullptr) << "all processes have joined";
  for (Rank rank = 0; rank < members_.size(); ++rank) connect(rank);
}

SimulatedJob::Server& SimulatedJob::add_server(Rank rank) {
  servers_.push_back({.shard = std::make_unique<table::Shard>(servers(), options_.maker),
                      .rank = rank,
                      .place = servers_.size()});
  if (options_.dry) servers_.back().shard->count_only();
  return servers_.back();
}

void SimulatedJob::open(const Process& process) {
  const double shared = cluster_.shared ? process.bandwidth : 0;
  members_.push_back(
      {.process = &process, .ports = {.out = {.bandwidth = shared}, .in = {.bandwidth = shared}}});
}

// Returns the options of a link. Messages within a process take no time.
SimulatedLinkOptions SimulatedJob::between(Rank first, Rank second) {
  Ports &here = members_[first].ports, &there = members_[second].ports;
  if (first == second) return {.latency = {}, .copies = false, .out = {&here.local, &here.local}};
  const Process &a = process_of(first), &b = process_of(second);
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

Instant SimulatedJob::latency(Rank rank) const {
  if (rank == 0) return {};
  return cluster_.coordinator_latency.value_or(
      std::max(process_of(rank).latency, process_of(0).latency));
}

// Returns the stream of random numbers of a process's link to a server, or to the coordinator.
std::uint64_t SimulatedJob::stream(Rank rank, std::optional<std::size_t> server) const {
  const auto servers = static_cast<std::uint64_t>(cluster_.servers());
  const std::uint64_t number = rank, founders = cluster_.processes.size();
  if (server && *server >= servers) return kLaterServers + (number << 20) + *server;
  if (rank >= founders) return kLaterStreams + number * (servers + 1) + server.value_or(servers);
  const auto workers = static_cast<std::uint64_t>(cluster_.workers());
  return kFirstStream + (server ? number * servers + *server : workers * servers + number);
}

SimulatedLink& SimulatedJob::link(Rank rank, int server) {
  Server& there = *serving_[server];
  auto& links = members_[rank].links;
  links.resize(servers_.size());
  std::unique_ptr<SimulatedLink>& link = links[there.place];
  if (link) return *link;
  SimulatedEnd client{.received =
                          [this, rank, &there](Message&& m) {
                            if (const int number = number_of(there); number >= 0)
                              members_[rank].table->received(number, std::move(m));
                          },
                      .next = [this, rank, &there]() -> std::optional<Message> {
                        const int number = number_of(there);
                        return number >= 0 ? members_[rank].table->next(number) : std::nullopt;
                      }};
  SimulatedEnd shard{
      .received = [this, rank, &there](Message&& m) { arrived(there, rank, std::move(m)); }};
  link = std::make_unique<SimulatedLink>(time_, between(rank, there.rank),
                                         Random(options_.seed, stream(rank, there.place)),
                                         std::move(client), std::move(shard));
  return *link;
}

void SimulatedJob::connect(Rank rank) {
  SimulatedLinkOptions line = between(rank, 0);
  line.latency = latency(rank);
  if (rank == 0) line.out = {};  // its traffic counts nowhere
  SimulatedEnd process{.received = [this, rank](const Message& m) { hear(rank, m); }};
  SimulatedEnd coordinator{.received = [this, rank](const Message& m) { coordinate(rank, m); }};
  members_[rank].to_coordinator =
      std::make_unique<SimulatedLink>(time_, line, Random(options_.seed, stream(rank, {})),
                                      std::move(process), std::move(coordinator));
}

// ---- generations ----

void SimulatedJob::install_plan(const Plan& plan, const table::Table::Source& initial) {
  end_generation();
  begin_generation(plan);
  const auto messages = table::initial_of(plan, initial);
  for (int server = 0; server < servers(); ++server)
    for (const Message& message : messages[server]) {
      table::Outbox ready;  // for the chief, which knows already
      const Status status = shard(server).handle(0, message, ready);
      if (!status.ok()) return fail(status.error());
    }
  for (const Server* server : serving_)
    for (const Rank lost : members_[server->rank].gone) count_out(*server, lost);
}

// Settles counts that are by numbers which processes have in this generation alone.
void SimulatedJob::end_generation() {
  past_updates_ = updates();
  tasks_ = 0;
  for (const Rank rank : rank_of_worker_) {
    Member& member = members_[rank];
    const table::StalenessCounts counts = staleness(rank);
    member.pushed = pushed(rank);
    member.past.pushes = counts.pushes;
    member.past.drops = counts.drops;
    member.tasks = 0;
  }
  for (Server& server : servers_) {
    server.before.clear();
    for (int worker = 0; worker < static_cast<int>(members_.size()); ++worker)
      server.before.push_back(server.shard->counts_of(worker));
  }
}

void SimulatedJob::begin_generation(const Plan& plan) {
  if (plan.ranks.empty()) return;
  rank_of_worker_.assign(plan.ranks.begin(), plan.ranks.end());
  worker_of_rank_.assign(members_.size(), -1);
  for (int worker = 0; worker < workers(); ++worker)
    worker_of_rank_[rank_of_worker_[worker]] = worker;
  serving_.clear();
  for (const Rank rank : plan.server_ranks) {
    const auto known = std::ranges::find(servers_, rank, &Server::rank);
    Server& server = known == servers_.end() ? add_server(rank) : *known;
    server.shard->renumber(servers());
    serving_.push_back(&server);
  }
}

void SimulatedJob::lose(Rank rank, Instant delay) {
  members_[rank].is_lost = true;
  if (SimulatedTable* const table = members_[rank].table) table->be_lost();
  time_.after(delay, [this, rank] {
    std::vector<table::Dispatch> out;
    coordinator_.lost(rank, Code::kPeer, str("It was lost", table::kRefused, "."), time_.now(),
                      out);
    for (const table::Dispatch& one : out) members_[one.rank].to_coordinator->send(1, one.message);
  });
}

Rank SimulatedJob::admit(Rank like) {
  const Rank rank = coordinator_.enroll();
  CHECK_EQ(rank, members_.size()) << "ranks are given in turn";
  open(*members_[like].process);
  worker_of_rank_.push_back(-1);
  connect(rank);
  return rank;
}

// Lets a server go on without a worker, if that is one of its plan.
void SimulatedJob::count_out(const Server& server, Rank lost) {
  const int worker = plan() ? worker_of_rank_[lost] : -1;
  if (worker < 0) return;
  table::Outbox out;
  server.shard->leave(worker, out);
  dispatch(server, out);
}

std::int64_t SimulatedJob::updates() const {
  const Plan* const plan = this->plan();
  if (plan == nullptr) return 0;
  const auto row = std::ranges::find(plan->rows, true, &table::Row::learns);
  if (row == plan->rows.end()) return past_updates_ + tasks_ / workers();
  const auto now = serving_[row->server]->shard->look(static_cast<RowId>(row - plan->rows.begin()));
  return past_updates_ + (now ? now->version - plan->start : 0);
}

// ---- messages ----

// Handles a message at its server, one after the other. A push takes time.
void SimulatedJob::arrived(Server& here, Rank rank, Message&& message) {
  const auto* push = std::get_if<table::Push>(&message);
  const double each = process_of(here.rank).seconds_per_byte;
  const Instant takes =
      push ? to_instant(each * static_cast<double>(push->payload.bytes.size())) : Instant{};
  here.busy = std::max(here.busy, time_.now()) + takes;
  if (here.busy == time_.now()) return handle(here, rank, message);
  time_.at(here.busy, [this, &here, rank, said = std::move(message)] { handle(here, rank, said); });
}

// Handles the message of a process, unless the server knows it to be lost, or it was a worker in an
// earlier generation alone.
void SimulatedJob::handle(Server& here, Rank rank, const Message& message) {
  const Member& member = members_[here.rank];
  if (member.is_lost || member.gone.contains(rank) || worker_of_rank_[rank] < 0) return;
  pass(here, worker_of_rank_[rank], message);
}

void SimulatedJob::pass(Server& server, int worker, const Message& message) {
  if (!this->status().ok()) return;
  table::Outbox out;
  const Status status = server.shard->handle(worker, message, out);
  dispatch(server, out);
  if (!status.ok()) fail(status.error());
}

void SimulatedJob::dispatch(const Server& here, table::Outbox& out) {
  const int server = number_of(here);
  for (table::Outgoing& one : out) {
    if (one.to == table::kCoordinator) {
      members_[here.rank].to_coordinator->send(0, std::move(one.message));
      continue;
    }
    const table::Urgency urgency = urgency_of(one.message, *here.shard->plan());
    link(rank_of_worker_[one.to], server).send(1, std::move(one.message), urgency);
  }
}

void SimulatedJob::coordinate(Rank rank, const Message& message) {
  std::vector<table::Dispatch> out;
  const Status status = coordinator_.handle(rank, message, time_.now(), out);
  for (const table::Dispatch& one : out) members_[one.rank].to_coordinator->send(1, one.message);
  if (!status.ok()) fail(status.error());
}

void SimulatedJob::hear(Rank rank, const Message& message) {
  const auto* const directive = std::get_if<table::Directive>(&message);
  if (directive && directive->kind == table::DirectiveKind::kAbort)
    return fail({directive->code, directive->text});
  Member& member = members_[rank];
  if (member.is_lost) return;
  const auto server = std::ranges::find(servers_, rank, &Server::rank);
  if (directive && directive->kind == table::DirectiveKind::kLost) {
    const auto lost = static_cast<Rank>(directive->clock);
    member.gone.insert(lost);
    if (server != servers_.end()) count_out(*server, lost);
    if (member.table) member.table->lose(lost);
  } else if (std::holds_alternative<table::NormTotal>(message)) {
    if (server != servers_.end()) pass(*server, 0, message);
  } else if (member.table) {
    member.table->heard(message);
  }
}

void SimulatedJob::fail(const Error& error) {
  {
    const MutexLock lock(mutex_);
    if (!status_.ok()) return;
    status_ = error;
    failed_ = true;
  }
  for (const Member& member : members_)
    if (member.table) member.table->wake();
}

// ---- counts ----

double SimulatedJob::learning_rows() const {
  return plan() ? static_cast<double>(std::ranges::count(plan()->rows, true, &table::Row::learns))
                : 0;
}

table::StalenessCounts SimulatedJob::staleness(Rank rank) const {
  table::StalenessCounts counts = members_[rank].past;
  const int worker = worker_of_rank_[rank];
  for (const Server& server : servers_) {
    if (worker >= 0) {
      const table::PushCounts pushes = server.since(worker);
      add(pushes.staleness, counts.pushes);
      counts.drops += pushes.dropped;
    }
    if (server.rank == rank) add(server.shard->counters().staleness, counts.reads);
  }
  return counts;
}

SimulatedJob::Pushed SimulatedJob::pushed(Rank rank) const {
  const Member& member = members_[rank];
  Pushed all = member.pushed;
  const double rows = learning_rows();
  const int worker = worker_of_rank_[rank];
  if (worker < 0) return all;
  if (rows == 0) all.merged += static_cast<double>(member.tasks);
  for (const Server& server : servers_) {
    if (rows == 0) break;
    const table::PushCounts pushes = server.since(worker);
    for (const std::uint64_t merged : pushes.staleness)
      all.merged += static_cast<double>(merged) / rows;
    all.dropped += static_cast<double>(pushes.dropped) / rows;
  }
  return all;
}

table::PushCounts SimulatedJob::Server::since(int worker) const {
  table::PushCounts counts = shard->counts_of(worker);
  if (static_cast<std::size_t>(worker) >= before.size()) return counts;
  const table::PushCounts& earlier = before[static_cast<std::size_t>(worker)];
  for (std::size_t i = 0; i < earlier.staleness.size(); ++i)
    counts.staleness[i] -= earlier.staleness[i];
  counts.dropped -= earlier.dropped;
  return counts;
}

table::Staleness SimulatedJob::version_staleness() const {
  table::Staleness all{};
  for (Rank rank = 0; rank < members_.size(); ++rank) add(staleness(rank).pushes, all);
  return all;
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

table::Traffic SimulatedJob::traffic(Rank rank) const {
  const auto& [out, in, local] = members_[rank].ports;
  table::Traffic all{.bytes_sent = out.bytes,
                     .bytes_received = in.bytes,
                     .frames_sent = out.frames,
                     .frames_received = in.frames,
                     .local_bytes = local.bytes};
  if (const double bandwidth = process_of(rank).bandwidth; bandwidth > 0) {
    all.sending = to_instant(static_cast<double>(all.bytes_sent) / bandwidth);
    all.receiving = to_instant(static_cast<double>(all.bytes_received) / bandwidth);
  }
  return all;
}

}  // namespace shoal::simulate
