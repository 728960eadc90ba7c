// The kernels of each op, fastest first, the plain one of the device last. With cpu/impls.h and its
// like in other folders this is all that knows of vendors.
#include "shoal/ops/cpu/impls.h"
#include "shoal/ops/backend.h"
#include "shoal/ops/cpu/elementary.h"
#include "shoal/ops/cpu_kernels.h"
#if SHOAL_DNNL
#include "shoal/ops/dnnl/impls.h"
#endif

namespace shoal::ops {
namespace {

constexpr Elementary kElementary = {
#define OP(name) &cpu::name,
#include "shoal/ops/elementary.def"
#undef OP
};
constexpr const DenseImpl* kDense[] = {&cpu::kDense};
constexpr const ConvImpl* kConv[] = {
#if SHOAL_DNNL
    &dnnl::kConv,
#endif
    &cpu::kConvDirect, &cpu::kConv};
constexpr const Im2colImpl* kIm2col[] = {&cpu::kIm2col};
constexpr const PoolImpl* kPool[] = {&cpu::kPool};
constexpr const LrnImpl* kLrn[] = {&cpu::kLrn};
constexpr const BatchNormImpl* kBatchNorm[] = {&cpu::kBatchNorm};
constexpr const SoftmaxImpl* kSoftmax[] = {&cpu::kSoftmax};
constexpr Backend kCpu = {&kElementary, kDense, kConv, kIm2col, kPool, kLrn, kBatchNorm, kSoftmax};

}  // namespace

const Backend& listed_backend() { return kCpu; }

std::span<const KernelLibrary> kernel_libraries() {
#if SHOAL_DNNL
  return {&dnnl::kLibrary, 1};
#else
  return {};
#endif
}

bool cpu_has_short_images() {
#if SHOAL_DNNL
  return true;
#else
  return false;
#endif
}

}  // namespace shoal::ops
