// The functions of cuDNN that Shoal calls, as a table, and cuDNN on a stream.
#pragma once

#include <cudnn.h>

#include <span>
#include <string>
#include <vector>

#include "shoal/ops/cuda/library.h"
#include "shoal/tensor/context.h"

namespace shoal::ops::cuda {

// Each has the contract of the function of its name in cuDNN (cudnnCreate ...).
struct Dnn {
#define FN(name) decltype(&::cudnn##name) name = nullptr;
#include "shoal/ops/cuda/dnn.def"
#undef FN
};

// The functions, or why they cannot be used and what to install.
struct DnnLibrary {
  Dnn functions;
  Why why;
};
DnnLibrary load_dnn(const std::vector<std::string>& files = library_files("cudnn", CUDNN_MAJOR));

// Returns why the context's kernels cannot use cuDNN; empty: they can.
Why no_dnn(const Context& ctx);
// Returns the functions if they can.
const Dnn& dnn_functions(const Context& ctx);
// Returns cuDNN on the context's stream; made at the first call. Makes the stream's GPU the
// thread's.
cudnnHandle_t dnn_of(const Context& ctx);

// Throws DeviceError, which says what was being done and what cuDNN calls the error, unless
// `status` is success.
void check(const Dnn& dnn, cudnnStatus_t status, const char* what);

// A descriptor of cuDNN, of a type that its functions create and destroy.
template <class D>
class Descriptor {
 public:
  Descriptor(const Dnn& dnn, cudnnStatus_t (*create)(D*), cudnnStatus_t (*destroy)(D))
      : destroy_(destroy) {
    check(dnn, create(&value_), "making a descriptor");
  }
  ~Descriptor() {
    if (value_ != nullptr) destroy_(value_);
  }
  Descriptor(const Descriptor&) = delete;
  operator D() const { return value_; }

 private:
  cudnnStatus_t (*destroy_)(D);
  D value_ = nullptr;
};

// Describes numbers of 4 axes or more: images, channels and places, in that order or with the
// channels last.
class TensorDescriptor : public Descriptor<cudnnTensorDescriptor_t> {
 public:
  TensorDescriptor(const Dnn& dnn, std::span<const int> sizes, bool channels_last = false,
                   cudnnDataType_t type = CUDNN_DATA_FLOAT);
};
class FilterDescriptor : public Descriptor<cudnnFilterDescriptor_t> {
 public:
  FilterDescriptor(const Dnn& dnn, std::span<const int> sizes, bool channels_last = false,
                   cudnnDataType_t type = CUDNN_DATA_FLOAT);
};

}  // namespace shoal::ops::cuda
