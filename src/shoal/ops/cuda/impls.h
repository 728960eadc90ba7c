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

// cuDNN's, where the library is there. Its pooling keeps no winners, its LRN wants y to go
// backward, and its batch normalization keeps no variance: they cannot do what the ops say.
extern const ConvImpl kConvCudnn;
extern const SoftmaxImpl kSoftmaxCudnn;

const Backend& backend();

}  // namespace shoal::ops::cuda
