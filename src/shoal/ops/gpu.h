// The GPUs of this machine, in builds with and without CUDA.
#pragma once

#include <string>

#include "shoal/tensor/device.h"

namespace shoal::ops {

// 0 where there is no driver, and in a build without CUDA.
int gpu_count();
// CUDA's number of it counts from 0. It is there until the program ends. Throws DeviceError, which
// says what there is, if there is none of this number.
const Device& gpu(int ordinal);

// Returns a line on the GPU of this number: its name, what code it runs, its memory and how much of
// that is free. Throws as gpu() does.
std::string describe_gpu(int ordinal);
// Returns why gpu_count() is 0, or "".
std::string why_no_gpu();

}  // namespace shoal::ops
