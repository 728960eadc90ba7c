#include "shoal/tensor/tensor.h"

#include <cstdint>
#include <cstdlib>
#include <new>

#include "shoal/base/log.h"

namespace shoal {

Memory::Memory(std::size_t bytes) : bytes_(bytes) {
  constexpr std::size_t kAlign = 64;
  block_ = std::calloc(bytes + kAlign, 1);
  if (block_ == nullptr) throw std::bad_alloc();
  data_ = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(block_) + kAlign - 1) /
                                       kAlign * kAlign);
}

Memory::~Memory() { std::free(block_); }

void Storage::bind(std::shared_ptr<Memory> memory, std::size_t offset) {
  CHECK(memory && offset + required_ <= memory->bytes())
      << required_ << " bytes at " << offset << " of the plan";
  memory_ = std::move(memory);
  offset_ = offset;
  planned_ = true;
}

std::byte* Storage::bytes() {
  if (!memory_ || offset_ + required_ > memory_->bytes()) {
    CHECK(!planned_) << "a planned tensor grew to " << required_ << " bytes without a new plan";
    memory_ = std::make_shared<Memory>(required_);
    offset_ = 0;
  }
  return memory_->data() + offset_;
}

Tensor::Tensor() : storage_(std::make_shared<Storage>()) {}
Tensor::Tensor(const Shape& shape) : Tensor() { reshape(shape); }

void Tensor::reshape(const Shape& shape) {
  shape_ = shape;
  storage_->require(bytes());
}

void Tensor::share(const Tensor& other) {
  storage_ = other.storage_;
  storage_->require(bytes());
}

std::span<const float> Tensor::host() const {
  return {reinterpret_cast<const float*>(storage_->bytes()), static_cast<std::size_t>(count())};
}
std::span<float> Tensor::host_mut() {
  return {reinterpret_cast<float*>(storage_->bytes()), static_cast<std::size_t>(count())};
}
std::span<float> Tensor::host_out() { return host_mut(); }

}  // namespace shoal
