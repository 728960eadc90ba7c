// Process 0's duty for the others: drives the Coordinator between its connections and process 0's own envoy.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "conversation.h"
#include "seat.h"
#include "shoal/table/coordinator.h"

namespace shoal::table {

class CoordinatorHost final : public SeatOwner {
 public:
  // `own` takes, on the host's strand, what is for process 0 itself.
  CoordinatorHost(Job& job, IoThreads& threads, std::function<void(Message)> own);

  // On any thread:
  LinkOwner* seat(std::uint32_t rank) { return seats_[rank].get(); }
  void take(std::shared_ptr<Link> link);
  void hear(std::uint32_t rank, Message message);            // of process 0
  std::vector<std::uint32_t> missing() const;                // have not joined
  bool idle() const { return idle_ && coming_ == 0; }   // all that was said has arrived, where somebody listens
  void close(bool with_bye);

 private:
  std::span<float> place(Seat&, Message&, std::size_t) override { return {}; }
  void opened(Seat& seat, const std::shared_ptr<Link>& link) override;
  void received(Seat& seat, Message&& message) override;
  void closed(Seat& seat) override;
  void lost(Seat& seat, const Error& error) override;
  void handle(std::uint32_t rank, Message message);
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
  std::vector<Conversation> conversations_;                  // by rank; process 0's stays closed
  std::vector<std::string> from_;                            // hosts that connections come from
  std::string waited_for_;

  std::vector<std::unique_ptr<Seat>> seats_;                 // by rank; process 0 has none
  std::vector<std::uint32_t> missing_ GUARDED_BY(job_.mutex);
  std::atomic<bool> idle_ = true;
  std::atomic<int> coming_ = 0;                              // of process 0, on their way to the strand
};

}  // namespace shoal::table
