// The shard of this process and those who speak to it: workers of other processes over connections,
// this process's own without one.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "shoal/table/link/envoy.h"
#include "shoal/table/link/seat.h"
#include "shoal/table/shard.h"

namespace shoal::table {

class ShardHost final : public SeatOwner {
 public:
  ShardHost(Job& job, IoThreads& threads, Envoy& envoy);

  // On any thread:
  LinkOwner* seat(std::uint32_t rank) { return &seats_[rank]; }
  void take(std::shared_ptr<Link> link);
  // Who is which worker; `own` takes what is for this process's worker, on the shard's strand.
  // Once.
  void start(const RosterBody& roster, std::function<void(std::vector<Message>)> own);
  // of this process's worker, numbers where they are
  void hear(std::vector<Message> messages);
  // The same, before this returns if nothing else is on the shard's strand; work on long rows is
  // shared out by the caller's parallel_for.
  void hear_now(std::vector<Message> messages, const ParallelFor& parallel_for);
  void total(const NormTotal& total);
  // The process of this rank has left in order: nothing of it is waited for, or taken.
  void let_go(std::uint32_t rank);
  // Calls `done` when nobody looks at this worker's numbers any more, nor ever will: the shard
  // stands still from here on.
  void stop(std::function<void()> done);
  void close(bool with_bye);
  // How far ahead readers were, as the shard counted when it last did something after this was last
  // asked.
  std::array<std::uint64_t, StalenessCounts::kClasses> reads();

 private:
  std::span<std::byte> place(Seat& seat, Message& message, std::size_t bytes) override;
  void opened(Seat&, const std::shared_ptr<Link>&) override {}
  void received(Seat& seat, Message&& message) override;
  void paused() override;
  void lost(Seat& seat, const Error& error) override;
  void handle(std::uint32_t rank, const Message& message);
  void take_ranks(const Plan& plan);
  void take_number(const Plan& plan);
  void dispatch(Outbox& out);
  void feed(Seat& seat, Message message);
  std::uint32_t priority_of(const Message& message) const;

  Job& job_;
  Envoy& envoy_;
  const Strand strand_;
  // On the strand:
  std::unique_ptr<Shard> shard_;
  std::function<void(std::vector<Message>)> own_;
  int own_worker_ = -1;
  std::vector<int> worker_of_;          // by rank
  std::vector<std::uint32_t> rank_of_;  // by worker
  // said by ranks that knew of the roster before this process did
  std::vector<std::pair<std::uint32_t, Message>> early_;
  std::set<std::uint32_t> gone_;
  std::vector<Seat*> fed_;  // to wake, some perhaps twice
  bool stopped_ = false;

  std::atomic<bool> asked_{false};  // for new counts
  std::array<std::uint64_t, StalenessCounts::kClasses> reads_ GUARDED_BY(job_.mutex){};

  Seats seats_;
};

}  // namespace shoal::table
