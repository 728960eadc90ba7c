// Makes a plain tensor over bytes that something else owns.
#pragma once

#include <memory>

#include "shoal/tensor/tensor.h"

namespace shoal::test {

// The bytes must outlive the tensor, which has the shape's count of float32 there.
inline Tensor borrow(const Shape& shape, std::byte* bytes) {
  class Borrowed final : public Memory {
   public:
    Borrowed(std::byte* data, std::size_t size) : Memory(nullptr, size) { data_ = data; }
  };
  const std::size_t size = static_cast<std::size_t>(shape.count()) * sizeof(float);
  return Tensor(shape, std::make_shared<Borrowed>(bytes, size), 0);
}

}  // namespace shoal::test
