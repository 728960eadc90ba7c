// The functions and kernels that a CUDA device brings to ops.
#include "shoal/ops/cuda/elementary.h"
#include "shoal/ops/cuda/impls.h"
#include "shoal/ops/cuda/nccl_job_sums.h"
#include "shoal/ops/cuda/nccl_sums.h"

namespace shoal::ops::cuda {
namespace {

constexpr Elementary kElementary = {
#define OP(name) &cuda::name,
#include "shoal/ops/elementary.def"
#undef OP
};
constexpr const DenseImpl* kDenseImpls[] = {&kDense};
constexpr const ConvImpl* kConvImpls[] = {&kConvCudnn, &kConv};
constexpr const Im2colImpl* kIm2colImpls[] = {&kIm2col};
constexpr const PoolImpl* kPoolImpls[] = {&kPool};
constexpr const LrnImpl* kLrnImpls[] = {&kLrn};
constexpr const BatchNormImpl* kBatchNormImpls[] = {&kBatchNorm};
constexpr const SoftmaxImpl* kSoftmaxImpls[] = {&kSoftmaxCudnn, &kSoftmax};
constexpr Backend kBackend = {
    &kElementary, kDenseImpls,     kConvImpls,    kIm2colImpls,    kPoolImpls,
    kLrnImpls,    kBatchNormImpls, kSoftmaxImpls, &make_nccl_sums, &kNcclJobSums,
};

}  // namespace

const Backend& backend() { return kBackend; }

}  // namespace shoal::ops::cuda
