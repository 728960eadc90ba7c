#include "shoal/tensor/shape.h"

#include <utility>

#include "shoal/base/error.h"
#include "shoal/base/log.h"

namespace shoal {
namespace {

std::string join(const std::vector<std::int64_t>& dims) {
  std::string text;
  for (const std::int64_t dim : dims) text += str(text.empty() ? "" : " ", dim);
  return text;
}

}  // namespace

Shape::Shape(std::vector<std::int64_t> dims) : dims_(std::move(dims)) {
  if (axes() > kMaxAxes)
    throw ConfigError(Code::kConfig, "a shape has ", axes(), " axes; at most ", kMaxAxes,
                      " are allowed");
  for (const std::int64_t dim : dims_)
    if (dim < 0)
      throw ConfigError(Code::kConfig, "the shape ", join(dims_), " has a negative size");
  for (const std::int64_t dim : dims_) {
    if (dim > 0 && count_ > kMaxCount / dim)
      throw ConfigError(Code::kConfig, "the shape ", join(dims_), " has more than ", kMaxCount,
                        " elements");
    count_ *= dim;
  }
}

int Shape::canonical(int axis) const {
  CHECK(has_axis(axis)) << "axis " << axis << " of shape " << str();
  return axis < 0 ? axis + axes() : axis;
}

std::int64_t Shape::operator[](int axis) const {
  return dims_[static_cast<std::size_t>(canonical(axis))];
}

std::int64_t Shape::count(int from, int to) const {
  CHECK(from >= 0 && from <= to && to <= axes())
      << "axes " << from << " to " << to << " of shape " << str();
  std::int64_t count = 1;
  for (int i = from; i < to; ++i) count *= dims_[static_cast<std::size_t>(i)];
  return count;
}

std::string Shape::str() const {
  return shoal::str(join(dims_), dims_.empty() ? "(" : " (", count_, ")");
}

}  // namespace shoal
