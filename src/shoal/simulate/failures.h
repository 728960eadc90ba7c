// Says when the workers of a simulated cluster fail, and when others come back in their places. The
// times depend on the seed and the cluster alone.
#pragma once

#include <functional>
#include <vector>

#include "shoal/simulate/cluster.h"
#include "shoal/table/link/simulated.h"

namespace shoal::simulate {

class Failures {
 public:
  // fail(worker): the process in the place of this worker of the cluster is lost now; false: there
  // is none that could be. come_back(worker): another asks to join.
  struct Hooks {
    std::function<bool(int worker)> fail;
    std::function<void(int worker)> come_back;
  };
  Failures(const Cluster& cluster, std::uint64_t seed, table::VirtualTime& time, Hooks hooks);

  // Returns how many events of the time are failures, or of processes that come back.
  std::size_t waiting() const { return waiting_; }

 private:
  struct Place {
    const Failure* failure = nullptr;  // null: it never fails
    Random random;
    int processes = 0;  // that have been there
  };

  void at(Instant when, std::function<void()> work);
  void draw(int worker);
  void fail(int worker);

  table::VirtualTime& time_;
  const Hooks hooks_;
  std::vector<Place> places_;  // by worker of the cluster
  std::size_t waiting_ = 0;
};

}  // namespace shoal::simulate
