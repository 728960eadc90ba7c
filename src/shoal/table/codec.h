// Codecs turn the numbers of a row into the bytes of a payload, and back. A plan names one for each
// row and direction.
#pragma once

#include <span>

#include "shoal/base/error.h"
#include "shoal/table/types.h"

namespace shoal::table {

// The numbers that a codec keeps of one row from one call to the next, on one side: for example
// what it left out of a gradient. Zeros at first. Empty: nothing is kept. Only its codec knows
// their meaning; they are saved whole.
using CodecState = std::span<float>;

// Encodes and decodes rows. A codec keeps nothing between calls, and may be called by several
// threads at once, for different states.
class Codec {
 public:
  virtual ~Codec() = default;
  virtual CodecId id() const = 0;
  // Returns the most bytes that so many numbers become: at most kMaxPayloadBytes for kMaxRowFloats.
  virtual std::size_t bound(std::size_t numbers) const = 0;
  // Returns the length of the state of a row of so many numbers. For pushes the worker has a state
  // to encode by, and the server one for each worker to decode by. For answers the server has one
  // state to encode by, which all readers share.
  virtual std::size_t state_length(std::size_t /*numbers*/) const { return 0; }
  // Returns the number of pushes, each with its answer, that one contribution takes. A later one
  // may depend on the answer to an earlier one. A plan with a row that takes more than one is
  // refused so far.
  virtual int rounds() const { return 1; }
  // Returns a payload that shares the numbers and their owner, or has an owner of its own. With a
  // state it is called once for each contribution: repeated sends have the same bytes.
  virtual Payload encode(const Values& numbers, CodecState state = {}, int round = 0) const = 0;
  // Returns the `count` numbers of a payload, which they may share. With a state, call it in the
  // order in which payloads were encoded. The error completes the sentence "The push ..." and names
  // what is wrong with the bytes; the state is then as before.
  virtual Result<Values> decode(const Payload& payload, std::size_t count, CodecState state = {},
                                int round = 0) const = 0;
};

// Returns the codec of this id; null if this build has none.
using CodecFinder = const Codec* (*)(CodecId);
const Codec* find_codec(CodecId id);
// Returns the codec whose payloads share the numbers in memory: nothing is copied.
const Codec& float32_codec();

// Decodes as Codec::decode does. A payload of another codec is an error.
Result<Values> decode_with(const Codec& codec, const Payload& payload, std::size_t count,
                           CodecState state = {});

}  // namespace shoal::table
