// Writes and reads little-endian integers, and computes crc32c. Structs are never cast to bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace shoal {

template <class Unsigned>
void put_le(std::string& out, Unsigned value) {
  for (std::size_t i = 0; i < sizeof(Unsigned); ++i)
    out.push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

// Reads the first sizeof(Unsigned) bytes of `bytes`; the caller has checked that they are there.
template <class Unsigned>
Unsigned get_le(std::string_view bytes) {
  Unsigned value = 0;
  for (std::size_t i = 0; i < sizeof(Unsigned); ++i)
    value |= static_cast<Unsigned>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  return value;
}

// The bytes as characters, where they are.
template <std::size_t count>
std::string_view chars_of(const std::array<std::uint8_t, count>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), count};
}

// Castagnoli's CRC (reflected polynomial 0x82f63b78); crc32c("123456789") is 0xe3069283. `before`
// continues an earlier call.
std::uint32_t crc32c(std::string_view bytes, std::uint32_t before = 0);

}  // namespace shoal
