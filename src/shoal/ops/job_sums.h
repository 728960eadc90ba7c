// Sums over the processes of a job, made by a library of their devices.
#pragma once

#include <memory>
#include <string>

#include "shoal/ops/op.h"
#include "shoal/tensor/context.h"

namespace shoal::ops {

// One member's part in a group of processes. A slot has one sum at a time. Nothing here waits. All
// calls on the context's thread; they throw DeviceError when the library reports a failure, such as
// a member that was lost.
class JobSums {
 public:
  virtual ~JobSums() = default;
  // Whether all members have come.
  virtual bool is_joined() = 0;
  // Queues, behind what is queued on the context now, a sum after which each member's x is the sum
  // of all members'. They are equally long, and all members start their sums in the same order. x
  // stays where it is until the sum is done.
  virtual void start(int slot, Tensor& x) = 0;
  // Whether the slot's sum has been made. If so, what is queued on the context from now on comes
  // after it.
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
// Null for a device that has none.
const JobSumsImpl* job_sums_of(const Context& ctx);

}  // namespace shoal::ops
