#include "shoal/ops/cuda/blas.h"

#include "shoal/base/error.h"
#include "shoal/tensor/cuda/stream.h"

namespace shoal::ops::cuda {
namespace {

// NVIDIA's advice for the largest GPUs; half of it serves the others.
constexpr std::size_t kWorkspace = std::size_t{32} << 20;

const Blas& installed_blas() {
  static const Blas table = load_blas();
  return table;
}

// The libraries' own words for that are that something is not supported.
void refuse_older_than_ampere(Context& ctx) {
  const shoal::cuda::CudaStream& stream = shoal::cuda::stream_of(ctx);
  cudaDeviceProp gpu{};
  shoal::cuda::check(stream.runtime().GetDeviceProperties(&gpu, stream.ordinal()),
                     "asking what GPU ", stream.ordinal(), " is");
  if (gpu.major < 8)
    throw DeviceError(
        str("precision: BFLOAT16 needs a GPU of compute capability 8.0 or later; GPU ",
            stream.ordinal(), ", a ", gpu.name, ", has ", gpu.major, ".", gpu.minor,
            ". FLOAT16 works there"));
}

}  // namespace

Blas load_blas(const std::vector<std::string>& files) {
  Blas blas;
  Library library(files);
#define FN(name) library.find("cublas" #name, blas.name);
#include "shoal/ops/cuda/blas.def"
#undef FN
  if (!library.why().empty())
    throw DeviceError(str("computing on a GPU needs cuBLAS, which cannot be loaded: ",
                          library.why(), "; install the cuBLAS of CUDA ", CUBLAS_VER_MAJOR,
                          ", or name its folder in LD_LIBRARY_PATH"));
  return blas;
}

BlasStream::BlasStream(Context& ctx)
    : blas_(shoal::cuda::stream_of(ctx).runtime().blas ? *shoal::cuda::stream_of(ctx).runtime().blas
                                                       : installed_blas()),
      ordinal_(shoal::cuda::stream_of(ctx).ordinal()),
      workspace_(ctx.device().allocate(kWorkspace)) {
  if (ctx.precision() == Precision::kBfloat16) refuse_older_than_ampere(ctx);
  check(blas_.Create_v2(&handle_), "starting");
  check(blas_.SetStream_v2(handle_, shoal::cuda::stream_of(ctx).handle()), "choosing a stream");
  // Comes after the stream, whose choice brings a workspace of cuBLAS's own.
  check(blas_.SetWorkspace_v2(handle_, workspace_->data(), workspace_->bytes()),
        "setting the workspace");
  check(blas_.SetAtomicsMode(handle_, CUBLAS_ATOMICS_NOT_ALLOWED), "forbidding atomic sums");
  // cuBLAS would otherwise add the parts of a sum in the result's type, which may be of 16 bits.
  check(blas_.SetMathMode(
            handle_, static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH |
                                               CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)),
        "asking for sums in float32");
}

BlasStream::~BlasStream() {
  if (handle_ != nullptr) blas_.Destroy_v2(handle_);
}

void BlasStream::check(cublasStatus_t status, const char* what) const {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(str(what, " on GPU ", ordinal_, ": cuBLAS says ", blas_.GetStatusName(status)));
}

// Memory that is freed stays until the work queued before has been done.
void* BlasStream::room(Context& ctx, std::size_t bytes) {
  if (!room_ || room_->bytes() < bytes) {
    room_ = ctx.device().allocate(bytes);
    ++ctx.stream()->replacements;
  }
  return room_->data();
}

BlasStream& blas_of(Context& ctx) {
  shoal::cuda::CudaStream& stream = shoal::cuda::stream_of(ctx);
  stream.handle();
  if (!stream.blas) stream.blas = std::make_shared<BlasStream>(ctx);
  return *static_cast<BlasStream*>(stream.blas.get());
}

}  // namespace shoal::ops::cuda
