// The kernels that compute on the CPU: our own, compiled for several levels of x86-64
// (base/processor.h), and those of libraries.
#pragma once

#include <span>
#include <string>

namespace shoal::ops {

// kAuto is the best that the processor runs. kAvx2 uses none that needs more than level 3, for
// tests and for comparisons.
enum class CpuKernels { kAuto, kAvx2 };

// AUTO or AVX2; throws ConfigError (kUsage) for another name.
CpuKernels cpu_kernels_named(const std::string& name);

// Holds our kernels and those of kernel_libraries() to `kernels`, in the whole process; kAuto,
// which is so without a call, changes nothing. To be called once, before a kernel is made and
// before a library's first use. OpenBLAS has chosen already when the program begins
// (blas_kernels.h). Throws DeviceError if this build or this processor has no such kernels.
void hold_cpu_kernels(CpuKernels kernels);
CpuKernels held_cpu_kernels();
// Returns the level of x86-64 (base/processor.h) of our own kernels that ops use; 1 on other
// machines.
int cpu_kernels_level();

// "own for x86-64-v4, OpenBLAS 0.3.21 for SkylakeX", and so on for each library; the kernels that
// ops use from here on.
std::string describe_cpu_kernels();

// The least level that this build's own kernels need; 1 on machines other than x86-64.
extern const int kCpuLevel;

// A library whose kernels stand in the lists of impls.cpp.
struct KernelLibrary {
  std::string (*describe)();  // "oneDNN 2.6.3 for AVX-512"
  void (*hold_to_avx2)();     // called before its first use
};
std::span<const KernelLibrary> kernel_libraries();  // defined in impls.cpp

}  // namespace shoal::ops
