#include "shoal/table/link/peer.h"

#include <algorithm>

#include "shoal/base/log.h"

namespace shoal::table {
namespace {

constexpr milliseconds kFirstPause{10}, kLongestPause{500};
// The first attempt to be back after a link broke; each of the next may take twice as long.
constexpr milliseconds kFirstAttempt{250};
// An attempt while a link is silent, and the pause after one that failed.
constexpr milliseconds kProbe{500};
constexpr milliseconds kShortLife{800};
constexpr int kMostShortLives = 5;

}  // namespace

Peer::Peer(ProcessState& process, const Strand& home, Purpose purpose, Rank rank, PeerOwner& owner)
    : process_(process), home_(home), purpose_(purpose), rank_(rank), owner_(owner) {
  const bool is_sure = purpose == Purpose::kCoordination || purpose == Purpose::kStandby;
  if (is_sure && process.self.rank != kNoRank) channel_.emplace();
}

// ---- a link ----

void Peer::opened(std::shared_ptr<Link> link) {
  const std::shared_ptr<Link> before = drop(nullptr);
  if (before) before->close(false);
  {
    MutexLock lock(mutex_);
    link_ = link;
  }
  home_.post([this, link] { use(link); });
}

// Takes a link that was dialled, in place of an earlier one.
void Peer::take(std::shared_ptr<Link> link) {
  if (const std::shared_ptr<Link> before = drop(nullptr)) before->close(false);
  {
    MutexLock lock(mutex_);
    link_ = link;
  }
  use(std::move(link));
}

void Peer::use(std::shared_ptr<Link> link) {
  if (ended_) return;
  current_ = link.get();
  broken_.reset();
  up_since_ = now();
  if (channel_) channel_->opened(link);
  owner_.up(*this, links_++ > 0);
  owner_.paused();
}

// Forgets the link, if it is this one (null: any), with what waits for it.
std::shared_ptr<Link> Peer::drop(const Link* link) {
  MutexLock lock(mutex_);
  if (!link_ || (link && link != link_.get())) return nullptr;
  heard_ = link_->heard_clock();
  queues_.clear();
  queued_ = 0;
  return std::exchange(link_, nullptr);
}

void Peer::close(bool with_bye) {
  if (const std::shared_ptr<Link> link = drop(nullptr)) link->close(with_bye);
  home_.run([this] {
    ended_ = true;
    current_ = nullptr;
  });
}

std::optional<Message> Peer::next(Link& link) {
  {
    MutexLock lock(mutex_);
    if (&link != link_.get()) return std::nullopt;
    if (const auto first = queues_.begin(); first != queues_.end()) {
      std::optional<Message> message = std::move(first->second.front());
      first->second.pop_front();
      --queued_;
      if (first->second.empty()) queues_.erase(first);
      return message;
    }
  }
  return owner_.next(*this);
}

Status Peer::received(Link& link, Message&& message) {
  if (home_.here()) return hear(&link, std::move(message));
  home_.run([this, from = &link, message = std::move(message)]() mutable {
    (void)hear(from, std::move(message));
  });
  return {};
}

Status Peer::hear(const Link* from, Message&& message) {
  if (ended_ || from != current_) return {};
  const Result<bool> is_message = channel_ ? channel_->received(message) : true;
  if (is_message.ok() && !is_message.value()) {
    owner_.counted(*this);
    return {};
  }
  Status status =
      is_message.ok() ? owner_.received(*this, std::move(message)) : Status(is_message.error());
  if (!status.ok())
    lose(status.error());
  else if (channel_ && owner_.counts_at_once(*this))
    channel_->count(channel_->received());
  return status;
}

void Peer::silent(Link& link, milliseconds since) {
  home_.post([this, silent = &link] {
    if (current_ != silent) return;
    silent_at_ = now();
    if (!address_.empty()) probe(links_);
  });
  process_.heard(rank_, link.heard_clock());
  if (!process_.silence_is_news(rank_)) return;
  LOG(WARNING) << process_.name_of(rank_, link.heard_clock()) << " has been silent for "
               << to_seconds(since) << " s on its connection for "
               << (purpose_ == Purpose::kRows ? "rows" : "coordination") << "; after "
               << to_seconds(process_.options.stall_abort) << " s it counts as lost";
}

// Tries another connection while the last link is silent. If the network was away, TCP would wait
// ever longer before it tries the old one again.
void Peer::probe(std::uint64_t links) {
  if (ended_ || !current_ || links_ != links) return;
  connect_once(kProbe, [this, links](Result<std::shared_ptr<Link>> result) {
    if (!current_) return attempted(std::move(result));  // the link has ended meanwhile
    const bool is_new = result.ok() && result.value()->peer().rank == rank_ && !ended_;
    if (is_new) {
      LOG(WARNING) << "the connection with " << process_.name_of(rank_, heard_clock())
                   << " is silent; a new connection replaces it";
      take(std::move(result).value());
    } else if (result.ok()) {
      result.value()->close(false);
    } else {
      home_.after(kProbe, [this, links] { probe(links); });
    }
  });
}

// ---- after a link ----

void Peer::closed(Link& link, Status error) {
  // While it is held no other link has its address.
  home_.run([this, from = &link, held = drop(&link), error] { ended(from, error); });
}

void Peer::ended(const Link* link, const Status& error) {
  if (ended_ || link != current_) return;
  current_ = nullptr;
  if (channel_) channel_->closed();
  owner_.paused();
  if (process_.over()) return;
  // A process that left in order is reported by the process that made it leave. If that is silent,
  // this process learns it a heartbeat or two later.
  const milliseconds soon = 2 * process_.link_options().heartbeat;
  // The server has its copies elsewhere now, or the coordinator its standby.
  if (error.ok() && (purpose_ == Purpose::kCopies || purpose_ == Purpose::kStandby)) return;
  const bool coordinates = purpose_ == Purpose::kCoordination && !address_.empty();
  if (error.ok() && coordinates) return lose(broken(kLeftEarly));
  if (error.ok()) return expect_again(broken(kLeftEarly), soon);
  if (error.error().code == Code::kTimeout) return lose(error.error());
  if (address_.empty())
    expect_again(error.error(), {});
  else
    redial(error.error());
}

// Asks the host meanwhile whether the process is there: if it refuses, there is nothing to wait
// for.
void Peer::expect_again(const Error& why, milliseconds longer) {
  if (longer == milliseconds() && process_.was_reached(rank_))
    reach(home_, process_.address_of(rank_), process_.options.reconnect,
          [this, links = links_, why](const Status& status) {
            if (links == links_ && !status.ok() && nobody_listens(status.error()))
              lose({why.code, str(why.message, ' ', status.error().message)});
          });
  home_.after(process_.options.reconnect + longer, [this, links = links_, why] {
    if (ended_ || links != links_) return;
    // A process that has removed this one says so to whom connects again.
    address_.empty() ? lose(why) : redial(why);
  });
}

void Peer::redial(const Error& why) {
  broken_ = why;
  const bool short_life = now() - up_since_ < kShortLife;
  short_lives_ = short_life ? short_lives_ + 1 : 0;
  if (short_lives_ > kMostShortLives) return lose(why);
  LOG(WARNING) << "the connection with " << process_.name_of(rank_, heard_clock())
               << " broke; connecting again: " << why.message;
  attempt_ = kFirstAttempt;
  dial(address_, process_.options.reconnect);
}

// Returns why the link is not back, after why it broke.
Error Peer::is_gone(const std::string& trouble) const {
  return {broken_->code, str(broken_->message, " It was not restored in time: ", trouble)};
}

void Peer::lose(const Error& error) {
  if (std::exchange(ended_, true)) return;
  // One that leaves in order while it coordinates is to be followed.
  const bool coordinates = purpose_ == Purpose::kCoordination && !address_.empty();
  if (!process_.over() && (coordinates || !process_.is_gone(rank_))) owner_.lost(*this, error);
}

// ---- dialling ----

void Peer::dial(const std::string& address, milliseconds within) {
  if (address != address_) is_dialling_ = false, ++dials_;  // what is under way goes elsewhere
  address_ = address;
  ended_ = false;  // it may have been closed before, and is needed again
  deadline_ = now() + within;
  pause_ = kFirstPause;
  attempt();
}

void Peer::redirect(Rank rank, const std::string& address, milliseconds within, const Error& why) {
  if (const std::shared_ptr<Link> link = drop(nullptr)) link->close(false);
  if (channel_) channel_->closed();
  current_ = nullptr;
  rank_ = rank;
  broken_ = why;
  attempt_ = kFirstAttempt;
  short_lives_ = 0;
  dial(address, within);
}

// Connects, if nothing else does: of two links the peer would close the first.
void Peer::connect_once(milliseconds within,
                        std::function<void(Result<std::shared_ptr<Link>>)> then) {
  if (is_dialling_) return;
  is_dialling_ = true;
  LinkOptions options = process_.link_options();
  options.connect = std::min(options.connect, within);
  connect(home_, address_, rank_, purpose_, process_.self, options, *this,
          [this, dials = dials_, then = std::move(then)](Result<std::shared_ptr<Link>> result) {
            if (dials == dials_) {
              is_dialling_ = false;
              then(std::move(result));
            } else if (result.ok()) {
              result.value()->close(false);
            }
          });
}

void Peer::attempt() {
  if (ended_ || current_) return;
  const milliseconds within =
      std::clamp(left(), milliseconds(1), broken_ ? attempt_ : process_.options.connect);
  attempt_ *= 2;
  connect_once(within,
               [this](Result<std::shared_ptr<Link>> result) { attempted(std::move(result)); });
}

void Peer::attempted(Result<std::shared_ptr<Link>> result) {
  if (result.ok()) {
    const std::shared_ptr<Link> link = std::move(result).value();
    const Rank found = link->peer().rank;
    if (rank_ == kNoRank) rank_ = found;
    if (ended_ || found != rank_) link->close(false);
    if (found != rank_)
      return lose(broken("at ", address_, " is rank ", found, " of the job, not rank ", rank_));
    return ended_ ? void() : take(link);
  }
  if (ended_ || (process_.over() && links_ > 0)) return;
  trouble_ = result.error().message;
  if (!worth_another_try(result.error())) return lose(result.error());
  if (broken_ && nobody_listens(result.error())) return lose(is_gone(trouble_));
  if (left() <= pause_) return lose(broken_ ? is_gone(trouble_) : result.error());
  owner_.paused();
  home_.after(pause_, [this] { attempt(); });
  pause_ = std::min(2 * pause_, kLongestPause);
}

Peer& Peers::operator[](Rank rank) {
  MutexLock lock(mutex_);
  std::unique_ptr<Peer>& peer = peers_[rank];
  if (!peer) peer = std::make_unique<Peer>(process_, home_, purpose_, rank, owner_);
  return *peer;
}

}  // namespace shoal::table
