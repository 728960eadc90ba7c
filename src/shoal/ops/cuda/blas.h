// The functions of cuBLAS that Shoal calls, as a table, and cuBLAS on a stream.
#pragma once

#include <cublas_v2.h>

#include <memory>
#include <string>
#include <vector>

#include "shoal/ops/cuda/library.h"
#include "shoal/tensor/context.h"

namespace shoal::ops::cuda {

// Each has the contract of the function of its name in cuBLAS (cublasCreate_v2 ...).
struct Blas {
#define FN(name) decltype(&::cublas##name) name = nullptr;
#include "shoal/ops/cuda/blas.def"
#undef FN
};

// Loads cuBLAS from the first of `files` that can be loaded. Throws DeviceError, which says what is
// missing and what to install.
Blas load_blas(const std::vector<std::string>& files = library_files("cublas", CUBLAS_VER_MAJOR));

// One workspace and no atomic sums: a product has the same bits in every run.
class BlasStream {
 public:
  explicit BlasStream(Context& ctx);
  ~BlasStream();
  BlasStream(const BlasStream&) = delete;

  const Blas& functions() const { return blas_; }
  cublasHandle_t handle() const { return handle_; }
  // Returns at least so many bytes of the device's memory, good until the next call.
  void* room(Context& ctx, std::size_t bytes);
  // Throws DeviceError, which says what was being done and what cuBLAS calls the error, unless
  // `status` is success.
  void check(cublasStatus_t status, const char* what) const;

 private:
  const Blas& blas_;
  const int ordinal_;  // of the GPU
  std::shared_ptr<Memory> workspace_, room_;
  cublasHandle_t handle_ = nullptr;
};

// Returns cuBLAS on the context's stream; made at the first call. Makes the stream's GPU the
// thread's.
BlasStream& blas_of(Context& ctx);

}  // namespace shoal::ops::cuda
