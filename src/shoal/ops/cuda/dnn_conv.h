// A convolution in cuDNN's terms: what describes it, its three passes, and their algorithms.
#pragma once

#include "shoal/ops/cuda/dnn.h"
#include "shoal/ops/window.h"

namespace shoal::ops::cuda {

// Returns why cuDNN cannot compute such a convolution; empty: it may.
Why no_dnn_conv(const ConvDesc& desc);

enum class ConvPass { kForward, kData, kFilter };
inline constexpr ConvPass kConvPasses[] = {ConvPass::kForward, ConvPass::kData, ConvPass::kFilter};

struct ConvAlgorithm {
  int number = 0;  // in cuDNN's enum of the pass
  cudnnMathType_t math = CUDNN_FMA_MATH;
  std::size_t workspace = 0;  // bytes
};

// One thread at a time. The passes return cuDNN's status; pointers are to the device's memory.
class DnnConv {
 public:
  // Takes a description that no_dnn_conv has nothing against. `channels_last`: x, w, y and their
  // gradients are in that order, of two axes. They are of the precision's type.
  DnnConv(const Dnn& dnn, const ConvDesc& desc, bool channels_last, Precision precision);

  // Returns the algorithms that give the same bits in every run, round as the precision says and
  // take no more than `most` bytes of workspace, in cuDNN's order: the first is the one that it
  // expects to be the fastest, which depends on the description, the GPU and the library alone.
  std::vector<ConvAlgorithm> algorithms(cudnnHandle_t handle, ConvPass pass,
                                        std::size_t most) const;

  // Overwrites y.
  cudnnStatus_t forward(cudnnHandle_t handle, const ConvAlgorithm& algorithm, const void* x,
                        const void* w, void* workspace, void* y) const;
  // Overwrites dx.
  cudnnStatus_t backward_data(cudnnHandle_t handle, const ConvAlgorithm& algorithm, const void* w,
                              const void* dy, void* workspace, void* dx) const;
  // Adds to dw, or overwrites it.
  cudnnStatus_t backward_filter(cudnnHandle_t handle, const ConvAlgorithm& algorithm, const void* x,
                                const void* dy, void* workspace, bool adds, void* dw) const;

 private:
  const Dnn& dnn_;
  const Precision precision_;
  TensorDescriptor x_, y_;
  FilterDescriptor w_;
  Descriptor<cudnnConvolutionDescriptor_t> window_;
};

}  // namespace shoal::ops::cuda
