// Process 0's duty for the others: drives the Coordinator between its connections and process 0's
// own envoy.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "shoal/table/coordinator.h"
#include "shoal/table/link/conversation.h"
#include "shoal/table/link/seat.h"

namespace shoal::table {

class CoordinatorHost final : public SeatOwner, private LinkOwner {
 public:
  // `own` takes, on the host's strand, what is for process 0 itself.
  CoordinatorHost(Job& job, IoThreads& threads, std::function<void(Message)> own);

  // On any thread:
  LinkOwner* seat(std::uint32_t rank) { return &seats_[rank]; }
  LinkOwner* desk() { return this; }  // of processes that have no rank yet
  bool knows(std::uint32_t rank) const { return rank < ranks_; }
  // Of a process that wants one.
  void greet(std::shared_ptr<Link> link);
  void take(std::shared_ptr<Link> link);
  void hear(std::uint32_t rank, Message message);  // of process 0
  std::vector<std::uint32_t> missing() const;      // have not joined
  // all that was said has arrived, where somebody listens
  bool idle() const { return idle_ && coming_ == 0; }
  void close(bool with_bye);

 private:
  std::span<std::byte> place(Seat&, Message&, std::size_t) override { return {}; }
  void opened(Seat& seat, const std::shared_ptr<Link>& link) override;
  void received(Seat& seat, Message&& message) override;
  void closed(Seat& seat) override;
  void lost(Seat& seat, const Error& error) override;
  // The desk's, of a link to a process without a rank, which asks for one and goes:
  std::span<std::byte> place(Link&, Message&, std::size_t) override { return {}; }
  Status received(Link& link, Message&& message) override;
  std::optional<Message> next(Link&) override { return std::nullopt; }
  void silent(Link&, std::chrono::milliseconds) override {}
  void closed(Link& link, Status error) override;
  void handle(std::uint32_t rank, Message message);
  bool is_looked_for(std::uint32_t rank, const Message& message);
  void lose(std::uint32_t rank, Code code, const std::string& why);
  void hear_clocks();
  void tell_too(std::uint32_t lost, std::uint32_t reporter, std::vector<Dispatch>& out) const;
  void dispatch(std::vector<Dispatch>& out);
  void note();
  void watch();

  Job& job_;
  const Strand strand_;
  const std::function<void(Message)> own_;
  // On the strand:
  Coordinator coordinator_;
  std::map<std::uint32_t, Conversation> conversations_;  // by rank; process 0 has none
  std::map<std::uint32_t, std::string> from_;            // hosts that connections come from
  std::map<const Link*, std::shared_ptr<Link>> at_desk_;
  // of late servers that were looked for, by rank
  std::map<std::uint32_t, bool> reached_;
  std::string waited_for_;

  Seats seats_;
  std::atomic<std::uint32_t> ranks_;  // that there are
  std::vector<std::uint32_t> missing_ GUARDED_BY(job_.mutex);
  std::atomic<bool> idle_ = true;
  // of process 0, on their way to the strand
  std::atomic<int> coming_ = 0;
};

}  // namespace shoal::table
