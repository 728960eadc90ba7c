// Division by a number that many elements are divided by, without the GPU's slow division.
#pragma once

#include <cstdint>

namespace shoal::ops::cuda {

// Divides i in [0, 2^31), which every count of elements is below. Source: Granlund and Montgomery,
// "Division by invariant integers using multiplication", PLDI 1994.
class Divisor {
 public:
  // `value` in [1, 2^31); 0 becomes 1, since an empty tensor divides nothing.
  explicit Divisor(std::int64_t value) : value_(static_cast<std::uint32_t>(value > 0 ? value : 1)) {
    while ((std::uint64_t{1} << (shift_ - 31)) < value_) ++shift_;
    factor_ = ((std::uint64_t{1} << shift_) + value_ - 1) / value_;
  }
  __host__ __device__ friend std::int64_t operator/(std::int64_t i, Divisor by) {
    return static_cast<std::int64_t>(static_cast<std::uint32_t>(i) * by.factor_ >> by.shift_);
  }
  __host__ __device__ friend std::int64_t operator%(std::int64_t i, Divisor by) {
    return i - i / by * by.value_;
  }
  __host__ __device__ std::int64_t value() const { return value_; }

 private:
  std::uint32_t value_;
  int shift_ = 31;
  std::uint64_t factor_;  // 2^shift over the value, rounded up: below 2^32
};

}  // namespace shoal::ops::cuda
