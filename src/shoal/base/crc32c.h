// Declares the implementations of crc32c (base/bytes.h), so that tests can compare them. Other code
// calls crc32c, which takes the fastest that the processor has.
#pragma once

#include <cstdint>
#include <string_view>

namespace shoal {

// Eight bytes a step by tables, on any machine.
std::uint32_t crc32c_by_tables(std::string_view bytes, std::uint32_t before);

// Computes by the instruction of SSE4.2, on three parts at once. Needs has_crc32c_instruction().
std::uint32_t crc32c_by_instruction(std::string_view bytes, std::uint32_t before);
bool has_crc32c_instruction();

// 256 bytes a step by carry-less products of AVX-512. Only where has_crc32c_vectors().
std::uint32_t crc32c_by_vectors(std::string_view bytes, std::uint32_t before);
bool has_crc32c_vectors();

}  // namespace shoal
