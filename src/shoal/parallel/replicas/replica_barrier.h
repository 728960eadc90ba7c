// The barrier between the thread of a solver and the threads of its replicas, layer by layer.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/base/mutex.h"

namespace shoal::parallel {

// Replicas are numbered from 1; the solver's own net, 0, has no part in this.
class ReplicaBarrier {
 public:
  ReplicaBarrier(int replicas, int layers);

  // ---- the solver's thread ----
  // Ends what is left of an earlier iteration and starts the next on all replicas.
  Status begin();
  // Says that the params of layers 0 .. layer may be read.
  void params_ready(int layer);
  // Returns when every replica has finished the layer's backward, or with the error of one that
  // cannot.
  Status wait_backward(int layer);
  // Returns when every replica has finished the iteration, or with the error of one that could not.
  Status wait_finished();
  // Does the same, without the replicas' errors, where the iteration does not go on: no replica
  // waits for params any longer.
  Status give_up();
  // Says that no iteration will follow.
  void close();

  // ---- a replica's thread ----
  // Waits for the next iteration; false: there is none.
  bool wait_begin(int replica);
  Status wait_params(int layer);
  void finished_backward(int replica, int layer);
  void finished(int replica, Status status);

 private:
  struct Progress {
    std::int64_t begun = 0, finished = 0;  // iterations
    int layer = 0;                         // the last whose backward is done, counted down
    std::optional<Error> error;            // that ended its iteration
  };
  bool all_finished() const REQUIRES(mutex_);
  Status wait_finished_locked() REQUIRES(mutex_);

  const int layers_;
  Mutex mutex_;
  Condition changed_;
  std::vector<Progress> progress_ GUARDED_BY(mutex_);  // of replica i + 1
  std::int64_t begun_ GUARDED_BY(mutex_) = 0;          // iterations
  int ready_ GUARDED_BY(mutex_) = 0;                   // layers whose params may be read
  bool given_up_ GUARDED_BY(mutex_) = false, closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace shoal::parallel
