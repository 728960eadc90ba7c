// Error feedback: what a payload of a lossy codec leaves out is added to the numbers of the next
// one, so that no part of a sum of gradients is lost, only late.
//
//   u  = momentum * u + g                 momentum correction; without it u = g
//   v  = u + (rate before / rate) * e     e: what was left out so far, in units of the numbers
//   c  = encode(v), e = v - decode(c)     c is sent
//   u  = 0 where decode(c) is not 0
//
// An encoding of the whole sends v itself, and e = 0.
#pragma once

#include <memory>

#include "shoal/table/codec.h"

namespace shoal::table {

// Returns the codec with error feedback. Its state is the rate of the last encoding; what was left
// out, as many numbers as the row; the momentum as well, if it is above 0; and the codec's own.
std::unique_ptr<Codec> with_error_feedback(std::unique_ptr<Codec> codec, float momentum);

// Returns the part of a state of such a row that was left out.
CodecState left_out(CodecState state, std::size_t numbers);

}  // namespace shoal::table
