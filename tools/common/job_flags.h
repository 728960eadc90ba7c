// The flags of a tool that can be one of several processes. Each is explained in
// docs/training-on-a-cluster.md.
#pragma once

#include "common/job.h"

namespace shoal {

JobFlags job_flags();

}  // namespace shoal
