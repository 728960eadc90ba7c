// Numbers with a shape, and the bytes they live in. No arithmetic: that is ops.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "shoal/tensor/shape.h"

namespace shoal {

// Zeroed memory, 64-byte aligned. Big blocks take pages only when touched.
class Memory {
 public:
  explicit Memory(std::size_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void* block_;
  std::byte* data_;
  std::size_t bytes_;
};

// The bytes that one tensor, or several that share, look at. Memory comes from a plan (bind) or, if
// nobody planned, is allocated on first use. One thread at a time.
class Storage {
 public:
  std::size_t required() const { return required_; }
  void require(std::size_t bytes) {
    if (bytes > required_) required_ = bytes;
  }
  // From now on the bytes are `memory` from `offset` on; what was here before is lost. required()
  // bytes must be there.
  void bind(std::shared_ptr<Memory> memory, std::size_t offset);
  // As many bytes as required(); old content is kept only while the size is enough.
  std::byte* bytes();
  bool planned() const { return planned_; }

 private:
  std::shared_ptr<Memory> memory_;
  std::size_t offset_ = 0, required_ = 0;
  bool planned_ = false;
};

// float32 numbers in row-major order. The home is the host so far; layers and solvers hand whole
// tensors to ops and only host-only code (data, accuracy, tools, tests) looks inside, by the three
// spans below.
class Tensor {
 public:
  Tensor();
  explicit Tensor(const Shape& shape);
  Tensor(Tensor&&) = default;
  Tensor& operator=(Tensor&&) = default;

  const Shape& shape() const { return shape_; }
  std::int64_t count() const { return shape_.count(); }
  std::size_t bytes() const { return static_cast<std::size_t>(count()) * sizeof(float); }
  // Gives it another shape. Bytes are kept while they suffice; a fresh tensor reads as zeros.
  void reshape(const Shape& shape);
  // From now on this looks at the bytes of `other`, with a shape of its own (its present one).
  void share(const Tensor& other);
  bool shares_with(const Tensor& other) const { return storage_ == other.storage_; }

  std::span<const float> host() const;  // to read
  std::span<float> host_mut();          // to read and write
  // all of it will be overwritten: what was there need not be fetched
  std::span<float> host_out();
  // the same three as plain pointers, for kernels
  float* out() { return host_out().data(); }
  float* mut() { return host_mut().data(); }
  const float* in() const { return host().data(); }

  const std::shared_ptr<Storage>& storage() const { return storage_; }

 private:
  Shape shape_{0};
  std::shared_ptr<Storage> storage_;
};

// What flows between layers, and what they learn: values and the gradient of the loss with respect
// to them.
struct Blob {
  std::string name;
  Tensor data;
  Tensor grad;
  Blob() = default;
  explicit Blob(std::string blob_name) : name(std::move(blob_name)) {}
  const Shape& shape() const { return data.shape(); }
  // Both tensors.
  void reshape(const Shape& shape) { data.reshape(shape), grad.reshape(shape); }
};

}  // namespace shoal
