// A connection that this process opens and keeps: it tries until somebody listens, and a connection
// that breaks is opened again.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "shoal/table/link/job.h"

namespace shoal::table {

class Line;

// What a line tells its owner, on the line's strand. The first three as in LinkOwner.
class LineOwner {
 public:
  virtual ~LineOwner() = default;
  virtual std::span<std::byte> place(Line& line, Message& message, std::size_t bytes) = 0;
  virtual Status received(Line& line, Message&& message) = 0;
  virtual std::optional<Message> next(Line& line) = 0;
  // The link is up, for the first time or `again`.
  virtual void up(Line& line, bool again) = 0;
  // there is none, and it is tried again
  virtual void down(Line& line) { (void)line; }
  // It is gone for good, and the job is not over: `error` says why, without naming the peer. Said
  // once.
  virtual void lost(Line& line, const Error& error) = 0;
};

class Line final : public LinkOwner {
 public:
  // To the process of this rank.
  Line(Job& job, const Strand& strand, Purpose purpose, std::uint32_t rank, LineOwner& owner);

  // Tries, ever more slowly, until `within` has passed. On the strand, as all that follows.
  void open(const std::string& address, std::chrono::milliseconds within);
  void close(bool with_bye);                                   // the owner hears nothing more
  const std::shared_ptr<Link>& link() const { return link_; }  // null while it is down
  std::uint32_t rank() const { return rank_; }
  Clock heard_clock() const { return link_ ? link_->heard_clock() : heard_; }
  // What the last attempt failed of; "" if none has.
  const std::string& trouble() const { return trouble_; }

 private:
  std::span<std::byte> place(Link& link, Message& message, std::size_t bytes) override;
  Status received(Link& link, Message&& message) override;
  std::optional<Message> next(Link& link) override;
  void silent(Link& link, std::chrono::milliseconds since) override;
  void closed(Link& link, Status error) override;
  void attempt();
  void attempted(Result<std::shared_ptr<Link>> result);
  void lose(const Error& error);
  std::chrono::milliseconds left() const;

  Job& job_;
  const Strand strand_;
  const Purpose purpose_;
  const std::uint32_t rank_;
  LineOwner& owner_;
  std::string address_, trouble_;
  std::shared_ptr<Link> link_;
  std::optional<Error> broken_;  // why the last link ended
  std::chrono::steady_clock::time_point deadline_;
  std::chrono::milliseconds pause_{};
  Clock heard_ = -1;
  std::chrono::steady_clock::time_point up_since_;
  int short_lives_ = 0;  // links in a row that broke soon
  bool was_up_ = false, ended_ = false;
};

// "has not been heard of for 10.2 s", to the log.
void warn_silent(const Job& job, std::uint32_t rank, Clock clock, Purpose purpose,
                 std::chrono::milliseconds since);

}  // namespace shoal::table
