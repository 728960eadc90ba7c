// Sums over the processes of a job, made by a library of their devices.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "shoal/ops/op.h"
#include "shoal/tensor/context.h"

namespace shoal::ops {

// One member's part in a group of processes. Nothing here waits. All calls on the context's thread;
// they throw DeviceError when the library reports a failure, such as a member that was lost.
class JobSums {
 public:
  virtual ~JobSums() = default;
  // Returns whether all members have come.
  virtual bool is_joined() = 0;
  // Queues, behind what is queued on the context now, sums after which each member's x are the sums
  // of all members'. They are equally many and long, and all members start their slots in the same
  // order. The tensors stay where they are, and as they are, until the slot is done.
  virtual void start(int slot, std::span<Tensor* const> x) = 0;
  // Returns whether the slot's sums have been made. If so, what is queued on the context from now
  // on comes after them.
  virtual bool is_done(int slot) = 0;
};

// The functions that a device brings for this.
struct JobSumsImpl {
  Why (*why_not)(const Context& ctx);  // why it cannot sum; empty: it can
  // Makes the name by which the members of a new group find each other: bytes for one of them to
  // hand to all.
  std::string (*name_group)(const Context& ctx);
  // Joins a group of `size` members as number `rank`. Borrows the context.
  std::unique_ptr<JobSums> (*join)(Context& ctx, const std::string& group, int rank, int size,
                                   int slots);
};
// Returns null for a device that has none.
const JobSumsImpl* job_sums_of(const Context& ctx);

}  // namespace shoal::ops
