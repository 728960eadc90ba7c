// A CUDA device without a GPU, for tests: memory of its own, streams that run late, kernels as
// loops on the host.
#pragma once

#include <cstddef>

#include "shoal/tensor/cuda/runtime.h"
#include "shoal/tensor/device.h"

namespace shoal::test {

// The runtime of a machine with two GPUs, 0 and 1. Its memory is the host's. What is queued on a
// stream runs when the stream is synchronised, or some of it earlier, drawn at random.
const cuda::Runtime& fake_cuda();
// A CudaDevice on it.
const Device& fake_gpu(int ordinal = 0);
// Whether these bytes lie in one block of the GPUs' memory.
bool in_fake_memory(const void* data, std::size_t bytes);

// From now on the n-th allocation (1: the next) fails for want of memory, or the n-th copy fails
// for ever, as after a fault of the GPU; 0: none. Until reset_fakes().
void fail_allocation(int n);
void fail_copy(int n);
void reset_fakes();

}  // namespace shoal::test
