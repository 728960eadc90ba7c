// The values of the numbers that top-k sends of a chunk, in 32, 8 or 2 bits each:
//   32  an f32 for each
//   8   f32 scale, then an i8 code for each
//   2   f32 low, f32 high, then two bits for each, the first in the lowest bits of a byte: the sign
//       (1 is minus), then the level (1 is high); zero bits up to a whole byte
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace shoal::table::codecs {

// Returns the bytes of so many values.
std::size_t value_bytes(unsigned bits, std::size_t count);
// Writes the values, at least one. With 2 bits the levels are the means of two classes of
// magnitudes. Two ways to divide these are tried: from the middle of the least and the greatest on,
// and from the mean on, each moved twice to the middle of the two means (Lloyd, "Least squares
// quantization in PCM", 1982). The way whose levels leave out the lesser sum of squares is taken;
// the first if both leave out the same. From the middle alone a single great magnitude would often
// keep the high level to itself.
void write_values(unsigned bits, std::span<const float> values, std::byte* at);
// Reads values.size() values, all finite. Returns "", or the end of a sentence "The push ..." that
// says what is wrong with the bytes.
std::string read_values(unsigned bits, const std::byte* at, std::span<float> values);

}  // namespace shoal::table::codecs
