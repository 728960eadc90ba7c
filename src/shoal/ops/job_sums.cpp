// Finds the devices' own way to sum over processes.
#include "shoal/ops/job_sums.h"

#include "shoal/ops/backend.h"

namespace shoal::ops {

const JobSumsImpl* job_sums_of(const Context& ctx) { return backend(ctx).job_sums; }

}  // namespace shoal::ops
