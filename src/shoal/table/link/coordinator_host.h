// Drives the Coordinator in process 0: between it and the clients of the other processes, which are
// peers, and process 0's own client.
#pragma once

#include "shoal/table/coordinator.h"
#include "shoal/table/link/peer.h"

namespace shoal::table {

class CoordinatorHost final : public PeerOwner, private LinkOwner {
 public:
  // `own` gets, on the host's strand, the messages for process 0 itself.
  CoordinatorHost(ProcessState& process, IoThreads& threads, std::function<void(Message)> own);

  // On any thread:
  Peers& peers() { return peers_; }
  bool knows(Rank rank) const { return rank < ranks_; }
  // Owns the links of processes that have no rank yet and ask for one.
  LinkOwner* enrollment() { return this; }
  // Takes a message of process 0 itself.
  void hear(Rank rank, Message message) {
    strand_.post(
        [this, rank, message = std::move(message)]() mutable { handle(rank, std::move(message)); });
  }
  std::vector<Rank> missing() const {  // ranks that have not joined
    MutexLock lock(process_.mutex);
    return missing_;
  }
  // Notes that the process of this rank is counted out: nothing more is said to it.
  void let_go(Rank rank) {
    strand_.post([this, rank] { peers_[rank].close(true); });
  }
  void flush() const {  // returns when all that was heard is handled
    (void)strand_.call([] {});
  }
  void close(bool with_bye);

 private:
  // Functions of PeerOwner:
  Status received(Peer& peer, Message&& message) override {
    handle(peer.rank(), std::move(message));
    return {};
  }
  void up(Peer& peer, bool) override {
    if (const std::shared_ptr<Link> link = peer.link())
      hosts_[peer.rank()] = split_address(link->peer().address).host;
  }
  void paused() override;
  void lost(Peer& peer, const Error& error) override {
    lose(peer.rank(), error.code, error.message);
  }
  // Functions of the owner of links to processes without a rank:
  void opened(std::shared_ptr<Link> link) override;
  Status received(Link& link, Message&& message) override;
  void closed(Link& link, Status) override {
    strand_.post([this, known = &link] { enrolling_.erase(known); });
  }

  void handle(Rank rank, Message message);
  bool waits_until_reached(Rank rank, Message& message);
  void lose(Rank rank, Code code, const std::string& why);
  void hear_clocks();
  void tell_too(Rank lost, Rank reporter, std::vector<Dispatch>& out) const;
  void dispatch(std::vector<Dispatch>& out);
  void watch();

  ProcessState& process_;
  const Strand strand_;
  const std::function<void(Message)> own_;
  // On the strand:
  Coordinator coordinator_;
  std::map<Rank, std::string> hosts_;  // that connections come from, by rank
  std::map<const Link*, std::shared_ptr<Link>> enrolling_;
  std::map<Clock, Rank> enrolled_;  // by incarnation
  std::map<Rank, bool> reached_;    // servers that join late and were dialled, by rank
  std::string waited_for_;

  Peers peers_;
  std::atomic<std::uint32_t> ranks_;  // how many there are
  std::vector<Rank> missing_ GUARDED_BY(process_.mutex);
};

}  // namespace shoal::table
