#include "shoal/table/link/seat.h"

#include <utility>

#include "shoal/table/link/line.h"

namespace shoal::table {

Seat::Seat(Job& job, const Strand& home, Purpose purpose, std::uint32_t rank, SeatOwner& owner)
    : job_(job), home_(home), purpose_(purpose), rank_(rank), owner_(owner) {}

void Seat::take(std::shared_ptr<Link> link) {
  std::shared_ptr<Link> before;
  {
    MutexLock lock(mutex_);
    before = std::exchange(link_, link);
    waiting_.clear();
  }
  if (before) {
    before->close(false);
    job_.closed(*before);
  }
  job_.opened(link);
  home_.post([this, link] {
    if (ended_) return;
    current_ = link.get();
    ++generation_;
    owner_.opened(*this, link);
    owner_.paused();
  });
}

void Seat::add(std::uint32_t priority, Message message) {
  MutexLock lock(mutex_);
  if (link_) waiting_[priority].push_back(std::move(message));
}

void Seat::wake() {
  std::shared_ptr<Link> link;
  {
    MutexLock lock(mutex_);
    if (!waiting_.empty()) link = link_;
  }
  if (link) link->wake();
}

void Seat::close(bool with_bye) {
  std::shared_ptr<Link> link;
  {
    MutexLock lock(mutex_);
    link = std::exchange(link_, nullptr);
    waiting_.clear();
    if (link) heard_ = link->heard_clock();
  }
  if (link) {
    link->close(with_bye);
    job_.closed(*link);
  }
  home_.post([this] { ended_ = true; });
}

Clock Seat::heard_clock() const {
  MutexLock lock(mutex_);
  return link_ ? link_->heard_clock() : heard_;
}

std::span<std::byte> Seat::place(Link&, Message& message, std::size_t bytes) {
  return owner_.place(*this, message, bytes);
}

Status Seat::received(Link& link, Message&& message) {
  home_.run([this, from = &link, message = std::move(message)]() mutable {
    if (!ended_ && from == current_) owner_.received(*this, std::move(message));
  });
  return {};
}

void Seat::paused(Link&) {
  home_.run([this] { owner_.paused(); });
}

std::optional<Message> Seat::next(Link& link) {
  MutexLock lock(mutex_);
  if (&link != link_.get() || waiting_.empty()) return std::nullopt;
  const auto first = waiting_.begin();
  std::optional<Message> message = std::move(first->second.front());
  first->second.pop_front();
  if (first->second.empty()) waiting_.erase(first);
  return message;
}

void Seat::silent(Link& link, std::chrono::milliseconds since) {
  warn_silent(job_, rank_, link.heard_clock(), purpose_, since);
}

void Seat::closed(Link& link, Status error) {
  {
    MutexLock lock(mutex_);
    if (&link == link_.get()) {
      heard_ = link.heard_clock();
      link_.reset();
      waiting_.clear();
    }
  }
  job_.closed(link);
  home_.post([this, from = &link, error] { ended(from, error); });
}

void Seat::ended(const Link* link, const Status& error) {
  if (ended_ || link != current_) return;
  current_ = nullptr;
  owner_.closed(*this);
  owner_.paused();
  if (job_.over()) return;
  const std::uint64_t generation = generation_;
  const Error why =
      error.ok() ? Error{Code::kPeer, "it left before the job was done"} : error.error();
  if (why.code == Code::kTimeout) return lose(generation, why);
  home_.after(job_.options.reconnect, [this, generation, why] { lose(generation, why); });
}

void Seat::lose(std::uint64_t generation, const Error& error) {
  if (ended_ || generation != generation_ || current_ || job_.over()) return;
  ended_ = true;
  if (job_.is_gone(rank_)) return;
  owner_.lost(*this, error);
}

Seat& Seats::operator[](std::uint32_t rank) {
  MutexLock lock(mutex_);
  std::unique_ptr<Seat>& seat = seats_[rank];
  if (!seat) seat = std::make_unique<Seat>(job_, home_, purpose_, rank, owner_);
  return *seat;
}

std::vector<Seat*> Seats::all() const {
  MutexLock lock(mutex_);
  std::vector<Seat*> all;
  for (const auto& [rank, seat] : seats_) all.push_back(seat.get());
  return all;
}

void Seats::close(bool with_bye) const {
  for (Seat* const seat : all()) seat->close(with_bye);
}

}  // namespace shoal::table
