// The types of numbers in a CUDA device's memory.
#pragma once

#include <library_types.h>

#include <cstddef>
#include <cstdint>

#include "shoal/tensor/context.h"

namespace shoal::ops::cuda {

enum class ElementType : std::uint8_t { kFloat32, kBfloat16, kFloat16 };

constexpr std::size_t size_of(ElementType type) { return type == ElementType::kFloat32 ? 4 : 2; }

// Returns the type of the numbers that products and convolutions of this precision take.
constexpr ElementType input_type(Precision precision) {
  return precision == Precision::kBfloat16  ? ElementType::kBfloat16
         : precision == Precision::kFloat16 ? ElementType::kFloat16
                                            : ElementType::kFloat32;
}
constexpr bool takes_short(Precision precision) {
  return input_type(precision) != ElementType::kFloat32;
}
// CUDA's name.
constexpr cudaDataType name_of(ElementType type) {
  return type == ElementType::kBfloat16  ? CUDA_R_16BF
         : type == ElementType::kFloat16 ? CUDA_R_16F
                                         : CUDA_R_32F;
}

}  // namespace shoal::ops::cuda
