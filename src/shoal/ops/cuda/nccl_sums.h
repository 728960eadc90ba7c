// Sums and copies between the GPUs of one process by NCCL.
#pragma once

#include "shoal/ops/device_sums.h"

namespace shoal::ops::cuda {

// Does what make_device_sums says, where NCCL is there, for contexts on different GPUs. Throws
// DeviceError if NCCL cannot connect them.
std::unique_ptr<DeviceSums> make_nccl_sums(std::span<Context* const> contexts, int slots, Why& why);

}  // namespace shoal::ops::cuda
