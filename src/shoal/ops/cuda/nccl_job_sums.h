// Sums over the GPUs of several processes by NCCL.
#pragma once

#include "shoal/ops/job_sums.h"

namespace shoal::ops::cuda {

extern const JobSumsImpl kNcclJobSums;

}  // namespace shoal::ops::cuda
