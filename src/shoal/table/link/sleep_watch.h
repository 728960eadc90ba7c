// Notes whether this process was stopped a moment ago (by a signal, or a machine that slept), by
// the times at which a strand of it runs. Used on that strand, which it must not outlive.
#pragma once

#include "shoal/table/link/strand.h"
#include "shoal/table/types.h"

namespace shoal::table {

class SleepWatch {
 public:
  // `silence`: after which others count a process as lost.
  SleepWatch(const Strand& strand, milliseconds silence) : strand_(strand), silence_(silence) {
    strand_.post([this] { run(); });
  }
  // Returns whether the process was stopped for half of that within the last `silence`: others may
  // have removed it.
  bool has_slept() const { return now() < until_ || now() - awake_at_ > silence_ / 2; }

 private:
  void run() {
    if (has_slept()) until_ = now() + silence_;
    awake_at_ = now();
    strand_.after(silence_ / 8, [this] { run(); });
  }

  const Strand strand_;
  const milliseconds silence_;
  Instant awake_at_ = now(), until_{};
};

}  // namespace shoal::table
