// A process's line to the coordinator: over a connection, or, in process 0, without one.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "shoal/table/link/conversation.h"
#include "shoal/table/link/coordinator_host.h"
#include "shoal/table/link/line.h"

namespace shoal::table {

class Envoy final : public LineOwner {
 public:
  // `hear` takes, on the envoy's strand, what the coordinator says. `host` is that of process 0,
  // null elsewhere.
  Envoy(Job& job, IoThreads& threads, CoordinatorHost* host, std::function<void(Message&&)> hear);

  // On any thread:
  void open(const std::string& address);
  void send(Message message);
  // from this process's own coordinator
  void take(Message message);
  // The process of this rank is lost to this one, for a reason that does not name it: ends the job
  // here, and tells the coordinator.
  void report(std::uint32_t rank, Clock clock, const Error& error);
  // This process ends the job.
  void abort(const Error& error);
  // all that was said has arrived, if somebody listens
  bool idle() const { return idle_ && coming_ == 0; }
  std::string trouble() const;  // why there is no connection yet
  void close(bool with_bye);

 private:
  std::span<std::byte> place(Line&, Message&, std::size_t) override { return {}; }
  Status received(Line& line, Message&& message) override;
  std::optional<Message> next(Line&) override { return std::nullopt; }
  void up(Line& line, bool again) override;
  void down(Line& line) override;
  void lost(Line& line, const Error& error) override;
  void note();

  Job& job_;
  const Strand strand_;
  CoordinatorHost* const host_;
  const std::function<void(Message&&)> hear_;
  // On the strand:
  Line line_;
  Conversation conversation_;
  bool joined_ = false;  // heard of the coordinator
  std::atomic<bool> idle_ = true;
  std::atomic<int> coming_ = 0;  // on their way to the strand
  std::string trouble_ GUARDED_BY(job_.mutex);
};

}  // namespace shoal::table
