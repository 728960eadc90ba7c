// Lets a client whose links lose messages while they are up ask again: as if its links were new,
// when it has waited for a row for a while, and then ever less often.
#pragma once

#include <algorithm>
#include <chrono>

#include "shoal/table/client.h"

namespace shoal::table::test {

class AsksAgain {
 public:
  static constexpr std::chrono::milliseconds kFirst{100}, kMost{1600};

  // Asks again if it is time to. Returns when to call it next; Instant::max() while the client
  // waits for nothing.
  Instant keep(Client& client, int servers, Instant now) {
    const auto overdue = client.overdue();
    if (!overdue) return Instant::max();
    if (overdue->since != since_) {
      since_ = overdue->since;
      pause_ = kFirst;
      due_ = since_ + pause_;
    }
    if (due_ > now) return due_;
    for (int server = 0; server < servers; ++server) client.link_up(server);
    pause_ = std::min(2 * pause_, kMost);
    return due_ = now + pause_;
  }

 private:
  Instant since_ = Instant::min(), due_{};
  std::chrono::milliseconds pause_ = kFirst;
};

}  // namespace shoal::table::test
