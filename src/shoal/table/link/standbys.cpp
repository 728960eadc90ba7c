#include "shoal/table/link/standbys.h"

#include "shoal/base/log.h"
#include "shoal/base/try.h"

namespace shoal::table {

std::vector<Rank> successors(const RosterBody& roster) {
  std::vector<Rank> ranks;
  for (const bool serves : {true, false})
    for (const RosterBody::Process& process : roster.processes)
      if ((process.server >= 0) == serves && (serves || process.worker >= 0))
        ranks.push_back(process.rank);
  return ranks;
}

std::vector<Ask> RecordPieces::of(Record record) {
  StateWriter io;
  record.state(io);
  const std::string bytes = io.take();
  std::vector<Ask> pieces;
  for (std::size_t at = 0; at < bytes.size(); at += kBytes)
    pieces.push_back({.topic = Topic::kRecord,
                      .clock = at + kBytes >= bytes.size() ? 1 : 0,
                      .body = bytes.substr(at, kBytes)});
  return pieces;
}

Result<std::optional<Record>> RecordPieces::take(const Ask& piece) {
  bytes_ += piece.body;
  if (piece.clock == 0) return std::optional<Record>();
  Record record;
  StateReader io(bytes_);
  record.state(io);
  const std::size_t size = std::exchange(bytes_, {}).size();
  if (!io.ok())
    return broken("A record of ", size, " bytes cannot be read: is the coordinator another build?");
  return std::optional(std::move(record));
}

void Standbys::choose(const RosterBody& roster, std::function<Record()> state) {
  state_ = std::move(state);
  roster_ = &roster;
  std::size_t chosen = 0;
  for (const Rank rank : successors(roster)) {
    if (rank == process_.options.rank || gone_.contains(rank) || process_.is_gone(rank)) continue;
    if (++chosen > kMost) return;
    if (!standbys_.try_emplace(rank).second) continue;
    peers_[rank].dial(process_.address_of(rank), process_.options.connect);
  }
}

// Begins with the state as it is now; after a broken connection the channel sends what is missing.
void Standbys::up(Peer& peer, bool again) {
  const auto found = standbys_.find(peer.rank());
  if (again || found == standbys_.end()) return;
  send(peer.rank(), state_());
  found->second.state = peer.channel().sent();
}

void Standbys::add(const Record& record) {
  for (const auto& [rank, standby] : standbys_)
    if (standby.state > 0) send(rank, record);
}

void Standbys::when_kept(std::function<void()> then) {
  Held held{.needs = {}, .then = std::move(then)};
  for (const auto& [rank, standby] : standbys_)
    if (standby.attached) held.needs[rank] = peers_[rank].channel().sent();
  held_.push_back(std::move(held));
  release();
}

// Counts a standby from now on, once it has its state: it got all records since, in order.
void Standbys::counted(Peer& peer) {
  const auto found = standbys_.find(peer.rank());
  if (found == standbys_.end()) return;
  Standby& standby = found->second;
  if (!standby.attached && standby.state > 0 && peer.channel().counted() >= standby.state) {
    standby.attached = true;
    send(peer.rank(), {.kind = RecordKind::kAttached});
    changed_();
  }
  release();
}

void Standbys::let_go(Rank rank) {
  gone_.insert(rank);
  if (standbys_.erase(rank) == 0) return;
  peers_[rank].close(true);
  release();
  if (!any()) changed_();
}

// A worker that was never reached trains on, and another is the standby.
void Standbys::lost(Peer& peer, const Error& error) {
  const Rank rank = peer.rank();
  const auto found = standbys_.find(rank);
  const bool was_up = found == standbys_.end() || found->second.state > 0;
  let_go(rank);
  if (was_up || roster_->processes[rank].server >= 0) return lost_(rank, error);
  LOG(INFO) << process_.name_of(rank) << " cannot take the coordinator's place, as it is not "
            << "reached: " << error.message;
  choose(*roster_, state_);
}

void Standbys::release() {
  const auto is_kept = [this](const auto& need) {
    return !standbys_.contains(need.first) || peers_[need.first].channel().counted() >= need.second;
  };
  while (!held_.empty() && std::ranges::all_of(held_.front().needs, is_kept)) {
    const std::function<void()> then = std::move(held_.front().then);
    held_.pop_front();
    then();
  }
}

}  // namespace shoal::table
