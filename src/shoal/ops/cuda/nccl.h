// NCCL's functions, found when they are first needed.
#pragma once

#include <nccl.h>

#include <string>
#include <vector>

#include "shoal/ops/cuda/library.h"
#include "shoal/ops/op.h"
#include "shoal/tensor/context.h"

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

// Returns the functions for the context's GPU; null if there are none, and `why` says so.
const Nccl* nccl_for(const Context& ctx, Why& why);

// Throws DeviceError, with NCCL's words, for a failure of what was tried.
void check(const Nccl& nccl, ncclResult_t result, const char* what);

}  // namespace shoal::ops::cuda
