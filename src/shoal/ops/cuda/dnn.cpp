#include "shoal/ops/cuda/dnn.h"

#include <memory>

#include "shoal/base/error.h"
#include "shoal/tensor/cuda/stream.h"

namespace shoal::ops::cuda {
namespace {

const DnnLibrary& installed_dnn() {
  static const DnnLibrary library = load_dnn();
  return library;
}

shoal::cuda::CudaStream& stream_of(const Context& ctx) {
  return static_cast<shoal::cuda::CudaStream&>(*ctx.stream());
}

struct DnnStream {
  explicit DnnStream(const Context& ctx) : dnn(dnn_functions(ctx)) {
    check(dnn, dnn.Create(&handle), "starting cuDNN");
    check(dnn, dnn.SetStream(handle, stream_of(ctx).handle()), "choosing a stream for cuDNN");
  }
  ~DnnStream() {
    if (handle != nullptr) dnn.Destroy(handle);
  }
  DnnStream(const DnnStream&) = delete;

  const Dnn& dnn;
  cudnnHandle_t handle = nullptr;
};

}  // namespace

DnnLibrary load_dnn(const std::vector<std::string>& files) {
  DnnLibrary dnn;
  Library library(files);
#define FN(name) library.find("cudnn" #name, dnn.functions.name);
#include "shoal/ops/cuda/dnn.def"
#undef FN
  if (!library.why().empty())
    dnn.why = str("cuDNN cannot be loaded: ", library.why(), "; install cuDNN ", CUDNN_MAJOR,
                  ", or name its folder in LD_LIBRARY_PATH");
  return dnn;
}

Why no_dnn(const Context& ctx) {
  return stream_of(ctx).runtime().dnn != nullptr ? kYes : installed_dnn().why;
}

const Dnn& dnn_functions(const Context& ctx) {
  const Dnn* const given = stream_of(ctx).runtime().dnn;
  return given != nullptr ? *given : installed_dnn().functions;
}

cudnnHandle_t dnn_of(const Context& ctx) {
  shoal::cuda::CudaStream& stream = stream_of(ctx);
  stream.handle();
  if (!stream.dnn) stream.dnn = std::make_shared<DnnStream>(ctx);
  return static_cast<const DnnStream*>(stream.dnn.get())->handle;
}

void check(const Dnn& dnn, cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char detail[512] = "";
  dnn.GetLastErrorString(detail, sizeof detail);
  throw DeviceError(
      str(what, ": cuDNN says ", dnn.GetErrorString(status), *detail == '\0' ? "" : ", ", detail));
}

TensorDescriptor::TensorDescriptor(const Dnn& dnn, std::span<const int> sizes, bool channels_last,
                                   cudnnDataType_t type)
    : Descriptor(dnn, dnn.CreateTensorDescriptor, dnn.DestroyTensorDescriptor) {
  std::vector<int> strides(sizes.size(), 1);
  for (std::size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
  if (channels_last) {
    strides[1] = 1;
    strides.back() = sizes[1];
    for (std::size_t i = sizes.size() - 1; i-- > 2;) strides[i] = strides[i + 1] * sizes[i + 1];
  }
  check(dnn,
        dnn.SetTensorNdDescriptor(*this, type, static_cast<int>(sizes.size()), sizes.data(),
                                  strides.data()),
        "describing a tensor");
}

FilterDescriptor::FilterDescriptor(const Dnn& dnn, std::span<const int> sizes, bool channels_last,
                                   cudnnDataType_t type)
    : Descriptor(dnn, dnn.CreateFilterDescriptor, dnn.DestroyFilterDescriptor) {
  check(
      dnn,
      dnn.SetFilterNdDescriptor(*this, type, channels_last ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW,
                                static_cast<int>(sizes.size()), sizes.data()),
      "describing weights");
}

}  // namespace shoal::ops::cuda
