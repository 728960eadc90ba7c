// Codecs turn the numbers of a row into the bytes of a payload, and back. A plan names one for each
// row and direction.
#pragma once

#include "shoal/base/error.h"
#include "shoal/table/types.h"

namespace shoal::table {

// A codec keeps nothing between calls, and may be called by several threads at once.
class Codec {
 public:
  virtual ~Codec() = default;
  virtual CodecId id() const = 0;
  // The most bytes that so many numbers become: at most kMaxPayloadBytes for kMaxRowFloats.
  virtual std::size_t bound(std::size_t numbers) const = 0;
  // The payload shares the numbers and their owner, or has an owner of its own.
  virtual Payload encode(const Values& numbers) const = 0;
  // The `count` numbers of a payload, which they may share. The error completes the sentence "The
  // push ..." and says what is wrong with the bytes.
  virtual Result<Values> decode(const Payload& payload, std::size_t count) const = 0;
};

// The codec of this number; null if this build has none.
using CodecFinder = const Codec* (*)(CodecId);
const Codec* find_codec(CodecId id);
// The numbers as they are in memory, which payloads share: nothing is copied.
const Codec& float32_codec();

// As Codec::decode. A payload of another codec is an error.
Result<Values> decode_with(const Codec& codec, const Payload& payload, std::size_t count);

}  // namespace shoal::table
