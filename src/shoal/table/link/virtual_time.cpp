#include "shoal/table/link/virtual_time.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace shoal::table {

VirtualTime::Events& VirtualTime::bucket_of(Instant when) {
  const auto differ =
      static_cast<std::uint64_t>(when.count()) ^ static_cast<std::uint64_t>(now_.count());
  return differ == 0 ? present_ : buckets_[static_cast<std::size_t>(std::bit_width(differ)) - 1];
}

void VirtualTime::at(Instant when, std::function<void()> work) {
  when = std::max(when, now_);
  later_ += when > now_;
  bucket_of(when).push_back({when, std::move(work)});
}

// The first bucket that has events has the earliest ones, and its events are of no bucket behind it
// from now on.
void VirtualTime::go_on() {
  present_.clear();
  done_ = 0;
  const auto first = std::ranges::find_if(buckets_, [](const Events& one) { return !one.empty(); });
  now_ = std::ranges::min(*first, {}, &Event::when).when;
  moved_.swap(*first);
  for (Event& event : moved_) {
    later_ -= event.when == now_;
    bucket_of(event.when).push_back(std::move(event));
  }
  moved_.clear();
}

bool VirtualTime::step() {
  if (is_idle()) return false;
  if (done_ == present_.size()) go_on();
  const std::function<void()> work = std::move(present_[done_++].work);
  work();
  return true;
}

}  // namespace shoal::table
