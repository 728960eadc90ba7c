#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <utility>

#include <gtest/gtest.h>

#include "cuda/fake_cuda.h"
#include "cuda/fake_libraries.h"
#include "shoal/ops/cpu/impls.h"

// cuDNN's own header leaves these opaque.
struct cudnnContext {
  cudaStream_t stream = nullptr;
};
struct cudnnTensorStruct {
  std::vector<int> sizes;
  bool channels_last = false;
  cudaDataType type = CUDA_R_32F;
};
struct cudnnFilterStruct {
  std::vector<int> sizes;
  bool channels_last = false;
  cudaDataType type = CUDA_R_32F;
};
struct cudnnConvolutionStruct {
  std::vector<int> pad, stride, dilation;
  int groups = 1;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};

namespace shoal::test {
namespace {

using Window = cudnnConvolutionDescriptor_t;

template <class D>
cudnnStatus_t make(D** descriptor) {
  *descriptor = std::make_unique<D>().release();
  return CUDNN_STATUS_SUCCESS;
}
template <class D>
cudnnStatus_t destroy(D* descriptor) {
  const std::unique_ptr<D> owned(descriptor);
  return CUDNN_STATUS_SUCCESS;
}

std::int64_t count_of(const std::vector<int>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies{});
}
template <class Described>
bool is_there(const Described& what, const void* data) {
  return in_fake_memory(data, static_cast<std::size_t>(count_of(what.sizes)) * size_of(what.type));
}
// Types that are computed with; others: false.
bool set_type(cudnnDataType_t type, cudaDataType& to) {
  to = type == CUDNN_DATA_BFLOAT16 ? CUDA_R_16BF
       : type == CUDNN_DATA_HALF   ? CUDA_R_16F
                                   : CUDA_R_32F;
  return type == CUDNN_DATA_FLOAT || to != CUDA_R_32F;
}

// Returns whether the numbers are in this order; some are in both.
template <class Described>
bool is_in_order(const Described& what, bool channels_last) {
  const std::int64_t channels = what.sizes[1];
  return what.channels_last == channels_last || channels == 1 ||
         what.sizes[0] * channels == count_of(what.sizes);
}

// The description of which these are the descriptors, without outputs where they do not fit.
ops::ConvDesc describe(const cudnnTensorStruct& x, const cudnnFilterStruct& w,
                       const cudnnConvolutionStruct& window, const cudnnTensorStruct& y) {
  ops::ConvDesc desc{.images = x.sizes[0],
                     .channels = x.sizes[1],
                     .outputs = w.sizes[0],
                     .groups = window.groups,
                     .axes = {}};
  const bool last = x.channels_last || y.channels_last || w.channels_last;
  bool fits = x.type == w.type && x.type == y.type && is_in_order(x, last) &&
              is_in_order(w, last) && is_in_order(y, last) &&
              x.sizes.size() == window.pad.size() + 2 && w.sizes.size() == x.sizes.size() &&
              y.sizes.size() == x.sizes.size() && y.sizes[0] == x.sizes[0] &&
              y.sizes[1] == w.sizes[0] && w.sizes[1] * window.groups == x.sizes[1];
  for (std::size_t i = 0; fits && i < window.pad.size(); ++i) {
    desc.axes.push_back({x.sizes[i + 2], y.sizes[i + 2], w.sizes[i + 2], window.stride[i],
                         window.pad[i], window.dilation[i]});
    const int seen = window.dilation[i] * (w.sizes[i + 2] - 1) + 1;
    fits = y.sizes[i + 2] == (x.sizes[i + 2] + 2 * window.pad[i] - seen) / window.stride[i] + 1;
  }
  if (!fits) desc.outputs = 0;
  return desc;
}

// Lists the algorithms of every pass: the first three must not be taken in float32, the fourth
// needs a workspace, and there is more room in the list.
constexpr int kGood = 1;
constexpr std::size_t kWorkspace = 1000;
template <class Entry>
cudnnStatus_t list(int most, int* count, Entry* entries) {
  if (most < 4) return CUDNN_STATUS_BAD_PARAM;
  using Number = decltype(entries->algo);
  const auto entry = [](int number, cudnnDeterminism_t determinism, cudnnMathType_t math) {
    Entry made{};
    made.algo = static_cast<Number>(number);
    made.determinism = determinism;
    made.mathType = math;
    return made;
  };
  entries[0] = entry(0, CUDNN_NON_DETERMINISTIC, CUDNN_FMA_MATH);
  entries[1] = entry(2, CUDNN_DETERMINISTIC, CUDNN_FMA_MATH);  // a workspace of 1 GiB
  entries[2] = entry(kGood, CUDNN_DETERMINISTIC, CUDNN_TENSOR_OP_MATH);
  entries[3] = entry(kGood, CUDNN_DETERMINISTIC, CUDNN_FMA_MATH);
  *count = 4;
  return CUDNN_STATUS_SUCCESS;
}
template <class Number>
cudnnStatus_t workspace_of(Number algorithm, std::size_t* bytes) {
  *bytes = static_cast<int>(algorithm) == kGood ? kWorkspace : std::size_t{1} << 30;
  return CUDNN_STATUS_SUCCESS;
}

// Returns where number i of the plain order is.
template <class Described>
std::int64_t place_of(const Described& what, std::int64_t i) {
  if (!what.channels_last) return i;
  const std::int64_t channels = what.sizes[1],
                     inner = count_of(what.sizes) / what.sizes[0] / channels;
  return (i / inner / channels * inner + i % inner) * channels + i / inner % channels;
}
// The numbers at `data` as a plain tensor, as the precision rounds them; and back.
template <class Described>
Tensor load(const Described& what, const void* data, cudnnMathType_t math = CUDNN_FMA_MATH) {
  Tensor tensor(Shape{count_of(what.sizes)});
  float* const out = tensor.out();
  for (std::int64_t i = 0; i < tensor.count(); ++i) {
    const float x = load_number(data, what.type, place_of(what, i));
    out[i] = math == CUDNN_TENSOR_OP_MATH ? round_to_tf32(x) : x;
  }
  return tensor;
}
template <class Described>
void store(const Described& what, const Tensor& tensor, void* data) {
  for (std::int64_t i = 0; i < tensor.count(); ++i)
    store_number(tensor.in()[i], data, what.type, place_of(what, i));
}

// Checks a pass and queues compute(kernel of the CPU, its context), between two of which the
// workspace holds nothing.
template <class Number, class Compute>
cudnnStatus_t queue(cudnnHandle_t handle, const ops::ConvDesc& desc, cudnnMathType_t math,
                    Number algorithm, void* workspace, std::size_t bytes, bool operands_are_there,
                    Compute compute) {
  if (handle->stream == nullptr) return CUDNN_STATUS_NOT_INITIALIZED;
  if (library_fails()) return CUDNN_STATUS_EXECUTION_FAILED;
  if (desc.outputs == 0 || !operands_are_there || bytes < kWorkspace ||
      !in_fake_memory(workspace, bytes))
    return CUDNN_STATUS_BAD_PARAM;
  EXPECT_EQ(static_cast<int>(algorithm), kGood);
  EXPECT_NE(math, CUDNN_DEFAULT_MATH) << "which lets TF32 in";
  fake_cuda().run_on_host(handle->stream, [=] {
    std::memset(workspace, 0xff, bytes);
    Context ctx({});
    compute(*ops::cpu::kConv.make(desc, ctx), ctx);
  });
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t forward(cudnnHandle_t handle, const void* alpha, const cudnnTensorDescriptor_t x,
                      const void* x_data, const cudnnFilterDescriptor_t w, const void* w_data,
                      const Window window, cudnnConvolutionFwdAlgo_t algorithm, void* workspace,
                      std::size_t bytes, const void* beta, const cudnnTensorDescriptor_t y,
                      void* y_data) {
  EXPECT_EQ(*static_cast<const float*>(alpha), 1);
  EXPECT_EQ(*static_cast<const float*>(beta), 0);
  return queue(
      handle, describe(*x, *w, *window, *y), window->math, algorithm, workspace, bytes,
      is_there(*x, x_data) && is_there(*w, w_data) && is_there(*y, y_data),
      [=, x = *x, w = *w, y = *y, math = window->math](ops::ConvKernel& conv, Context& ctx) {
        Tensor out = load(y, y_data);
        conv.forward(ctx, load(x, x_data, math), load(w, w_data, math), nullptr, out);
        store(y, out, y_data);
      });
}

cudnnStatus_t backward_data(cudnnHandle_t handle, const void* alpha,
                            const cudnnFilterDescriptor_t w, const void* w_data,
                            const cudnnTensorDescriptor_t y, const void* y_data,
                            const Window window, cudnnConvolutionBwdDataAlgo_t algorithm,
                            void* workspace, std::size_t bytes, const void* beta,
                            const cudnnTensorDescriptor_t x, void* x_data) {
  EXPECT_EQ(*static_cast<const float*>(alpha), 1);
  EXPECT_EQ(*static_cast<const float*>(beta), 0);
  return queue(
      handle, describe(*x, *w, *window, *y), window->math, algorithm, workspace, bytes,
      is_there(*x, x_data) && is_there(*w, w_data) && is_there(*y, y_data),
      [=, x = *x, w = *w, y = *y, math = window->math](ops::ConvKernel& conv, Context& ctx) {
        Tensor out = load(x, x_data);
        conv.backward(ctx, out, load(w, w_data, math), load(y, y_data, math), &out, nullptr,
                      nullptr);
        store(x, out, x_data);
      });
}

cudnnStatus_t backward_filter(cudnnHandle_t handle, const void* alpha,
                              const cudnnTensorDescriptor_t x, const void* x_data,
                              const cudnnTensorDescriptor_t y, const void* y_data,
                              const Window window, cudnnConvolutionBwdFilterAlgo_t algorithm,
                              void* workspace, std::size_t bytes, const void* beta,
                              const cudnnFilterDescriptor_t w, void* w_data) {
  const bool adds = *static_cast<const float*>(beta) == 1;
  EXPECT_EQ(*static_cast<const float*>(alpha), 1);
  EXPECT_TRUE(adds || *static_cast<const float*>(beta) == 0);
  EXPECT_TRUE(!adds || w->type == CUDA_R_32F) << "sums of gradients are not for 16 bits";
  return queue(
      handle, describe(*x, *w, *window, *y), window->math, algorithm, workspace, bytes,
      is_there(*x, x_data) && is_there(*w, w_data) && is_there(*y, y_data),
      [=, x = *x, w = *w, y = *y, math = window->math](ops::ConvKernel& conv, Context& ctx) {
        Tensor out = adds ? load(w, w_data) : Tensor(Shape{count_of(w.sizes)});
        conv.backward(ctx, load(x, x_data, math), out, load(y, y_data, math), nullptr, &out,
                      nullptr);
        store(w, out, w_data);
      });
}

// Checks a softmax and queues compute(kernel of the CPU, its context).
template <class Compute>
cudnnStatus_t queue_softmax(cudnnHandle_t handle, cudnnSoftmaxAlgorithm_t algorithm,
                            cudnnSoftmaxMode_t mode, const void* alpha, const void* beta,
                            const cudnnTensorStruct& x, std::initializer_list<const void*> data,
                            Compute compute) {
  EXPECT_EQ(*static_cast<const float*>(alpha), 1);
  EXPECT_EQ(*static_cast<const float*>(beta), 0);
  if (handle->stream == nullptr) return CUDNN_STATUS_NOT_INITIALIZED;
  if (library_fails()) return CUDNN_STATUS_EXECUTION_FAILED;
  if (algorithm != CUDNN_SOFTMAX_ACCURATE || mode != CUDNN_SOFTMAX_MODE_CHANNEL ||
      x.sizes.size() != 4 || x.type != CUDA_R_32F ||
      !std::ranges::all_of(data, [&](const void* at) { return is_there(x, at); }))
    return CUDNN_STATUS_BAD_PARAM;
  fake_cuda().run_on_host(handle->stream, [=, sizes = x.sizes] {
    Context ctx({});
    const ops::SoftmaxDesc desc{sizes[0], sizes[1], std::int64_t{sizes[2]} * sizes[3]};
    compute(*ops::cpu::kSoftmax.make(desc, ctx), ctx);
  });
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t softmax(cudnnHandle_t handle, cudnnSoftmaxAlgorithm_t algorithm,
                      cudnnSoftmaxMode_t mode, const void* alpha, const cudnnTensorDescriptor_t x,
                      const void* x_data, const void* beta, const cudnnTensorDescriptor_t y,
                      void* y_data) {
  EXPECT_EQ(x->sizes, y->sizes);
  return queue_softmax(handle, algorithm, mode, alpha, beta, *x, {x_data, y_data},
                       [=, x = *x](ops::SoftmaxKernel& kernel, Context& ctx) {
                         Tensor out = load(x, y_data);
                         kernel.forward(ctx, load(x, x_data), out);
                         store(x, out, y_data);
                       });
}

cudnnStatus_t softmax_backward(cudnnHandle_t handle, cudnnSoftmaxAlgorithm_t algorithm,
                               cudnnSoftmaxMode_t mode, const void* alpha,
                               const cudnnTensorDescriptor_t y, const void* y_data,
                               const cudnnTensorDescriptor_t dy, const void* dy_data,
                               const void* beta, const cudnnTensorDescriptor_t dx, void* dx_data) {
  EXPECT_EQ(y->sizes, dy->sizes);
  EXPECT_EQ(y->sizes, dx->sizes);
  return queue_softmax(handle, algorithm, mode, alpha, beta, *y, {y_data, dy_data, dx_data},
                       [=, y = *y](ops::SoftmaxKernel& kernel, Context& ctx) {
                         Tensor out = load(y, dx_data);
                         kernel.backward(ctx, load(y, y_data), load(y, dy_data), out);
                         store(y, out, dx_data);
                       });
}

cudnnStatus_t set_tensor(cudnnTensorDescriptor_t tensor, cudnnDataType_t type, int axes,
                         const int sizes[], const int strides[]) {
  if (!set_type(type, tensor->type) || axes < 4 || axes > 8) return CUDNN_STATUS_NOT_SUPPORTED;
  tensor->sizes.assign(sizes, sizes + axes);
  if (std::ranges::any_of(tensor->sizes, [](int size) { return size < 1; }))
    return CUDNN_STATUS_BAD_PARAM;
  const auto is_packed = [&](std::vector<int> order) {  // innermost axis first
    int stride = 1;
    return std::ranges::all_of(order, [&](int axis) {
      return std::exchange(stride, stride * sizes[axis]) == strides[axis];
    });
  };
  std::vector<int> plain(static_cast<std::size_t>(axes));
  std::iota(plain.rbegin(), plain.rend(), 0);
  std::vector<int> last = plain;
  std::ranges::rotate(last.begin(), last.end() - 2, last.end() - 1);
  tensor->channels_last = !is_packed(plain);
  return is_packed(plain) || is_packed(last) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t set_filter(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                         cudnnTensorFormat_t format, int axes, const int sizes[]) {
  if (!set_type(type, filter->type) || axes < 4) return CUDNN_STATUS_NOT_SUPPORTED;
  filter->channels_last = format == CUDNN_TENSOR_NHWC;
  filter->sizes.assign(sizes, sizes + axes);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t set_window(Window window, int axes, const int pad[], const int stride[],
                         const int dilation[], cudnnConvolutionMode_t mode, cudnnDataType_t type) {
  if (axes < 2 || axes > 3 || mode != CUDNN_CROSS_CORRELATION || type != CUDNN_DATA_FLOAT)
    return CUDNN_STATUS_NOT_SUPPORTED;
  window->pad.assign(pad, pad + axes);
  window->stride.assign(stride, stride + axes);
  window->dilation.assign(dilation, dilation + axes);
  return CUDNN_STATUS_SUCCESS;
}

using X = const cudnnTensorDescriptor_t;
using W = const cudnnFilterDescriptor_t;

}  // namespace

const ops::cuda::Dnn& fake_dnn() {
  static const ops::cuda::Dnn table = {
      .Create = make<cudnnContext>,
      .Destroy = destroy<cudnnContext>,
      .SetStream =
          [](cudnnHandle_t handle, cudaStream_t stream) {
            return handle->stream = stream, CUDNN_STATUS_SUCCESS;
          },
      .GetErrorString =
          [](cudnnStatus_t status) {
            return status == CUDNN_STATUS_EXECUTION_FAILED ? "CUDNN_STATUS_EXECUTION_FAILED"
                                                           : "CUDNN_STATUS_BAD_PARAM";
          },
      .GetLastErrorString = [](char* text,
                               std::size_t size) { std::strncpy(text, "a detail", size); },
      .CreateTensorDescriptor = make<cudnnTensorStruct>,
      .DestroyTensorDescriptor = destroy<cudnnTensorStruct>,
      .SetTensorNdDescriptor = set_tensor,
      .CreateFilterDescriptor = make<cudnnFilterStruct>,
      .DestroyFilterDescriptor = destroy<cudnnFilterStruct>,
      .SetFilterNdDescriptor = set_filter,
      .CreateConvolutionDescriptor = make<cudnnConvolutionStruct>,
      .DestroyConvolutionDescriptor = destroy<cudnnConvolutionStruct>,
      .SetConvolutionNdDescriptor = set_window,
      .SetConvolutionGroupCount = [](Window window,
                                     int n) { return window->groups = n, CUDNN_STATUS_SUCCESS; },
      .SetConvolutionMathType =
          [](Window window, cudnnMathType_t math) {
            return window->math = math, CUDNN_STATUS_SUCCESS;
          },
      .GetConvolutionForwardAlgorithm_v7 =
          [](cudnnHandle_t, X, W, const Window, X, const int most, int* count,
             cudnnConvolutionFwdAlgoPerf_t* entries) { return list(most, count, entries); },
      .GetConvolutionBackwardDataAlgorithm_v7 =
          [](cudnnHandle_t, W, X, const Window, X, const int most, int* count,
             cudnnConvolutionBwdDataAlgoPerf_t* entries) { return list(most, count, entries); },
      .GetConvolutionBackwardFilterAlgorithm_v7 =
          [](cudnnHandle_t, X, X, const Window, W, const int most, int* count,
             cudnnConvolutionBwdFilterAlgoPerf_t* entries) { return list(most, count, entries); },
      .GetConvolutionForwardWorkspaceSize =
          [](cudnnHandle_t, X, W, const Window, X, cudnnConvolutionFwdAlgo_t algorithm,
             std::size_t* bytes) { return workspace_of(algorithm, bytes); },
      .GetConvolutionBackwardDataWorkspaceSize =
          [](cudnnHandle_t, W, X, const Window, X, cudnnConvolutionBwdDataAlgo_t algorithm,
             std::size_t* bytes) { return workspace_of(algorithm, bytes); },
      .GetConvolutionBackwardFilterWorkspaceSize =
          [](cudnnHandle_t, X, X, const Window, W, cudnnConvolutionBwdFilterAlgo_t algorithm,
             std::size_t* bytes) { return workspace_of(algorithm, bytes); },
      .ConvolutionForward = forward,
      .ConvolutionBackwardData = backward_data,
      .ConvolutionBackwardFilter = backward_filter,
      .SoftmaxForward = softmax,
      .SoftmaxBackward = softmax_backward,
  };
  return table;
}

}  // namespace shoal::test
