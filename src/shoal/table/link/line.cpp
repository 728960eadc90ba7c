#include "shoal/table/link/line.h"

#include <algorithm>

#include "shoal/base/log.h"

namespace shoal::table {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{10}, kLongestPause{500};
constexpr int kMostShortLives = 5;

}  // namespace

void warn_silent(const Job& job, std::uint32_t rank, Clock clock, Purpose purpose,
                 milliseconds since) {
  const double seconds = std::chrono::duration<double>(since).count();
  const double limit = std::chrono::duration<double>(job.options.stall_abort).count();
  LOG(WARNING) << job.name_of(rank, clock) << " has not been heard of for " << seconds
               << " s on its connection for "
               << (purpose == Purpose::kRows ? "rows" : "coordination") << "; after " << limit
               << " s it is given up";
}

Line::Line(Job& job, const Strand& strand, Purpose purpose, std::uint32_t rank, LineOwner& owner)
    : job_(job), strand_(strand), purpose_(purpose), rank_(rank), owner_(owner) {}

void Line::open(const std::string& address, milliseconds within) {
  address_ = address;
  deadline_ = std::chrono::steady_clock::now() + within;
  pause_ = kFirstPause;
  attempt();
}

void Line::close(bool with_bye) {
  ended_ = true;
  if (!link_) return;
  heard_ = link_->heard_clock();
  link_->close(with_bye);
  job_.closed(*link_);
  link_.reset();
}

milliseconds Line::left() const {
  return std::chrono::duration_cast<milliseconds>(deadline_ - std::chrono::steady_clock::now());
}

void Line::attempt() {
  if (ended_ || link_) return;
  LinkOptions options = job_.link_options();
  options.connect = std::clamp(left(), milliseconds(1), options.connect);
  connect(strand_, address_, purpose_, job_.self, options, *this,
          [this](Result<std::shared_ptr<Link>> result) { attempted(std::move(result)); });
}

void Line::attempted(Result<std::shared_ptr<Link>> result) {
  if (result.ok()) {
    const std::shared_ptr<Link> link = std::move(result).value();
    if (ended_) return link->close(false);
    const PeerName& peer = link->peer();
    if (peer.rank != rank_) {
      link->close(false);
      return lose({Code::kPeer,
                   str("at ", address_, " is rank ", peer.rank, " of the job, not rank ", rank_)});
    }
    link_ = link;
    job_.opened(link);
    broken_.reset();
    up_since_ = std::chrono::steady_clock::now();
    owner_.up(*this, was_up_);
    was_up_ = true;
    return;
  }
  if (ended_ || (job_.over() && was_up_)) return;
  trouble_ = result.error().message;
  if (!worth_another_try(result.error())) return lose(result.error());
  if (left() <= pause_)
    return lose(broken_ ? Error{broken_->code,
                                str(broken_->message, " It was not back in time: ", trouble_)}
                        : result.error());
  owner_.down(*this);
  strand_.after(pause_, [this] { attempt(); });
  pause_ = std::min(2 * pause_, kLongestPause);
}

void Line::lose(const Error& error) {
  if (ended_) return;
  ended_ = true;
  if (!job_.over() && !job_.is_gone(rank_)) owner_.lost(*this, error);
}

std::span<std::byte> Line::place(Link& link, Message& message, std::size_t bytes) {
  return &link == link_.get() ? owner_.place(*this, message, bytes) : std::span<std::byte>();
}

Status Line::received(Link& link, Message&& message) {
  return &link == link_.get() ? owner_.received(*this, std::move(message)) : Status();
}

std::optional<Message> Line::next(Link& link) {
  return &link == link_.get() ? owner_.next(*this) : std::nullopt;
}

void Line::silent(Link& link, milliseconds since) {
  warn_silent(job_, rank_, link.heard_clock(), purpose_, since);
}

void Line::closed(Link& link, Status error) {
  if (&link != link_.get() || ended_) return;
  heard_ = link.heard_clock();
  job_.closed(link);
  link_.reset();
  if (job_.over()) return;
  owner_.down(*this);
  // it left in order; whoever made it leave has told the coordinator, or else:
  if (error.ok()) {
    return strand_.after(job_.options.reconnect, [this] {
      lose({Code::kPeer, "it left before the job was done"});
    });
  }
  broken_ = error.error();
  short_lives_ =
      std::chrono::steady_clock::now() - up_since_ < job_.options.reconnect ? short_lives_ + 1 : 0;
  if (error.error().code == Code::kTimeout || short_lives_ > kMostShortLives) return lose(*broken_);
  LOG(WARNING) << "the connection with " << job_.name_of(rank_, heard_)
               << " broke, and is tried again: " << broken_->message;
  open(address_, job_.options.reconnect);
}

}  // namespace shoal::table
