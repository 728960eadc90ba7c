#include "shoal/ops/cuda/dnn_conv.h"

#include <algorithm>

#include "shoal/ops/cuda/element_type.h"

namespace shoal::ops::cuda {
namespace {

constexpr float kOne = 1, kZero = 0;

// Returns two axes at least; a missing outer one has size 1. cuDNN knows no fewer.
std::vector<WindowAxis> axes_of(const ConvDesc& desc) {
  std::vector<WindowAxis> axes = desc.axes;
  while (axes.size() < 2) axes.insert(axes.begin(), WindowAxis{});
  return axes;
}

// Returns one number of each axis.
std::vector<int> each_axis(const ConvDesc& desc, std::int64_t WindowAxis::*number) {
  std::vector<int> numbers;
  for (const WindowAxis& axis : axes_of(desc)) numbers.push_back(static_cast<int>(axis.*number));
  return numbers;
}

// Returns two sizes and one number of each axis.
std::vector<int> sizes(std::int64_t first, std::int64_t second, const ConvDesc& desc,
                       std::int64_t WindowAxis::*number) {
  std::vector<int> all = each_axis(desc, number);
  all.insert(all.begin(), {static_cast<int>(first), static_cast<int>(second)});
  return all;
}

// In float32 a GPU may not round to TF32, and nowhere float32 to float16.
bool rounds_well(cudnnMathType_t math, Precision precision) {
  return math != CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION &&
         (precision != Precision::kFloat32 || math != CUDNN_TENSOR_OP_MATH);
}

cudnnDataType_t dnn_type(Precision precision) {
  return precision == Precision::kBfloat16  ? CUDNN_DATA_BFLOAT16
         : precision == Precision::kFloat16 ? CUDNN_DATA_HALF
                                            : CUDNN_DATA_FLOAT;
}

// Returns whether an algorithm turns the numbers into another domain, where float32 keeps fewer
// digits: the weights' gradients of LeNet's conv2 were off by 3e-4 of the largest on an H100.
bool transforms(cudnnConvolutionFwdAlgo_t algorithm) {
  return algorithm == CUDNN_CONVOLUTION_FWD_ALGO_FFT ||
         algorithm == CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING ||
         algorithm == CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED;
}
bool transforms(cudnnConvolutionBwdDataAlgo_t algorithm) {
  return algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT ||
         algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING ||
         algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED;
}
bool transforms(cudnnConvolutionBwdFilterAlgo_t algorithm) {
  return algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT ||
         algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING ||
         algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED;
}

// The algorithms that a pass's function lists, by `list(most, &count, entries)`, and whose
// workspace, by `size(number, &bytes)`, fits.
template <class Entry, class List, class Size>
std::vector<ConvAlgorithm> fitting(const Dnn& dnn, cudnnConvolutionDescriptor_t window,
                                   Precision precision, std::size_t most, List list, Size size) {
  constexpr int kEntries = 16;  // more than any pass has, in each way to round
  Entry entries[kEntries];
  int count = 0;
  const bool exact = precision == Precision::kFloat32, transforming = precision == Precision::kTf32;
  check(dnn, dnn.SetConvolutionMathType(window, exact ? CUDNN_FMA_MATH : CUDNN_TENSOR_OP_MATH),
        "choosing how a convolution rounds");
  std::vector<ConvAlgorithm> algorithms;
  if (list(kEntries, &count, entries) != CUDNN_STATUS_SUCCESS) return algorithms;
  for (const Entry& entry : std::span(entries, static_cast<std::size_t>(count))) {
    if (entry.status != CUDNN_STATUS_SUCCESS || entry.determinism != CUDNN_DETERMINISTIC ||
        !rounds_well(entry.mathType, precision) || (!transforming && transforms(entry.algo)))
      continue;
    ConvAlgorithm algorithm{entry.algo, exact ? CUDNN_FMA_MATH : entry.mathType, 0};
    check(dnn, dnn.SetConvolutionMathType(window, algorithm.math),
          "choosing how a convolution rounds");
    if (size(entry.algo, &algorithm.workspace) == CUDNN_STATUS_SUCCESS &&
        algorithm.workspace <= most)
      algorithms.push_back(algorithm);
  }
  return algorithms;
}

}  // namespace

Why no_dnn_conv(const ConvDesc& desc) {
  if (desc.axes.size() > 3)
    return str("it convolves over three axes at most, not ", desc.axes.size());
  if (desc.images == 0) return "there are no images";
  for (const WindowAxis& axis : desc.axes) {
    const std::int64_t seen = axis.dilation * (axis.kernel - 1) + 1;
    const std::int64_t out = (axis.in + 2 * axis.pad - seen) / axis.stride + 1;
    if (axis.out != out)
      return str("it makes ", out, " outputs of an axis of ", axis.in, ", not ", axis.out);
  }
  return kYes;
}

DnnConv::DnnConv(const Dnn& dnn, const ConvDesc& desc, bool channels_last, Precision precision)
    : dnn_(dnn),
      precision_(precision),
      x_(dnn, sizes(desc.images, desc.channels, desc, &WindowAxis::in), channels_last,
         dnn_type(precision)),
      y_(dnn, sizes(desc.images, desc.outputs, desc, &WindowAxis::out), channels_last,
         dnn_type(precision)),
      w_(dnn, sizes(desc.outputs, desc.channels / desc.groups, desc, &WindowAxis::kernel),
         channels_last, dnn_type(precision)),
      window_(dnn, dnn.CreateConvolutionDescriptor, dnn.DestroyConvolutionDescriptor) {
  const std::vector<int> pad = each_axis(desc, &WindowAxis::pad),
                         stride = each_axis(desc, &WindowAxis::stride),
                         dilation = each_axis(desc, &WindowAxis::dilation);
  check(dnn,
        dnn.SetConvolutionNdDescriptor(window_, static_cast<int>(pad.size()), pad.data(),
                                       stride.data(), dilation.data(), CUDNN_CROSS_CORRELATION,
                                       CUDNN_DATA_FLOAT),
        "describing a convolution");
  check(dnn, dnn.SetConvolutionGroupCount(window_, static_cast<int>(desc.groups)),
        "setting a convolution's groups");
}

std::vector<ConvAlgorithm> DnnConv::algorithms(cudnnHandle_t handle, ConvPass pass,
                                               std::size_t most) const {
  switch (pass) {
    case ConvPass::kForward:
      return fitting<cudnnConvolutionFwdAlgoPerf_t>(
          dnn_, window_, precision_, most,
          [&](auto... out) {
            return dnn_.GetConvolutionForwardAlgorithm_v7(handle, x_, w_, window_, y_, out...);
          },
          [&](auto... out) {
            return dnn_.GetConvolutionForwardWorkspaceSize(handle, x_, w_, window_, y_, out...);
          });
    case ConvPass::kData:
      return fitting<cudnnConvolutionBwdDataAlgoPerf_t>(
          dnn_, window_, precision_, most,
          [&](auto... out) {
            return dnn_.GetConvolutionBackwardDataAlgorithm_v7(handle, w_, y_, window_, x_, out...);
          },
          [&](auto... out) {
            return dnn_.GetConvolutionBackwardDataWorkspaceSize(handle, w_, y_, window_, x_,
                                                                out...);
          });
    case ConvPass::kFilter: break;
  }
  return fitting<cudnnConvolutionBwdFilterAlgoPerf_t>(
      dnn_, window_, precision_, most,
      [&](auto... out) {
        return dnn_.GetConvolutionBackwardFilterAlgorithm_v7(handle, x_, y_, window_, w_, out...);
      },
      [&](auto... out) {
        return dnn_.GetConvolutionBackwardFilterWorkspaceSize(handle, x_, y_, window_, w_, out...);
      });
}

cudnnStatus_t DnnConv::forward(cudnnHandle_t handle, const ConvAlgorithm& algorithm, const void* x,
                               const void* w, void* workspace, void* y) const {
  check(dnn_, dnn_.SetConvolutionMathType(window_, algorithm.math),
        "choosing how a convolution rounds");
  return dnn_.ConvolutionForward(handle, &kOne, x_, x, w_, w, window_,
                                 static_cast<cudnnConvolutionFwdAlgo_t>(algorithm.number),
                                 workspace, algorithm.workspace, &kZero, y_, y);
}

cudnnStatus_t DnnConv::backward_data(cudnnHandle_t handle, const ConvAlgorithm& algorithm,
                                     const void* w, const void* dy, void* workspace,
                                     void* dx) const {
  check(dnn_, dnn_.SetConvolutionMathType(window_, algorithm.math),
        "choosing how a convolution rounds");
  return dnn_.ConvolutionBackwardData(handle, &kOne, w_, w, y_, dy, window_,
                                      static_cast<cudnnConvolutionBwdDataAlgo_t>(algorithm.number),
                                      workspace, algorithm.workspace, &kZero, x_, dx);
}

cudnnStatus_t DnnConv::backward_filter(cudnnHandle_t handle, const ConvAlgorithm& algorithm,
                                       const void* x, const void* dy, void* workspace, bool adds,
                                       void* dw) const {
  check(dnn_, dnn_.SetConvolutionMathType(window_, algorithm.math),
        "choosing how a convolution rounds");
  return dnn_.ConvolutionBackwardFilter(
      handle, &kOne, x_, x, y_, dy, window_,
      static_cast<cudnnConvolutionBwdFilterAlgo_t>(algorithm.number), workspace,
      algorithm.workspace, adds ? &kOne : &kZero, w_, dw);
}

}  // namespace shoal::ops::cuda
