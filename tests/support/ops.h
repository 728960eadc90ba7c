// Serves tests of ops: numbers to draw, tensors with sentinels, and every implementation on one,
// two and three threads.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "shoal/base/random.h"
#include "shoal/ops/backend.h"
#include "shoal/ops/op.h"
#include "shoal/ops/window.h"

namespace shoal::ops {

using Numbers = std::vector<double>;
// A part of the largest number, times the square root of the terms summed.
inline constexpr double kTolerance = 2e-6;

inline Numbers draw(std::int64_t count, std::uint64_t stream, float low = -1, float high = 1) {
  Random random(7, stream);
  Numbers numbers(static_cast<std::size_t>(count));
  for (double& x : numbers) x = random.uniform(low, high);
  return numbers;
}
inline Numbers zeros(std::int64_t count) { return Numbers(static_cast<std::size_t>(count)); }

// The slope of loss(x) = sum of forward(x) * dy at x, by central differences.
inline Numbers slope(const std::function<Numbers(const Numbers&)>& forward, Numbers x,
                     const Numbers& dy) {
  constexpr double kStep = 1e-4;
  Numbers result(x.size());
  const auto loss = [&] {
    const Numbers y = forward(x);
    double total = 0;
    for (std::size_t i = 0; i < y.size(); ++i) total += y[i] * dy[i];
    return total;
  };
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double middle = x[i];
    x[i] = middle + kStep;
    const double above = loss();
    x[i] = middle - kStep;
    result[i] = (above - loss()) / (2 * kStep);
    x[i] = middle;
  }
  return result;
}
inline constexpr std::int64_t kLoose =
    25;  // times the tolerance, squared: for slopes by differences

inline std::int64_t size_of(const Numbers& numbers) {
  return static_cast<std::int64_t>(numbers.size());
}

// Numbers as floats hold them, so that float and double agree about which is larger.
inline Numbers rounded(Numbers numbers) {
  for (double& x : numbers) x = static_cast<float>(x);
  return numbers;
}

// A tensor with sentinels before and after its bytes.
class Guarded {
 public:
  explicit Guarded(const Numbers& numbers)
      : tensor_(Shape{static_cast<std::int64_t>(numbers.size())}) {
    memory_ = host_memory(tensor_.bytes() + 2 * kGuard);
    std::memset(memory_->data(), kByte, memory_->bytes());
    tensor_.storage()->bind(memory_, kGuard);
    std::copy(numbers.begin(), numbers.end(), tensor_.host_out().begin());
  }
  static Guarded poisoned(std::int64_t count) {
    return Guarded(
        Numbers(static_cast<std::size_t>(count), std::numeric_limits<double>::quiet_NaN()));
  }
  ~Guarded() {
    for (std::size_t i = 0; i < kGuard; ++i) {
      EXPECT_EQ(memory_->data()[i], std::byte{kByte})
          << "written " << kGuard - i << " bytes before a buffer";
      EXPECT_EQ(memory_->data()[kGuard + tensor_.bytes() + i], std::byte{kByte})
          << "written " << i << " bytes behind a buffer";
    }
  }
  Tensor& operator*() { return tensor_; }
  Tensor* get() { return &tensor_; }
  void expect(const Numbers& want, const char* what, std::int64_t terms = 1) const {
    double most = 0.01, worst = 0;
    std::size_t where = 0;
    for (const double x : want) most = std::max(most, std::fabs(x));
    for (std::size_t i = 0; i < want.size(); ++i) {
      const double difference = std::fabs(tensor_.host()[i] - want[i]);
      if (!(difference <= worst))
        worst = std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference,
        where = i;
    }
    EXPECT_LE(worst / most, kTolerance * std::sqrt(static_cast<double>(terms)))
        << what << "[" << where << "] is " << tensor_.host()[where] << ", want " << want[where];
  }

 private:
  static constexpr std::size_t kGuard = 256;
  static constexpr unsigned char kByte = 0xa5;
  Tensor tensor_;
  std::shared_ptr<Memory> memory_;
};

// Calls f(kernel, context) for every implementation that serves `desc`, on 1, 2 and 3 threads. The
// last must serve all.
template <class Desc, class Kernel>
void each_kernel(std::span<const Impl<Desc, Kernel>* const> impls, const Desc& desc,
                 const std::function<void(Kernel&, Context&)>& f) {
  for (const Impl<Desc, Kernel>* impl : impls)
    for (int threads = 1; threads <= 3; ++threads) {
      SCOPED_TRACE(str(impl->name, " on ", threads, " threads"));
      Context context({.threads = threads});
      const Why why = impl->supports(desc, context);
      if (impl == impls.back()) {
        ASSERT_EQ(why, "") << "the last implementation serves every description";
      }
      if (!why.empty()) continue;
      const std::unique_ptr<Kernel> kernel = impl->make(desc, context);
      f(*kernel, context);
    }
}

// Each of them, and each with a gradient of the weights that is overwritten.
template <class Desc>
std::vector<Desc> with_overwriting(std::vector<Desc> cases) {
  for (std::size_t i = 0, count = cases.size(); i < count; ++i) {
    cases.push_back(cases[i]);
    cases.back().overwrites_dw = true;
  }
  return cases;
}

inline WindowAxis axis(std::int64_t in, std::int64_t kernel, std::int64_t stride = 1,
                       std::int64_t pad = 0, std::int64_t dilation = 1) {
  return {in,      (in + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1, kernel, stride, pad,
          dilation};
}

}  // namespace shoal::ops
