// Chooses among the variants of our own CPU kernels. This file alone asks whether the build has a
// second one.
#include "shoal/ops/cpu_kernels.h"

#include <atomic>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/base/processor.h"
#include "shoal/ops/backend.h"
#include "shoal/ops/blas_kernels.h"

namespace shoal::ops {

#if SHOAL_CPU_V4
// Returns the kernels that impls.cpp lists, compiled once more for level 4 (Makefile).
const Backend& listed_backend_v4();
#endif

namespace {

// The choice of the whole process. Each op asks for it, from any thread.
std::atomic<CpuKernels> held = CpuKernels::kAuto;

const CpuVariant& variant_for(CpuKernels kernels) {
  return kernels == CpuKernels::kAuto ? cpu_variants().back() : cpu_variants().front();
}

}  // namespace

std::span<const CpuVariant> cpu_variants() {
  static const std::vector<CpuVariant> variants = [] {
    std::vector<CpuVariant> found = {{kCpuLevel, &listed_backend()}};
#if SHOAL_CPU_V4
    if (missing_of_level(4).empty()) found.push_back({4, &listed_backend_v4()});
#endif
    return found;
  }();
  return variants;
}

const Backend& cpu_backend() { return *variant_for(held.load(std::memory_order_relaxed)).backend; }

CpuKernels cpu_kernels_named(const std::string& name) {
  if (name == "AUTO") return CpuKernels::kAuto;
  if (name == "AVX2") return CpuKernels::kAvx2;
  throw ConfigError(Code::kUsage, "--cpu_kernels=", name, ": known are AUTO and AVX2");
}

void hold_cpu_kernels(CpuKernels kernels) {
  if (kernels == CpuKernels::kAuto) return;
  constexpr int kAvx2Level = 3;
  if (const std::string missing = missing_of_level(kAvx2Level); !missing.empty())
    throw DeviceError(
        str("the CPU's kernels cannot be held to AVX2: this processor lacks ", missing));
  if (kCpuLevel > kAvx2Level)
    throw DeviceError(
        str("the CPU's kernels cannot be held to AVX2: this build has them for "
            "x86-64-v",
            kCpuLevel, " alone; make ARCH=-march=x86-64-v3 has both"));
  held = kernels;
  for (const KernelLibrary& library : kernel_libraries()) library.hold_to_avx2();
}

CpuKernels held_cpu_kernels() { return held; }

int cpu_kernels_level() { return variant_for(held).level; }

std::string describe_cpu_kernels() {
  const int level = cpu_kernels_level();
  std::string words = level > 1 ? str("own for x86-64-v", level) : "own for any processor";
  words += ", " + describe_blas();
  for (const KernelLibrary& library : kernel_libraries()) words += ", " + library.describe();
  if (held == CpuKernels::kAvx2) words += "; held to AVX2";
  return words;
}

}  // namespace shoal::ops
