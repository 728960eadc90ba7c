// Sums and copies between GPUs by NCCL, which is loaded when it is first needed.
#pragma once

#include <nccl.h>

#include <string>
#include <vector>

#include "shoal/ops/cuda/library.h"
#include "shoal/ops/device_sums.h"

namespace shoal::ops::cuda {

// Each has the contract of the function of its name in NCCL (ncclCommInitAll ...).
struct Nccl {
#define FN(name) decltype(&::nccl##name) name = nullptr;
#include "shoal/ops/cuda/nccl.def"
#undef FN
};

// The functions, or why they cannot be used and what to install.
struct NcclLibrary {
  Nccl functions;
  Why why;
};
NcclLibrary load_nccl(const std::vector<std::string>& files = library_files("nccl", NCCL_MAJOR));

// As make_device_sums says, where NCCL is there, of contexts on different GPUs. Throws DeviceError
// if NCCL cannot connect them.
std::unique_ptr<DeviceSums> make_nccl_sums(std::span<Context* const> contexts, int slots, Why& why);

}  // namespace shoal::ops::cuda
