// Which implementations each op has: fastest first, the plain CPU one last and for ever. With
// cpu/impls.h and its like in other folders this is all that knows of vendors.
#include "shoal/ops/cpu/impls.h"

namespace shoal::ops {
namespace {

constexpr const DenseImpl* kDense[] = {&cpu::kDense};
constexpr const ConvImpl* kConv[] = {&cpu::kConvDirect, &cpu::kConv};
constexpr const Im2colImpl* kIm2col[] = {&cpu::kIm2col};
constexpr const PoolImpl* kPool[] = {&cpu::kPool};
constexpr const LrnImpl* kLrn[] = {&cpu::kLrn};
constexpr const BatchNormImpl* kBatchNorm[] = {&cpu::kBatchNorm};
constexpr const SoftmaxImpl* kSoftmax[] = {&cpu::kSoftmax};

}  // namespace

std::span<const DenseImpl* const> dense_impls() { return kDense; }
std::span<const ConvImpl* const> conv_impls() { return kConv; }
std::span<const Im2colImpl* const> im2col_impls() { return kIm2col; }
std::span<const PoolImpl* const> pool_impls() { return kPool; }
std::span<const LrnImpl* const> lrn_impls() { return kLrn; }
std::span<const BatchNormImpl* const> batch_norm_impls() { return kBatchNorm; }
std::span<const SoftmaxImpl* const> softmax_impls() { return kSoftmax; }

}  // namespace shoal::ops
