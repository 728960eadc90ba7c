// oneDNN as Shoal uses it: one engine, and primitives with memory that the caller brings. This file
// alone knows the differences between oneDNN 2 and 3.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "shoal/ops/blocked_channels.h"
#include "shoal/tensor/context.h"

namespace shoal::ops::dnnl {

namespace lib = ::dnnl;

const lib::engine& engine();

// oneDNN fixes the number of threads of a primitive when it is made, and takes it from OpenMP. For
// as long as this lives, the calling thread's number is that of the context.
class ThreadsOf {
 public:
  explicit ThreadsOf(const Context& ctx);
  ~ThreadsOf();
  ThreadsOf(const ThreadsOf&) = delete;

 private:
  int before_;
};

// Returns the block of channels that the library's kernels work on here: 16 with AVX-512, else 8.
int channel_block();

// Tells whether products of 16 bits take as long here as float32 by Winograd's algorithm, or
// longer: on processors whose units for 512 bits are of half that width, and on those without such
// products.
bool short_products_are_slow();

inline lib::memory::data_type type_of(NumberType type) {
  return type == NumberType::kBfloat16 ? lib::memory::data_type::bf16 : lib::memory::data_type::f32;
}

// Attributes of a primitive that takes its scratchpad from the caller.
lib::primitive_attr own_scratchpad();

// Tells whether the library made code for this; its plain loops are slower than ours.
bool is_generated(const std::string& implementation);

// Describes a primitive, in the library's order of arguments. Throws lib::error if it has none.
template <class Primitive, class... Arguments>
typename Primitive::primitive_desc describe(const lib::primitive_attr& attributes,
                                            const Arguments&... arguments) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine(), arguments..., attributes};
#else
  return {typename Primitive::desc(arguments...), attributes, engine()};
#endif
}
// The same for a backward pass, which the library derives from a forward pass.
template <class Primitive, class Forward, class... Arguments>
typename Primitive::primitive_desc describe_backward(const lib::primitive_attr& attributes,
                                                     const Forward& forward,
                                                     const Arguments&... arguments) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine(), arguments..., forward, attributes};
#else
  return {typename Primitive::desc(arguments...), attributes, engine(), forward};
#endif
}

inline lib::memory over(const lib::memory::desc& desc, const void* bytes) {
  return {desc, engine(), const_cast<void*>(bytes)};
}
void run(const lib::primitive& primitive, const std::unordered_map<int, lib::memory>& arguments);

// Cuts a block of scratch into aligned pieces. Without a block it only counts.
class Pieces {
 public:
  explicit Pieces(std::byte* block = nullptr) : block_(block) {}
  std::byte* take(std::size_t bytes) {
    std::byte* const piece = block_ == nullptr ? nullptr : block_ + used_;
    used_ += (bytes + kAlign - 1) / kAlign * kAlign;
    return piece;
  }
  std::int64_t floats() const { return static_cast<std::int64_t>(used_ / sizeof(float)); }

 private:
  static constexpr std::size_t kAlign = 64;
  std::byte* block_;
  std::size_t used_ = 0;
};

}  // namespace shoal::ops::dnnl
