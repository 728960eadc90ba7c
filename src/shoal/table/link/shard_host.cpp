#include "shoal/table/link/shard_host.h"

#include "shoal/base/log.h"

namespace shoal::table {

ShardHost::ShardHost(ProcessState& process, IoThreads& threads, CoordinatorClient& coordinator)
    : process_(process),
      coordinator_(coordinator),
      strand_(threads),
      peers_(process, strand_, Purpose::kRows, *this) {}

void ShardHost::start(const RosterBody& roster, std::function<void(std::vector<Message>)> own) {
  strand_.post([this, &roster, own = std::move(own)]() mutable {
    own_ = std::move(own);
    for (const RosterBody::Process& process : roster.processes)
      if (process.worker >= 0) rank_of_.push_back(process.rank);
    shard_ = std::make_unique<Shard>(roster.processes[process_.options.rank].server);
    for (const auto& [rank, message] : std::exchange(early_, {})) handle(rank, message);
    paused();
  });
}

void ShardHost::hear(std::vector<Message> messages) {
  strand_.post([this, messages = std::move(messages)] { handle_all(messages); });
}

void ShardHost::hear_now(std::vector<Message> messages, const ParallelFor& parallel_for) {
  const bool heard = strand_.try_run([&] {
    if (shard_) shard_->share_out(parallel_for);
    handle_all(messages);
    if (shard_) shard_->share_out({});
  });
  if (!heard) hear(std::move(messages));
}

void ShardHost::let_go(Rank rank) {
  strand_.post([this, rank] {
    gone_.insert(rank);
    const int worker = worker_of(rank);
    if (stopped_ || !shard_ || worker < 0) return;
    Outbox out;
    shard_->leave(worker, out);
    dispatch(out);
    paused();
  });
}

std::span<std::byte> ShardHost::place(Message& message, std::size_t bytes) {
  Payload* const payload = payload_of(message);
  return payload ? allocate(*payload, bytes) : std::span<std::byte>();
}

Status ShardHost::received(Peer& peer, Message&& message) {
  if (shard_)
    handle(peer.rank(), message);
  else
    early_.emplace_back(peer.rank(), std::move(message));
  return {};
}

void ShardHost::handle(Rank rank, const Message& message) {
  if (stopped_ || !shard_ || gone_.contains(rank)) return;
  if (const auto* said = std::get_if<PlanMessage>(&message)) take_number(said->plan);
  const int worker = worker_of(rank);
  // In a later generation the process may have been a worker, whose last messages are late.
  const bool first = !shard_->plan() || shard_->plan()->generation == 0;
  if (first && worker < 0 && !std::holds_alternative<NormTotal>(message))
    return coordinator_.report(rank, -1,
                               broken("it sent a ", name_of(message), " and is no worker"));
  Outbox out;
  const Status status = shard_->handle(worker, message, out);
  if (const auto* said = std::get_if<PlanMessage>(&message); said && status.ok())
    if (const auto& ranks = shard_->plan()->ranks; !ranks.empty()) rank_of_ = ranks;
  dispatch(out);
  if (!status.ok()) coordinator_.report(rank, -1, status.error());
  if (asked_.exchange(false)) {
    MutexLock lock(process_.mutex);
    reads_ = shard_->counters().staleness;
  }
}

// Takes this server's number, which changes when a server before it has left.
void ShardHost::take_number(const Plan& plan) {
  if (shard_->plan() && plan.generation <= shard_->plan()->generation) return;
  const auto own = std::ranges::find(plan.server_ranks, process_.options.rank);
  if (own != plan.server_ranks.end())
    shard_->renumber(static_cast<int>(own - plan.server_ranks.begin()));
}

Urgency ShardHost::urgency_of(const Message& message) const {
  const bool in_order = process_.options.order == Order::kArrival || !shard_->plan();
  return in_order ? Urgency() : table::urgency_of(message, *shard_->plan());
}

void ShardHost::dispatch(Outbox& out) {
  std::vector<Message> own;
  for (Outgoing& one : out) {
    if (one.to == kCoordinator) {
      coordinator_.send(std::move(one.message));
      continue;
    }
    CHECK(static_cast<std::size_t>(one.to) < rank_of_.size())
        << "worker " << one.to << " of " << rank_of_.size();
    const Rank rank = rank_of_[one.to];
    if (rank == process_.options.rank)
      own.push_back(std::move(one.message));
    else
      feed(peers_[rank], std::move(one.message));
  }
  if (!own.empty()) own_(std::move(own));
}

}  // namespace shoal::table
