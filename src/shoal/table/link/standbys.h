// Keeps standbys of the coordinator up to date. A standby gets a record of each event; one standby
// takes the coordinator's place when it is lost. The coordinator tells no process what follows from
// an event before all standbys have its record. Used on the strand of the coordinator's host.
#pragma once

#include "shoal/table/coordinator/record.h"
#include "shoal/table/link/peer.h"

namespace shoal::table {

// The ranks of the processes that may take the coordinator's place, in the order in which they are
// asked to: the servers of the roster, which others can reach, then the other workers. A
// coordinator's standbys are the first of them that it reaches.
std::vector<Rank> successors(const RosterBody& roster);

// The records go in pieces, so that a long one does not hold up heartbeats.
class RecordPieces {
 public:
  static constexpr std::size_t kBytes = 256u << 10;
  static std::vector<Ask> of(Record record);
  // Takes a piece. Returns the record when it is whole.
  Result<std::optional<Record>> take(const Ask& piece);

 private:
  std::string bytes_;
};

class Standbys final : public PeerOwner {
 public:
  static constexpr std::size_t kMost = 2;

  // `lost(rank, error)`: the connection with a standby is lost. `changed()`: any() has.
  Standbys(ProcessState& process, const Strand& strand,
           std::function<void(Rank, const Error&)> lost, std::function<void()> changed)
      : process_(process),
        lost_(std::move(lost)),
        changed_(std::move(changed)),
        peers_(process, strand, Purpose::kStandby, *this) {}

  // Dials the standbys of the roster that are not here yet. `state` makes the record of all that
  // came before.
  void choose(const RosterBody& roster, std::function<Record()> state);
  // Sends a record to all standbys.
  void add(const Record& record);
  // Calls `then` when all standbys have the records so far: at once if there are none.
  void when_kept(std::function<void()> then);
  // Waits no longer for this process.
  void let_go(Rank rank);
  bool idle() const { return held_.empty(); }
  // Returns whether a process could take the coordinator's place now.
  bool any() const {
    return std::ranges::any_of(standbys_, [](const auto& entry) { return entry.second.attached; });
  }
  void close(bool with_bye) { peers_.close(with_bye); }

 private:
  struct Standby {
    std::uint64_t state = 0;  // messages to it, its state included
    bool attached = false;    // it has that, and nothing is said before it has the rest
  };
  struct Held {
    std::map<Rank, std::uint64_t> needs;  // messages to count, by standby
    std::function<void()> then;
  };

  void send(Rank rank, const Record& record) {
    for (Ask& piece : RecordPieces::of(record)) peers_[rank].send_surely(std::move(piece));
  }
  void release();
  void up(Peer& peer, bool again) override;
  void counted(Peer& peer) override;
  Status received(Peer&, Message&& message) override {
    return broken("A ", name_of(message), " came from a standby.");
  }
  void lost(Peer& peer, const Error& error) override;

  ProcessState& process_;
  const std::function<void(Rank, const Error&)> lost_;
  const std::function<void()> changed_;
  std::function<Record()> state_;
  const RosterBody* roster_ = nullptr;  // the last; it stays as long as the process's state
  std::map<Rank, Standby> standbys_;
  std::set<Rank> gone_;
  std::deque<Held> held_;
  Peers peers_;
};

}  // namespace shoal::table
