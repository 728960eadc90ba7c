// The sizes of a tensor's axes, outermost first; a scalar has none.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace shoal {

class Shape {
 public:
  static constexpr int kMaxAxes = 32;
  // Caffe's limit: element counts and BLAS sizes fit an int
  static constexpr std::int64_t kMaxCount = 0x7fffffff;

  Shape() = default;  // a scalar: no axes, one element
  // Throws ConfigError (kConfig) for more than kMaxAxes axes, a negative size, or more than
  // kMaxCount elements.
  Shape(std::initializer_list<std::int64_t> dims) : Shape(std::vector<std::int64_t>(dims)) {}
  explicit Shape(std::vector<std::int64_t> dims);

  int axes() const { return static_cast<int>(dims_.size()); }
  // The size of an axis; -1 is the last. The axis must exist (CHECK).
  std::int64_t operator[](int axis) const;
  bool has_axis(int axis) const { return axis >= -axes() && axis < axes(); }
  // Returns the axis counted from the front; it must exist (CHECK).
  int canonical(int axis) const;
  // Elements of all axes, of those from `from` on, and of [from, to); an empty range counts 1.
  std::int64_t count() const { return count_; }
  std::int64_t count(int from) const { return count(from, axes()); }
  std::int64_t count(int from, int to) const;
  const std::vector<std::int64_t>& dims() const { return dims_; }
  // "64 3 28 28 (150528)", as Caffe prints it.
  std::string str() const;
  bool operator==(const Shape& other) const { return dims_ == other.dims_; }

 private:
  std::vector<std::int64_t> dims_;
  std::int64_t count_ = 1;
};

}  // namespace shoal
