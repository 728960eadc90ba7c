// How the nets of one process come by the same params, and their gradients by a sum.
#pragma once

#include <memory>
#include <vector>

#include "shoal/net/net.h"

namespace shoal::parallel {

// Neighbouring layers whose params are copied together, and whose gradients are summed together.
struct LayerRange {
  int first = 0, last = 0;
  std::vector<int> summed{};  // the layers, highest first, whose gradients are to be summed
};

// Of nets[0], the solver's, and its replicas. Ranges have their places in the list that the object
// was made with. On the solver's thread, unless it is said otherwise. May throw DeviceError.
class ReplicaNumbers {
 public:
  virtual ~ReplicaNumbers() = default;
  // No replica computes, and a step begins.
  virtual void begin() = 0;
  // Whether begin() sends all ranges. Constant.
  virtual bool sends_all() const { return false; }
  // The range's params are ready in nets[0], and none of its layers began its forward pass there.
  // Then a replica may take them on its own thread, before its forward pass of the range.
  virtual void send(int range) = 0;
  virtual void take(int replica, int range) = 0;
  // The range's gradients are complete; on the replica's own thread. When all have offered theirs,
  // begins to make nets[0]'s the sum.
  virtual void offer(int replica, int range) = 0;
  virtual void sum(int range) = 0;
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
// whose memory nets on the CPU share the params. ready: all params are when a step begins.
std::unique_ptr<ReplicaNumbers> make_replica_numbers(const std::vector<Net*>& nets,
                                                     const std::vector<LayerRange>& ranges,
                                                     bool ready);

}  // namespace shoal::parallel
