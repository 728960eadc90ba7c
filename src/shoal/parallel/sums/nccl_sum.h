// Sums vectors over the workers of a job by NCCL, on their GPUs. Members, tests and snapshots still
// use the table.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shoal/ops/job_sums.h"
#include "shoal/parallel/sums/vector_sum.h"

namespace shoal::parallel {

// Brings all workers of a generation into one group, on the thread that will make its sums. Every
// worker's context has a GPU of its own. Throws ConfigError where this worker's has none or NCCL is
// not there, `name` in front; the error's text if the job or NCCL fails meanwhile, or after half an
// hour. sums: how many there will be, numbered from 0.
std::shared_ptr<ops::JobSums> begin_nccl(table::Table& table, Context& ctx, int sums,
                                         const std::string& name);
// Makes the group's sum `number`: of these tensors, in place, and of `count` numbers, which travel
// through the host's memory to the GPU and back. Context and tensors outlive the sum. All workers
// start their sums in the same order.
std::unique_ptr<VectorSum> make_nccl_sum(table::Table& table, const Context& ctx,
                                         std::shared_ptr<ops::JobSums> group, int number,
                                         std::vector<Tensor*> tensors, std::size_t count);

}  // namespace shoal::parallel
