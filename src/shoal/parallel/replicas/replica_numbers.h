// Gives the nets of one process the same params, and sums their gradients.
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

// The numbers of nets[0], the solver's, and its replicas. `range` is an index into the list that
// the object was made with. All calls on the solver's thread, unless noted. May throw DeviceError.
class ReplicaNumbers {
 public:
  virtual ~ReplicaNumbers() = default;
  // Begins a step. No replica computes.
  virtual void begin() = 0;
  // Returns whether begin() sends all ranges. Constant.
  virtual bool sends_all() const { return false; }
  // Sends the range's params, which are ready in nets[0], where none of its layers began its
  // forward pass. Then a replica may take them on its own thread, before its forward pass of the
  // range.
  virtual void send(int range) = 0;
  virtual void take(int replica, int range) = 0;
  // Offers the range's gradients, which are complete; on the replica's own thread. When all have
  // offered theirs, sum() begins to make nets[0]'s the sum.
  virtual void offer(int replica, int range) = 0;
  virtual void sum(int range) = 0;
  // Returns whether the sum has been made. finish() makes nets[0]'s later work come after it.
  virtual bool summed(int) { return true; }
  virtual void finish(int) {}
  // Throws DeviceError if sums were ended because a device failed. Their results are not to be
  // used.
  virtual void throw_if_failed() {}
  // Makes nets[0]'s running sums the sums of all. No replica computes.
  virtual void sum_running() = 0;
};

// Makes the way between devices if they have one, which the log says; otherwise the way through the
// host, whose memory for the params nets on the CPU share. ready: all params are ready when a step
// begins.
std::unique_ptr<ReplicaNumbers> make_replica_numbers(const std::vector<Net*>& nets,
                                                     const std::vector<LayerRange>& ranges,
                                                     bool ready);

}  // namespace shoal::parallel
