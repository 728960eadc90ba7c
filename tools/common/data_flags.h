// Flags that count instead of what the nets of a job say of their data.
#pragma once

#include "shoal/parallel/job/job_spec.h"

namespace shoal {

// Gives the data layers of a job's nets the sources of --train_source and --test_source and the
// batch of --batch. Throws ConfigError (kUsage), also where no layer reads what a flag names.
void merge_data_flags(parallel::JobSpec& job);

}  // namespace shoal
