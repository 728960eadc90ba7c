// A connection with another process of the job that outlives its links: a peer that was dialled is
// dialled again when its link breaks, one that was accepted has a while to come back.
#pragma once

#include <deque>
#include <map>

#include "shoal/table/link/process_state.h"
#include "shoal/table/link/reliable_channel.h"

namespace shoal::table {

class Peer;

// The calls of a peer to its owner: place(), keeps() and next() on the link's strand, the rest on
// the peer's home strand. For a dialled peer these are the same.
class PeerOwner : public PayloadPlaces {
 public:
  // Returns a message as in LinkOwner; called when the queue is empty.
  virtual std::optional<Message> next(Peer&) { return std::nullopt; }
  // Handles a message. An error: the peer is lost with it. A dialled one gets it in a Refuse.
  virtual Status received(Peer& peer, Message&& message) = 0;
  // Called when some peer has given all that had come; also after up(), when its link is gone,
  // which may come back, and when it could not be dialled.
  virtual void paused() {}
  // Called when a link is there, for the first time or again.
  virtual void up(Peer&, bool /*again*/) {}
  // Called once, if the link did not come back in time and the job is not over. `error` says why
  // without naming the peer.
  virtual void lost(Peer& peer, const Error& error) = 0;
  // Returns whether received() is all that is to be done with a message that arrives surely before
  // the peer forgets it. If not, the owner calls channel().count() when it is done.
  virtual bool counts_at_once(const Peer&) const { return true; }
  // Called when the peer has counted messages that were surely sent to it.
  virtual void counted(Peer&) {}
};

// A peer. Functions may be called on any thread unless noted.
class Peer final : public LinkOwner {
 public:
  Peer(ProcessState& process, const Strand& home, Purpose purpose, Rank rank, PeerOwner& owner);

  // Returns its rank; kNoRank: any process may be at the address that is dialled first.
  Rank rank() const { return rank_; }
  Purpose purpose() const { return purpose_; }
  // Dials, again and ever more slowly, until `within` has passed. On the home strand.
  void dial(const std::string& address, milliseconds within);
  // Dials another process instead, with which the conversation goes on, after the first was lost
  // for the reason `why`. On the home strand.
  void redirect(Rank rank, const std::string& address, milliseconds within, const Error& why);
  // Takes a link of the process, which has connected; an earlier link is at its end.
  void opened(std::shared_ptr<Link> link) override;
  void close(bool with_bye);  // the owner hears nothing more

  // Sends at once. The message is lost if there is no link.
  void send(Message message) {
    if (const std::shared_ptr<Link> link = this->link()) link->send(std::move(message));
  }
  // Queues a message, which leaves when the link has room after wake(), the most urgent first. It
  // is lost when the link breaks: the other side asks again.
  void queue(Urgency urgency, Message message) {
    MutexLock lock(mutex_);
    if (!link_) return;
    queues_[urgency].push_back(std::move(message));
    ++queued_;
  }
  // Sends a message that arrives once and in order though links break, over connections for
  // coordination. On the home strand, as idle().
  void send_surely(Message message) { channel_->send(std::move(message)); }
  // Returns the conversation of such messages. On the home strand.
  ReliableChannel& channel() { return *channel_; }
  // Returns whether no such message is on its way to a peer that is connected.
  bool idle() const { return ended_ || !channel_ || channel_->idle(); }
  void wake() {
    if (const std::shared_ptr<Link> link = this->link()) link->wake();
  }
  // Returns null while the link is down.
  std::shared_ptr<Link> link() const {
    MutexLock lock(mutex_);
    return link_;
  }
  Clock heard_clock() const {
    MutexLock lock(mutex_);
    return link_ ? link_->heard_clock() : heard_;
  }
  // Returns whether nothing was heard for half of the limit, or was a moment ago. On the home
  // strand.
  bool was_silent() const {
    return silent_at_ && now() - *silent_at_ < process_.options.stall_abort;
  }
  // Returns why the last attempt to connect failed; "" if none has. On the home strand.
  const std::string& trouble() const { return trouble_; }

 private:
  std::span<std::byte> place(Message& message, std::size_t bytes) override {
    return owner_.place(message, bytes);
  }
  bool keeps(const Message& message) override { return owner_.keeps(message); }
  Status received(Link& link, Message&& message) override;
  void paused(Link&) override {
    home_.run([this] { owner_.paused(); });
  }
  std::optional<Message> next(Link& link) override;
  std::size_t waiting(Link&) override {
    MutexLock lock(mutex_);
    return queued_;
  }
  void silent(Link& link, milliseconds since) override;
  void closed(Link& link, Status error) override;
  void probe(std::uint64_t links);
  void connect_once(milliseconds within, std::function<void(Result<std::shared_ptr<Link>>)> then);
  void attempt();
  void attempted(Result<std::shared_ptr<Link>> result);
  void take(std::shared_ptr<Link> link);
  void use(std::shared_ptr<Link> link);
  Status hear(const Link* from, Message&& message);
  void ended(const Link* link, const Status& error);
  void redial(const Error& why);
  Error is_gone(const std::string& trouble) const;
  void expect_again(const Error& why, milliseconds longer);
  void lose(const Error& error);
  std::shared_ptr<Link> drop(const Link* link);
  milliseconds left() const { return std::chrono::duration_cast<milliseconds>(deadline_ - now()); }

  ProcessState& process_;
  const Strand home_;
  const Purpose purpose_;
  std::atomic<Rank> rank_;
  PeerOwner& owner_;

  // On the home strand:
  const Link* current_ = nullptr;
  std::uint64_t links_ = 0;  // so far
  bool ended_ = false;
  std::optional<ReliableChannel> channel_;  // if both ends coordinate
  // The address to dial; none: the other side dials. Then the trouble with dialling.
  std::string address_, trouble_;
  std::optional<Error> broken_;  // why the last link ended
  Instant deadline_{}, up_since_{};
  std::optional<Instant> silent_at_;
  milliseconds pause_{}, attempt_{};
  int short_lives_ = 0;  // links in a row that broke soon
  bool is_dialling_ = false;
  std::uint64_t dials_ = 0;  // addresses that were dialled

  mutable Mutex mutex_;
  std::shared_ptr<Link> link_ GUARDED_BY(mutex_);
  std::map<Urgency, std::deque<Message>> queues_ GUARDED_BY(mutex_);
  std::size_t queued_ GUARDED_BY(mutex_) = 0;  // messages in the queues
  Clock heard_ GUARDED_BY(mutex_) = -1;
};

// The peers for one purpose, by rank, those that join later included. On any thread.
class Peers {
 public:
  Peers(ProcessState& process, const Strand& home, Purpose purpose, PeerOwner& owner)
      : process_(process), home_(home), purpose_(purpose), owner_(owner) {}
  // Returns the peer, which is made at the first call and stays as long as this.
  Peer& operator[](Rank rank);
  // Returns the peers that were asked for.
  std::vector<Peer*> all() const {
    MutexLock lock(mutex_);
    std::vector<Peer*> all;
    for (const auto& [rank, peer] : peers_) all.push_back(peer.get());
    return all;
  }
  void close(bool with_bye) const {
    for (Peer* const peer : all()) peer->close(with_bye);
  }

 private:
  ProcessState& process_;
  const Strand home_;
  const Purpose purpose_;
  PeerOwner& owner_;
  mutable Mutex mutex_;
  std::map<Rank, std::unique_ptr<Peer>> peers_ GUARDED_BY(mutex_);
};

}  // namespace shoal::table
