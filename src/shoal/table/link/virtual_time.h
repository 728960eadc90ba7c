// A clock that goes from one event to the next, and what is to happen when. For the simulated
// network, and for whatever else is driven by instants.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "shoal/table/pacer.h"

namespace shoal::table {

// A radix heap: events of the present instant, and behind them buckets of later ones. The number of
// an event's bucket is that of the highest bit in which its instant differs from the present one.
// So an event moves from bucket to bucket a few times, always to the end of one, and events of one
// instant stay in their order. Source: Ahuja, Mehlhorn, Orlin and Tarjan (Journal of the ACM,
// 1990).
class VirtualTime {
 public:
  Instant now() const { return now_; }
  // Of what is to happen at one instant, what was said first happens first. An instant in the past
  // is now.
  void at(Instant when, std::function<void()> work);
  void after(Instant delay, std::function<void()> work) { at(now_ + delay, std::move(work)); }
  // Goes on to the next thing and does it; false if there is none.
  bool step();
  bool is_idle() const { return later_ == 0 && done_ == present_.size(); }

 private:
  struct Event {
    Instant when{};
    std::function<void()> work;
  };
  using Events = std::vector<Event>;

  Events& bucket_of(Instant when);
  void go_on();

  Events present_;  // of now_, or before it; those before done_ are over
  std::size_t done_ = 0;
  std::array<Events, 64> buckets_;
  std::size_t later_ = 0;  // events in buckets
  Events moved_;           // no events: memory
  Instant now_{};
};

}  // namespace shoal::table
