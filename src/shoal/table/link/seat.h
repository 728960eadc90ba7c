// The place of another process at this one: the connection that it opened, and perhaps opens again.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "shoal/table/link/job.h"

namespace shoal::table {

class Seat;

// What a seat tells its owner: place() on the link's strand, the rest on the seat's own.
class SeatOwner {
 public:
  virtual ~SeatOwner() = default;
  virtual std::span<std::byte> place(Seat& seat, Message& message, std::size_t bytes) = 0;
  virtual void opened(Seat& seat, const std::shared_ptr<Link>& link) = 0;
  virtual void received(Seat& seat, Message&& message) = 0;
  // as in LinkOwner, of some seat; also after opened() and closed()
  virtual void paused() {}
  virtual void closed(Seat& seat) { (void)seat; }  // it may come back
  // It did not come back in time, and the job is not over: `error` says why, without naming the
  // peer.
  virtual void lost(Seat& seat, const Error& error) = 0;
};

class Seat final : public LinkOwner {
 public:
  Seat(Job& job, const Strand& home, Purpose purpose, std::uint32_t rank, SeatOwner& owner);

  std::uint32_t rank() const { return rank_; }
  // The process has connected; an earlier connection is at its end. On any thread, as all that
  // follows.
  void take(std::shared_ptr<Link> link);
  // Goes out when the link has room after wake(), what has the smallest priority first. Forgotten
  // when the link breaks: the other side will ask again.
  void add(std::uint32_t priority, Message message);
  void wake();
  void close(bool with_bye);  // the owner hears nothing more
  Clock heard_clock() const;

 private:
  std::span<std::byte> place(Link& link, Message& message, std::size_t bytes) override;
  Status received(Link& link, Message&& message) override;
  void paused(Link& link) override;
  std::optional<Message> next(Link& link) override;
  void silent(Link& link, std::chrono::milliseconds since) override;
  void closed(Link& link, Status error) override;
  void ended(const Link* link, const Status& error);
  void lose(std::uint64_t generation, const Error& error);

  Job& job_;
  const Strand home_;
  const Purpose purpose_;
  const std::uint32_t rank_;
  SeatOwner& owner_;

  // On the home strand:
  const Link* current_ = nullptr;
  std::uint64_t generation_ = 0;  // of links
  bool ended_ = false;

  mutable Mutex mutex_;
  std::shared_ptr<Link> link_ GUARDED_BY(mutex_);
  std::map<std::uint32_t, std::deque<Message>> waiting_ GUARDED_BY(mutex_);
  Clock heard_ GUARDED_BY(mutex_) = -1;
};

// The seats of all other processes, those that join later included. On any thread.
class Seats {
 public:
  Seats(Job& job, const Strand& home, Purpose purpose, SeatOwner& owner)
      : job_(job), home_(home), purpose_(purpose), owner_(owner) {}
  // Made when it is first asked for; it stays as long as this.
  Seat& operator[](std::uint32_t rank);
  std::vector<Seat*> all() const;  // that were asked for
  void close(bool with_bye) const;

 private:
  Job& job_;
  const Strand home_;
  const Purpose purpose_;
  SeatOwner& owner_;
  mutable Mutex mutex_;
  std::map<std::uint32_t, std::unique_ptr<Seat>> seats_ GUARDED_BY(mutex_);
};

}  // namespace shoal::table
