// Runs the shard of this process: hands it the messages of workers, which are in other processes
// (peers) or in this one, and sends its answers.
#pragma once

#include "shoal/table/link/coordinator_client.h"
#include "shoal/table/shard.h"

namespace shoal::table {

class ShardHost final : public PeerOwner {
 public:
  ShardHost(ProcessState& process, IoThreads& threads, CoordinatorClient& coordinator);

  // On any thread:
  Peers& peers() { return peers_; }      // workers
  Peers& leaders() { return leaders_; }  // servers whose rows are copied here
  // Starts with this roster, which has the ranks of workers; `own` gets, on the shard's strand, the
  // messages for this process's worker. Called once.
  void start(const RosterBody& roster, std::function<void(std::vector<Message>)> own);
  // Takes messages of this process's worker, with their numbers where they are, and of the
  // coordinator.
  void hear(std::vector<Message> messages);
  // Takes messages and handles them before this returns if nothing else is on the shard's strand.
  // The caller's threads share the work on long rows.
  void hear_now(std::vector<Message> messages, const ParallelFor& parallel_for);
  // Notes that the process of this rank has left, or is counted out: the shard neither waits for it
  // nor hears it, and takes over its rows if they are copied here.
  void let_go(Rank rank);
  // Drops what this process's worker has pushed and is not merged: its memory is about to go. False
  // if the shard's strand does not answer.
  bool forget_pushes(int worker) {
    return strand_.call([this, worker] {
      if (shard_) shard_->forget_pushes(worker);
    });
  }
  // Stops the shard for good, so that it no longer looks at this worker's numbers; false if its
  // strand does not answer.
  bool stop() {
    return strand_.call([this] { stopped_ = true; });
  }
  // Dials the server that has copies of these rows, if there is one, when its address is known.
  void dial_copy() {
    strand_.post([this] { dial_copy_now(); });
  }
  void close(bool with_bye) {
    for (const Peers* peers : {&peers_, &followers_, &leaders_}) peers->close(with_bye);
  }
  // Returns counts of reads by how far ahead the reader was. A call makes the shard publish new
  // counts with its next message, and returns those that it published last.
  Staleness reads() {
    asked_ = true;
    MutexLock lock(process_.mutex);
    return reads_;
  }

 private:
  std::span<std::byte> place(Message& message, std::size_t bytes) override;
  bool keeps(const Message& message) override {
    return std::holds_alternative<Push>(message) || std::holds_alternative<Update>(message);
  }
  Status received(Peer& peer, Message&& message) override;
  // Sends all answers that one event released, to one peer, together.
  void paused() override {
    for (Peer* const peer : fed_) peer->wake();
    fed_.clear();
  }
  void lost(Peer& peer, const Error& error) override {
    coordinator_.report_lost(peer.rank(), peer.heard_clock(), error);
  }
  void up(Peer& peer, bool again) override;
  void handle(Rank rank, const Message& message);
  Status hear_server(const Message& message);
  void count_out(Rank rank);
  void dial_copy_now();
  void handle_all(const std::vector<Message>& messages) {
    for (const Message& message : messages) handle(process_.options.rank, message);
    paused();
  }
  // Returns the worker of a rank; -1 if it is none.
  int worker_of(Rank rank) const {
    const auto found = std::ranges::find(rank_of_, rank);
    return found == rank_of_.end() ? -1 : static_cast<int>(found - rank_of_.begin());
  }
  int sender_of(Rank rank, const Message& message) const;
  void take_number(const Plan& plan);
  void take_ranks(const Plan& plan);
  void dispatch(Outbox& out);
  void feed(Peer& peer, Message message) {
    peer.queue(urgency_of(message), std::move(message));
    if (fed_.empty() || fed_.back() != &peer) fed_.push_back(&peer);
  }
  Urgency urgency_of(const Message& message) const;

  ProcessState& process_;
  CoordinatorClient& coordinator_;
  const Strand strand_;
  // On the strand:
  std::unique_ptr<Shard> shard_;
  std::function<void(std::vector<Message>)> own_;
  std::vector<Rank> rank_of_;    // by worker
  std::vector<Rank> server_of_;  // ranks, by server
  Rank copy_ = kNoRank;          // with copies of these rows
  // Messages of ranks that knew the roster before this process did.
  std::vector<std::pair<Rank, Message>> early_;
  std::set<Rank> gone_;
  std::vector<Peer*> fed_;  // to wake, some perhaps twice
  bool stopped_ = false;

  std::atomic<bool> asked_{false};  // for new counts
  Staleness reads_ GUARDED_BY(process_.mutex){};

  Peers peers_, followers_, leaders_;
};

}  // namespace shoal::table
