#include "shoal/ops/cuda/nccl.h"

#include "shoal/base/error.h"
#include "shoal/tensor/cuda/device.h"

namespace shoal::ops::cuda {
namespace {

const NcclLibrary& installed_nccl() {
  static const NcclLibrary library = load_nccl();
  return library;
}

}  // namespace

NcclLibrary load_nccl(const std::vector<std::string>& files) {
  NcclLibrary nccl;
  Library library(files);
#define FN(name) library.find("nccl" #name, nccl.functions.name);
#include "shoal/ops/cuda/nccl.def"
#undef FN
  if (!library.why().empty())
    nccl.why = str("NCCL cannot be loaded: ", library.why(), "; install NCCL ", NCCL_MAJOR,
                   ", or name its folder in LD_LIBRARY_PATH");
  return nccl;
}

const Nccl* nccl_for(const Context& ctx, Why& why) {
  const auto& device = static_cast<const shoal::cuda::CudaDevice&>(ctx.device());
  if (device.runtime().nccl != nullptr) return device.runtime().nccl;
  why = installed_nccl().why;
  return why.empty() ? &installed_nccl().functions : nullptr;
}

void check(const Nccl& nccl, ncclResult_t result, const char* what) {
  if (result != ncclSuccess)
    throw DeviceError(str(what, ": NCCL says ", nccl.GetErrorString(result)));
}

}  // namespace shoal::ops::cuda
