// How the nets of one process come by the same params, and their gradients by a sum.
#pragma once

#include <memory>
#include <vector>

#include "shoal/net/net.h"

namespace shoal::parallel {

// Of nets[0], the solver's, and its replicas. On the solver's thread, unless it is said otherwise.
// May throw DeviceError.
class ReplicaNumbers {
 public:
  virtual ~ReplicaNumbers() = default;
  // No replica computes, and a step begins.
  virtual void begin() = 0;
  // The layer's params are ready in nets[0], and then may be taken by a replica on its own thread,
  // before its forward pass of the layer.
  virtual void send(int layer) = 0;
  virtual void take(int replica, int layer) = 0;
  // The layer's gradients are complete; on the replica's own thread. When all have offered theirs,
  // begins to make nets[0]'s the sum.
  virtual void offer(int replica, int layer) = 0;
  virtual void sum(int layer) = 0;
  // Whether the sum has been made; finish() makes nets[0]'s later work come after it.
  virtual bool summed(int) { return true; }
  virtual void finish(int) {}
  // Throws DeviceError if sums were ended since a device failed: what was made of them is not to
  // be used.
  virtual void throw_if_failed() {}
  // No replica computes: makes nets[0]'s running sums the sums of all.
  virtual void sum_running() = 0;
};

// By the devices' own way where they have one, which the log says; otherwise through the host, of
// whose memory nets on the CPU share the params.
std::unique_ptr<ReplicaNumbers> make_replica_numbers(const std::vector<Net*>& nets);

}  // namespace shoal::parallel
