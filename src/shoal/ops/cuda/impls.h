// The kernels of a CUDA device, fastest first, as backend() lists them.
#pragma once

#include "shoal/ops/backend.h"

namespace shoal::ops::cuda {

// Our own kernels, which serve every description.
extern const DenseImpl kDense;
extern const ConvImpl kConv;
extern const Im2colImpl kIm2col;
extern const PoolImpl kPool;
extern const LrnImpl kLrn;
extern const BatchNormImpl kBatchNorm;
extern const SoftmaxImpl kSoftmax;

// cuDNN's, where the library is there.
extern const ConvImpl kConvCudnn;
extern const PoolImpl kPoolCudnn;
extern const LrnImpl kLrnCudnn;
extern const BatchNormImpl kBatchNormCudnn;
extern const SoftmaxImpl kSoftmaxCudnn;

const Backend& backend();

}  // namespace shoal::ops::cuda
