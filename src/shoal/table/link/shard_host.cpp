#include "shoal/table/link/shard_host.h"

#include "shoal/base/log.h"

namespace shoal::table {

ShardHost::ShardHost(ProcessState& process, IoThreads& threads, CoordinatorClient& coordinator)
    : process_(process),
      coordinator_(coordinator),
      strand_(threads),
      peers_(process, strand_, Purpose::kRows, *this),
      followers_(process, strand_, Purpose::kCopies, *this),
      leaders_(process, strand_, Purpose::kCopies, *this) {}

void ShardHost::start(const RosterBody& roster, std::function<void(std::vector<Message>)> own) {
  strand_.post([this, &roster, own = std::move(own)]() mutable {
    own_ = std::move(own);
    for (const RosterBody::Process& process : roster.processes) {
      if (process.worker >= 0) rank_of_.push_back(process.rank);
      if (process.server >= 0) server_of_.push_back(process.rank);
    }
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
    peers_[rank].close(true);
    count_out(rank);
  });
}

// Takes over the rows of the process, then counts its worker out of all rows.
void ShardHost::count_out(Rank rank) {
  if (stopped_ || !shard_) return;
  Outbox out;
  const auto server = std::ranges::find(server_of_, rank);
  if (server != server_of_.end())
    shard_->lose_server(static_cast<int>(server - server_of_.begin()), out);
  shard_->leave(worker_of(rank), out);
  dispatch(out);
  paused();
}

// ---- second copies of rows ----

void ShardHost::dial_copy_now() {
  const Plan* const plan = shard_ ? shard_->plan() : nullptr;
  const auto own = std::ranges::find(server_of_, process_.options.rank);
  if (stopped_ || plan == nullptr || own == server_of_.end()) return;
  const auto number = static_cast<int>(own - server_of_.begin());
  const Rank copy = plan->is_copied(number) ? server_of_.at(plan->copy_of(number)) : kNoRank;
  if (copy == copy_) return;
  const RosterBody* const roster = process_.roster();
  if (copy != kNoRank &&
      (!roster || copy >= roster->processes.size() || roster->processes[copy].address.empty()))
    return;  // it is known soon
  if (copy_ != kNoRank) followers_[copy_].close(true);
  copy_ = copy;
  if (copy != kNoRank && !gone_.contains(copy))
    followers_[copy].dial(process_.address_of(copy), process_.options.connect);
}

void ShardHost::up(Peer& peer, bool) {
  if (peer.purpose() != Purpose::kCopies || peer.rank() != copy_ || stopped_ || !shard_) return;
  Outbox out;
  shard_->send_updates(out);
  dispatch(out);
}

Status ShardHost::hear_server(const Message& message) {
  if (stopped_ || !shard_) return {};
  Outbox out;
  const Status status = shard_->hear_server(message, out);
  dispatch(out);
  return status;
}

std::span<std::byte> ShardHost::place(Message& message, std::size_t bytes) {
  Payload* const payload = payload_of(message);
  return payload ? allocate(*payload, bytes) : std::span<std::byte>();
}

Status ShardHost::received(Peer& peer, Message&& message) {
  if (peer.purpose() == Purpose::kCopies)
    return gone_.contains(peer.rank()) ? Status() : hear_server(message);
  if (shard_)
    handle(peer.rank(), message);
  else
    early_.emplace_back(peer.rank(), std::move(message));
  return {};
}

void ShardHost::handle(Rank rank, const Message& message) {
  if (stopped_ || !shard_ || gone_.contains(rank)) return;
  if (const auto* said = std::get_if<PlanMessage>(&message)) take_number(*said->plan);
  const int worker = sender_of(rank, message);
  // In a later generation the process may have been a worker, whose last messages are late.
  const bool first = !shard_->plan() || shard_->plan()->generation == 0;
  if (first && worker < 0 && !std::holds_alternative<NormTotal>(message))
    return coordinator_.report(rank, -1,
                               broken("it sent a ", name_of(message), ", but it is no worker"));
  Outbox out;
  const Status status = shard_->handle(worker, message, out);
  if (std::holds_alternative<PlanMessage>(message) && status.ok()) take_ranks(*shard_->plan());
  dispatch(out);
  if (!status.ok()) coordinator_.report(rank, -1, status.error());
  if (asked_.exchange(false)) {
    MutexLock lock(process_.mutex);
    reads_ = shard_->counters().staleness;
  }
}

// Returns the number of the worker: of the chief of the next plan that by the plan, as it may have
// been another worker in the last generation.
int ShardHost::sender_of(Rank rank, const Message& message) const {
  const auto* said = std::get_if<PlanMessage>(&message);
  const bool is_next = said && !said->plan->ranks.empty() &&
                       (!shard_->plan() || said->plan->generation > shard_->plan()->generation);
  return is_next && said->plan->ranks.front() == rank ? 0 : worker_of(rank);
}

// Takes this server's number, which changes when a server before it has left.
void ShardHost::take_number(const Plan& plan) {
  if (shard_->plan() && plan.generation <= shard_->plan()->generation) return;
  const auto own = std::ranges::find(plan.server_ranks, process_.options.rank);
  if (own != plan.server_ranks.end())
    shard_->renumber(static_cast<int>(own - plan.server_ranks.begin()));
}

// Takes the numbers of the processes in a plan, some of which may be lost already.
void ShardHost::take_ranks(const Plan& plan) {
  if (!plan.ranks.empty()) rank_of_ = plan.ranks;
  if (!plan.server_ranks.empty()) server_of_ = plan.server_ranks;
  dial_copy_now();
  for (const Rank rank : gone_) count_out(rank);
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
    if (is_to_server(one.to)) {
      const Rank rank = server_of_.at(server_of(one.to));
      const bool is_update = std::holds_alternative<Update>(one.message);
      feed((is_update ? followers_ : leaders_)[rank], std::move(one.message));
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
