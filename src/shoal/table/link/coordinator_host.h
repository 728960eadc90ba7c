// Drives a Coordinator: between it and the clients of the other processes, which are peers, and the
// client of its own process. Process 0's coordinates from the start. That of another server is a
// standby, and takes over when the coordinator's process is lost.
#pragma once

#include "shoal/table/coordinator.h"
#include "shoal/table/link/enrollment.h"
#include "shoal/table/link/joins.h"
#include "shoal/table/link/loss_check.h"
#include "shoal/table/link/standbys.h"

namespace shoal::table {

class CoordinatorHost final : public PeerOwner {
 public:
  // `own` gets, on the host's strand, the messages for process 0 itself.
  CoordinatorHost(ProcessState& process, IoThreads& threads, std::function<void(Message)> own);

  // On any thread:
  Peers& peers() { return peers_; }
  Peers& leaders() { return leaders_; }  // coordinators of which this is a standby
  bool coordinates() const { return coordinates_; }
  // Returns whether it has all that it needs to take over.
  bool may_succeed() const { return is_attached_; }
  bool knows(Rank rank) const { return rank < ranks_; }
  LinkOwner* enrollment() { return &enrollment_; }
  // Takes a message of process 0 itself.
  void hear(Rank rank, Message message) {
    strand_.post(
        [this, rank, message = std::move(message)]() mutable { handle(rank, std::move(message)); });
  }
  // Takes over from the coordinator in process `rank`, which is lost for the reason `why`: at once
  // if that is proof of its end, else when more than half of the processes have come here.
  void succeed(Rank rank, const Error& why, bool is_proof) {
    strand_.post([this, rank, why, is_proof] { stand(rank, why, is_proof); });
  }
  // Chooses standbys of the new roster.
  void regrouped() {
    strand_.post([this] { choose_standbys(); });
  }
  std::vector<Rank> missing() const {  // ranks that have not joined
    MutexLock lock(process_.mutex);
    return missing_;
  }
  // Notes that the process of this rank has left, or, if `is_lost`, is counted out: nothing more is
  // said to it.
  void let_go(Rank rank, bool is_lost) {
    strand_.post([this, rank, is_lost] {
      if (is_lost) peers_[rank].close(true);
      standbys_.let_go(rank);
      paused();
    });
  }
  void flush() const {  // returns when all that was heard is handled
    (void)strand_.call([] {});
  }
  void close(bool with_bye);

 private:
  // The coordinator that is to be followed, while others may still find it.
  struct Lost {
    Rank rank;
    Error why;
    bool is_proof;
  };

  // Messages that follow from an event, and are sent once the standbys know of that.
  struct Held {
    Rank from = kNoRank;  // its messages count as received; kNoRank: none do
    std::uint64_t received = 0;
    std::vector<Dispatch> out;
  };

  // Functions of PeerOwner:
  Status received(Peer& peer, Message&& message) override;
  bool counts_at_once(const Peer& peer) const override {
    return peer.purpose() != Purpose::kCoordination;
  }
  void up(Peer& peer, bool again) override;
  void paused() override;
  void lost(Peer& peer, const Error& error) override {
    if (peer.purpose() == Purpose::kCoordination && coordinates_)
      lose(peer.rank(), error.code, error.message);
  }
  bool enroll(Clock incarnation, const PublicKey& key, const Enrollment::Reply& reply);

  void handle(Rank rank, Message message);
  void refuse(Rank rank, const std::string& why);
  void lose(Rank rank, Code code, const std::string& why);
  void lose_now(Rank rank, const Error& error);
  void hear_clocks();
  // Tells the standbys how far a process has come that may be about to be counted out.
  void record_clock(Rank rank) {
    if (const Clock clock = coordinator_->heard(rank); clock > 0)
      (void)happened(
          {.kind = RecordKind::kHeard, .rank = rank, .count = static_cast<std::uint64_t>(clock)});
  }
  void tell_too(Rank lost, Rank reporter, std::vector<Dispatch>& out) const;
  Status apply(const Record& record, const Message& message, std::vector<Dispatch>& out);
  Status happened(Record record, const Message& message = Bye());
  void say_held();
  // Returns whether the process's client is this one's, without a connection.
  bool is_own(Rank rank) const { return rank == 0 && process_.options.rank == 0; }
  void dispatch(const std::vector<Dispatch>& out);
  void watch();

  // ---- a standby ----
  Status record(Rank from, const Message& piece);
  Status follow(const Record& record);
  Status load(const Record& state);
  Record save();
  void stand(Rank rank, const Error& why, bool is_proof);
  void try_to_take_over();
  void take_over();
  void expect_all(milliseconds within);
  void choose_standbys();
  void note_standbys() {
    (void)happened({.kind = RecordKind::kStandbys,
                    .rank = process_.options.rank,
                    .count = standbys_.any() ? 1u : 0u});
  }
  std::unique_ptr<Coordinator> make() const;
  Instant time() const { return now() + ahead_; }

  ProcessState& process_;
  const Strand strand_;
  const std::function<void(Message)> own_;
  std::atomic<bool> coordinates_, is_attached_{false};
  // On the strand:
  std::unique_ptr<Coordinator> coordinator_;
  Instant ahead_{};                 // of this process's clock
  std::map<Clock, Rank> enrolled_;  // by incarnation
  std::string waited_for_;
  std::deque<Held> held_;
  // These are a standby's:
  std::map<Rank, RecordPieces> pieces_;  // by the coordinator that sends them
  Rank leader_ = kNoRank;
  std::optional<Lost> lost_;
  std::vector<std::pair<Rank, Message>> early_;  // from those that look for a coordinator here

  Peers peers_, leaders_;
  LossCheck losses_;
  Joins joins_;
  Enrollment enrollment_;
  Standbys standbys_;
  std::atomic<std::uint32_t> ranks_;  // how many there are
  std::vector<Rank> missing_ GUARDED_BY(process_.mutex);
};

}  // namespace shoal::table
