// Products and convolutions of a CUDA device, our own and those of cuBLAS and cuDNN, beside the
// CPU's; and what is said when a library is missing or fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "cuda/devices.h"
#include "cuda/fake_libraries.h"
#include "shoal/ops/cpu/elementary.h"
#include "shoal/ops/cpu/impls.h"
#include "shoal/ops/cuda/elementary.h"
#include "shoal/ops/cuda/impls.h"
#include "support/expect.h"
#include "support/ops.h"

namespace shoal::test::cuda_libraries_test {
namespace {

using ops::axis, ops::Trans;

Tensor drawn(std::int64_t count, std::uint64_t stream) {
  Tensor tensor(Shape{count});
  const ops::Numbers numbers = ops::draw(count, stream);
  std::copy(numbers.begin(), numbers.end(), tensor.host_out().begin());
  return tensor;
}
Tensor copy_of(const Tensor& tensor) {
  Tensor copy(tensor.shape());
  std::ranges::copy(tensor.host(), copy.host_out().begin());
  return copy;
}
Tensor poisoned(std::int64_t count) {
  Tensor tensor(Shape{count});
  std::ranges::fill(tensor.host_out(), std::numeric_limits<float>::quiet_NaN());
  return tensor;
}

// The largest difference, as a part of the largest number that is wanted.
double difference(const Tensor& got, const Tensor& want) {
  double most = 0.01, worst = 0;
  for (const float x : want.host()) most = std::max<double>(most, std::fabs(x));
  for (std::int64_t i = 0; i < want.count(); ++i) {
    const double off = std::fabs(double{got.host()[i]} - want.host()[i]);
    if (!(off <= worst)) worst = std::isnan(off) ? std::numeric_limits<double>::infinity() : off;
  }
  return worst / most;
}
void expect_near(const Tensor& got, const Tensor& want, std::int64_t terms, const char* what,
                 double tolerance = ops::kTolerance) {
  EXPECT_LE(difference(got, want), tolerance * std::sqrt(static_cast<double>(terms))) << what;
}

class CudaLibraries : public testing::TestWithParam<const Device*> {
 protected:
  ~CudaLibraries() override { fail_library(0); }
  Context cpu_{{}}, gpu_{{.device = GetParam()}};
};
INSTANTIATE_TEST_SUITE_P(Devices, CudaLibraries, testing::ValuesIn(cuda_devices()),
                         cuda_device_name);

// ---- products ----

TEST_P(CudaLibraries, AProductIsTheCpus) {
  struct Case {
    std::int64_t m, n, k;
    float alpha, beta;
  };
  for (const auto& [m, n, k, alpha, beta] :
       {Case{1, 1, 1, 1, 0}, {3, 5, 7, 2, 0}, {65, 3, 17, 1, 1}, {2, 33, 70, -1, 0.5f}})
    for (const Trans a_as : {Trans::kNo, Trans::kYes})
      for (const Trans b_as : {Trans::kNo, Trans::kYes}) {
        const Tensor a = drawn(m * k, 1), b = drawn(k * n, 2);
        Tensor got = beta == 0 ? poisoned(m * n) : drawn(m * n, 3), want = copy_of(got);
        ops::cuda::gemm(gpu_, a_as, b_as, m, n, k, alpha, a, b, beta, got);
        ops::cpu::gemm(cpu_, a_as, b_as, m, n, k, alpha, a, b, beta, want);
        expect_near(got, want, k, "c");
      }
}

TEST_P(CudaLibraries, APrecisionIsKept) {
  const std::int64_t m = 64, n = 48, k = 256;
  const Tensor a = drawn(m * k, 1), b = drawn(k * n, 2);
  Tensor want(Shape{m * n}), exact(Shape{m * n}), coarse(Shape{m * n});
  Context tf32({.device = GetParam(), .precision = Precision::kTf32});
  ops::cpu::gemm(cpu_, Trans::kNo, Trans::kNo, m, n, k, 1, a, b, 0, want);
  ops::cuda::gemm(gpu_, Trans::kNo, Trans::kNo, m, n, k, 1, a, b, 0, exact);
  ops::cuda::gemm(tf32, Trans::kNo, Trans::kNo, m, n, k, 1, a, b, 0, coarse);
  EXPECT_LT(difference(exact, want), 3e-6);
  EXPECT_GT(difference(coarse, want), 1e-5);
  EXPECT_LT(difference(coarse, want), 1e-2);
}

TEST_P(CudaLibraries, ADenseLayerIsTheCpus) {
  for (const ops::DenseDesc& desc :
       ops::with_overwriting<ops::DenseDesc>({{4, 30, 10}, {3, 50, 70, true}, {1, 20, 33}})) {
    const auto [m, k, n, is_kn, overwrites_dw, relu] = desc;
    const Tensor x = drawn(m * k, 1), w = drawn(k * n, 2), b = drawn(n, 3), dy = drawn(m * n, 4);
    const auto ours = ops::cuda::kDense.make(desc, gpu_), cpus = ops::cpu::kDense.make(desc, cpu_);
    Tensor y = poisoned(m * n), want_y(Shape{m * n}), dx = poisoned(m * k), want_dx(Shape{m * k});
    Tensor dw = overwrites_dw ? poisoned(k * n) : drawn(k * n, 5), want_dw = copy_of(dw),
           db = drawn(n, 6), want_db = copy_of(db);
    ours->forward(gpu_, x, w, &b, y);
    cpus->forward(cpu_, x, w, &b, want_y);
    expect_near(y, want_y, k, "y");
    ours->backward(gpu_, x, w, dy, &dx, &dw, &db);
    cpus->backward(cpu_, x, w, dy, &want_dx, &want_dw, &want_db);
    if (overwrites_dw) ours->backward(gpu_, x, w, dy, nullptr, &dw, nullptr);
    expect_near(dx, want_dx, n, "dx");
    expect_near(dw, want_dw, m, "dw");
    expect_near(db, want_db, m, "db");
    ours->forward(gpu_, x, w, nullptr, y);
    cpus->forward(cpu_, x, w, nullptr, want_y);
    expect_near(y, want_y, k, "y without a bias");
  }
}

// ---- convolutions ----

std::vector<ops::ConvDesc> conv_cases() {
  return ops::with_overwriting<ops::ConvDesc>({
      {1, 1, 1, 1, {axis(1, 1), axis(1, 1)}},
      {5, 3, 4, 1, {axis(7, 3, 1, 1), axis(6, 3, 1, 1)}},
      {2, 4, 6, 2, {axis(9, 3, 2, 1), axis(8, 5, 3, 2)}, 0.0f},    // groups; ReLU
      {3, 6, 6, 6, {axis(8, 3, 1, 1), axis(9, 3, 1, 1)}, 0.25f},   // depthwise; leaky ReLU
      {2, 8, 8, 2, {axis(9, 1, 2), axis(10, 1, 2)}},               // 1 x 1, stride 2
      {2, 3, 5, 1, {axis(11, 3, 1, 2, 2), axis(12, 2, 2, 0, 3)}},  // dilated
      {2, 2, 3, 1, {axis(2, 5, 1, 4), axis(3, 5, 1, 4)}},          // mostly padding
      {2, 10, 8, 1, {axis(9, 2, 4), axis(9, 3, 5, 1)}},            // strides that skip places
      {2, 6, 9, 1, {axis(5, 3, 1, 1), axis(4, 2, 2), axis(6, 3, 2, 1)}},  // three axes
      {3, 3, 5, 1, {axis(9, 3, 2, 1)}},                                   // one
      {1, 2, 3, 1, {axis(3, 2), axis(4, 1), axis(3, 2, 1, 1), axis(2, 2, 2, 1, 2)}},
      {2, 5, 3, 1, {}},  // none: a matrix product
  });
}

struct ConvNumbers {
  explicit ConvNumbers(const ops::ConvDesc& desc)
      : x(drawn(desc.images * desc.channels * desc.in_count(), 1)),
        w(drawn(desc.outputs * desc.channels / desc.groups * desc.taps(), 2)),
        b(drawn(desc.outputs, 3)),
        dy(drawn(desc.images * desc.outputs * desc.out_count(), 4)),
        y(poisoned(dy.count())),
        dx(poisoned(x.count())),
        dw(desc.overwrites_dw ? poisoned(w.count()) : drawn(w.count(), 5)),
        db(drawn(b.count(), 6)) {}
  Tensor x, w, b, dy, y, dx, dw, db;
};

void expect_same_results(const ConvNumbers& got, const ConvNumbers& want, const ops::ConvDesc& desc,
                         double tolerance) {
  expect_near(got.y, want.y, desc.channels / desc.groups * desc.taps(), "y", tolerance);
  expect_near(got.dx, want.dx, desc.outputs / desc.groups * desc.taps(), "dx", tolerance);
  expect_near(got.dw, want.dw, desc.images * desc.out_count(), "dw", tolerance);
  expect_near(got.db, want.db, desc.images * desc.out_count(), "db", tolerance);
}

// The kernel beside the CPU's, with all that it can be given and with as little.
void compare(ops::ConvKernel& kernel, const ops::ConvDesc& desc, Context& gpu, Context& cpu,
             double tolerance = ops::kTolerance) {
  const auto cpus = ops::cpu::kConv.make(desc, cpu);
  ConvNumbers got(desc), want(desc);
  kernel.forward(gpu, got.x, got.w, &got.b, got.y);
  cpus->forward(cpu, want.x, want.w, &want.b, want.y);
  kernel.backward(gpu, got.x, got.w, got.dy, &got.dx, &got.dw, &got.db);
  cpus->backward(cpu, want.x, want.w, want.dy, &want.dx, &want.dw, &want.db);
  const Tensor nothing = poisoned(0);
  if (desc.overwrites_dw) kernel.backward(gpu, got.x, nothing, got.dy, nullptr, &got.dw, nullptr);
  expect_same_results(got, want, desc, tolerance);

  ConvNumbers parts(desc);
  kernel.forward(gpu, parts.x, parts.w, nullptr, parts.y);
  cpus->forward(cpu, want.x, want.w, nullptr, want.y);
  kernel.backward(gpu, parts.x, nothing, parts.dy, nullptr, &parts.dw, nullptr);
  kernel.backward(gpu, nothing, parts.w, parts.dy, &parts.dx, nullptr, nullptr);
  kernel.backward(gpu, nothing, nothing, parts.dy, nullptr, nullptr, &parts.db);
  expect_same_results(parts, want, desc, tolerance);
}

std::string describe(const ops::ConvDesc& desc) {
  return str(desc.images, " images, ", desc.channels, " channels, ", desc.axes.size(), " axes");
}

TEST_P(CudaLibraries, OurConvolutionIsTheCpus) {
  for (const ops::ConvDesc& desc : conv_cases()) {
    SCOPED_TRACE(describe(desc));
    EXPECT_EQ(ops::cuda::kConv.supports(desc, gpu_), "");
    compare(*ops::cuda::kConv.make(desc, gpu_), desc, gpu_, cpu_);
  }
}

TEST_P(CudaLibraries, CudnnsConvolutionIsTheCpus) {
  if (!ops::cuda::no_dnn(gpu_).empty()) GTEST_SKIP() << ops::cuda::no_dnn(gpu_);
  for (const ops::ConvDesc& desc : conv_cases()) {
    SCOPED_TRACE(describe(desc));
    const ops::Why why = ops::cuda::kConvCudnn.supports(desc, gpu_);
    EXPECT_EQ(why, desc.axes.size() > 3 ? "it convolves over three axes at most, not 4" : "");
    if (!why.empty()) continue;
    compare(*ops::cuda::kConvCudnn.make(desc, gpu_), desc, gpu_, cpu_);
  }
}

TEST_P(CudaLibraries, InTf32CudnnsConvolutionIsTheCpusButForRounding) {
  constexpr double kRounding = 1e-3;  // 2^-10, of each of two factors half of it
  Context tf32({.device = GetParam(), .precision = Precision::kTf32});
  for (const ops::ConvDesc& desc : conv_cases()) {
    SCOPED_TRACE(describe(desc));
    if (!ops::cuda::kConvCudnn.supports(desc, tf32).empty()) continue;
    compare(*ops::cuda::kConvCudnn.make(desc, tf32), desc, tf32, cpu_, kRounding);
  }
}

TEST_P(CudaLibraries, ConvolutionsHaveTheSameBitsTwice) {
  const ops::ConvDesc desc{5, 6, 8, 2, {axis(13, 3, 1, 1), axis(11, 3, 2, 1)}};
  for (const ops::ConvImpl* impl : {&ops::cuda::kConv, &ops::cuda::kConvCudnn}) {
    if (!impl->supports(desc, gpu_).empty()) continue;
    const auto kernel = impl->make(desc, gpu_), again = impl->make(desc, gpu_);
    ConvNumbers first(desc), second(desc);
    for (ConvNumbers* one : {&first, &second}) {
      ops::ConvKernel& conv = one == &first ? *kernel : *again;
      conv.forward(gpu_, one->x, one->w, &one->b, one->y);
      conv.backward(gpu_, one->x, one->w, one->dy, &one->dx, &one->dw, &one->db);
    }
    EXPECT_TRUE(std::ranges::equal(first.y.host(), second.y.host()));
    EXPECT_TRUE(std::ranges::equal(first.dx.host(), second.dx.host()));
    EXPECT_TRUE(std::ranges::equal(first.dw.host(), second.dw.host()));
    EXPECT_TRUE(std::ranges::equal(first.db.host(), second.db.host()));
  }
}

// ---- softmax ----

TEST_P(CudaLibraries, CudnnsSoftmaxIsTheCpus) {
  if (!ops::cuda::no_dnn(gpu_).empty()) GTEST_SKIP() << ops::cuda::no_dnn(gpu_);
  for (const ops::SoftmaxDesc& desc :
       {ops::SoftmaxDesc{1, 1, 1}, {5, 1000, 1}, {3, 7, 40}, {70000, 3, 1}}) {
    const std::int64_t count = desc.outer * desc.channels * desc.inner;
    const auto ours = ops::cuda::kSoftmaxCudnn.make(desc, gpu_),
               cpus = ops::cpu::kSoftmax.make(desc, cpu_);
    const Tensor x = drawn(count, 1), dy = drawn(count, 2);
    Tensor y = poisoned(count), want_y(Shape{count}), dx = poisoned(count), want_dx(Shape{count});
    ours->forward(gpu_, x, y);
    cpus->forward(cpu_, x, want_y);
    expect_near(y, want_y, desc.channels, "y");
    ours->backward(gpu_, y, dy, dx);
    cpus->backward(cpu_, want_y, dy, want_dx);
    expect_near(dx, want_dx, desc.channels, "dx");
    Tensor place = copy_of(x), slope = copy_of(dy);
    ours->forward(gpu_, place, place);
    ours->backward(gpu_, place, slope, slope);
    expect_near(place, want_y, desc.channels, "y in the place of x");
    expect_near(slope, want_dx, desc.channels, "dx in the place of dy");
  }
}

// ---- a library as it is called ----

TEST(CudaFakes, CudnnsAlgorithmFollowsThePrecision) {
  const ops::ConvDesc desc{2, 16, 8, 1, {axis(8, 3, 1, 1), axis(8, 3, 1, 1)}};
  ConvNumbers want(desc);
  Context cpu({});
  ops::cpu::kConv.make(desc, cpu)->forward(cpu, want.x, want.w, nullptr, want.y);
  for (const Precision precision : {Precision::kFloat32, Precision::kTf32}) {
    Context gpu({.device = &fake_gpu(), .precision = precision});
    const auto kernel = ops::cuda::kConvCudnn.make(desc, gpu);
    EXPECT_EQ(kernel->needs(gpu).workspace, 250) << "floats of the one that fits";
    ConvNumbers got(desc);
    kernel->forward(gpu, got.x, got.w, nullptr, got.y);
    EXPECT_EQ(difference(got.y, want.y) < 1e-5, precision == Precision::kFloat32);
  }
}

TEST(CudaFakes, AFailureOfALibraryIsADeviceError) {
  Context gpu({.device = &fake_gpu()});
  const auto words_of = [](const auto& compute) -> std::string {
    fail_library(1);
    try {
      compute();
    } catch (const DeviceError& error) {
      return error.what();
    }
    return "nothing";
  };
  const Tensor a = drawn(4, 1);
  Tensor c(Shape{4});
  EXPECT_EQ(words_of([&] { ops::cuda::gemm(gpu, Trans::kNo, Trans::kNo, 2, 2, 2, 1, a, a, 0, c); }),
            "multiplying matrices on GPU 0: cuBLAS says CUBLAS_STATUS_EXECUTION_FAILED");
  const ops::ConvDesc desc{1, 1, 1, 1, {axis(4, 3), axis(4, 3)}};
  const auto kernel = ops::cuda::kConvCudnn.make(desc, gpu);
  ConvNumbers numbers(desc);
  EXPECT_EQ(words_of([&] { kernel->forward(gpu, numbers.x, numbers.w, nullptr, numbers.y); }),
            "convolving: cuDNN says CUDNN_STATUS_EXECUTION_FAILED, a detail");
}

TEST(CudaFakes, AStreamHasAHandleOfItsOwn) {
  Context first({.device = &fake_gpu()}), second({.device = &fake_gpu(1)});
  EXPECT_EQ(ops::cuda::dnn_of(first), ops::cuda::dnn_of(first));
  EXPECT_NE(ops::cuda::dnn_of(first), ops::cuda::dnn_of(second));
  EXPECT_EQ(ops::cuda::blas_of(first).handle(), ops::cuda::blas_of(first).handle());
  EXPECT_NE(ops::cuda::blas_of(first).handle(), ops::cuda::blas_of(second).handle());
}

// ---- libraries that are not there ----

TEST(CudaLibraryFiles, AMissingCublasIsNamedWithWhatToInstall) {
  try {
    ops::cuda::load_blas({"libnowhere.so.13", "/nowhere/libnowhere.so"});
    FAIL() << "it was found";
  } catch (const DeviceError& error) {
    EXPECT_HAS(error.what(), "computing on a GPU needs cuBLAS, which cannot be loaded: ");
    EXPECT_HAS(error.what(), "libnowhere.so.13: cannot open shared object file");
    EXPECT_HAS(error.what(), "install the cuBLAS of CUDA ");
  }
}

TEST(CudaLibraryFiles, AMissingCudnnIsNamedWithWhatToInstall) {
  const std::string why = ops::cuda::load_dnn({"libnowhere.so.9"}).why;
  EXPECT_HAS(why, "cuDNN cannot be loaded: libnowhere.so.9: cannot open shared object file");
  EXPECT_HAS(why, "; install cuDNN ");
}

TEST(CudaLibraryFiles, ALibraryWithoutAFunctionIsNamedWithIt) {
  EXPECT_HAS(ops::cuda::load_dnn({"libc.so.6"}).why, "it has no function cudnnCreate");
}

}  // namespace
}  // namespace shoal::test::cuda_libraries_test
