#include "shoal/table/link/virtual_time.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace shoal::table {

void VirtualTime::at(Instant when, std::function<void()> work) {
  ++events_;
  put({std::max(when, now_), std::move(work)});
}

void VirtualTime::put(Event&& event) {
  const auto differ =
      static_cast<std::uint64_t>(event.when.count()) ^ static_cast<std::uint64_t>(now_.count());
  buckets_[static_cast<std::size_t>(std::bit_width(differ))].push_back(std::move(event));
}

// Goes on to the first bucket that has events, which has the earliest ones. From now on its events
// are of no bucket behind it.
void VirtualTime::go_on() {
  buckets_[0].clear();
  done_ = 0;
  moved_.swap(*std::ranges::find_if_not(buckets_, std::ranges::empty));
  now_ = std::ranges::min_element(moved_, {}, &Event::when)->when;
  for (Event& event : moved_) put(std::move(event));
  moved_.clear();
}

bool VirtualTime::step() {
  if (is_idle()) return false;
  if (done_ == buckets_[0].size()) go_on();
  --events_;
  const std::function<void()> work = std::move(buckets_[0][done_++].work);
  work();
  return true;
}

}  // namespace shoal::table
