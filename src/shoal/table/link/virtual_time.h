// A clock that goes from one event to the next, and runs each at its instant. For the simulated
// network, and other code driven by instants.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "shoal/table/pacer.h"

namespace shoal::table {

// A radix heap: a bucket with the events of the present instant, and behind it buckets of later
// ones. The number of an event's bucket is how many bits its instant has up to the highest that
// differs from the present one's. So an event moves from bucket to bucket a few times, always to
// the end of one, and events of one instant stay in their order. Source: Ahuja, Mehlhorn, Orlin and
// Tarjan (Journal of the ACM, 1990).
class VirtualTime {
 public:
  Instant now() const { return now_; }
  // Calls `work` at an instant. Works of one instant run in the order of the calls. An instant in
  // the past is now.
  void at(Instant when, std::function<void()> work);
  void after(Instant delay, std::function<void()> work) { at(now_ + delay, std::move(work)); }
  // Advances to the next work and runs it; false if there is none.
  bool step();
  std::size_t events() const { return events_; }  // that are to come
  bool is_idle() const { return events_ == 0; }

 private:
  struct Event {
    Instant when{};
    std::function<void()> work;
  };
  using Events = std::vector<Event>;

  void put(Event&& event);
  void go_on();

  std::array<Events, 65> buckets_;  // the first has those of now_
  std::size_t done_ = 0;            // events of the first bucket that are over
  std::size_t events_ = 0;          // that are not over
  Events moved_;                    // no events: memory
  Instant now_{};
};

}  // namespace shoal::table
