// Codecs turn the numbers of a row into the bytes of a payload, and back. A plan names one for each
// row and direction.
#pragma once

#include <memory>
#include <span>

#include "shoal/base/error.h"
#include "shoal/table/codec_spec.h"
#include "shoal/table/types.h"

namespace shoal::table {

// The circumstances of an encoding.
struct Encoding {
  CodecState state{};  // state_length() floats
  Clock clock = 0;     // of the push
  // The learning rate by which the receiver multiplies the numbers; 0: they are changes of weights.
  float rate = 0;
  std::uint64_t seed = 0;  // of random numbers; another for each row and clock
  // A codec with error feedback leaves nothing out: the payload is float32.
  bool whole = false;
};

// Encodes and decodes rows. A codec keeps nothing between calls, and may be called by several
// threads at once, for different states. The same arguments give the same bytes on every machine.
class Codec {
 public:
  virtual ~Codec() = default;
  virtual CodecId id() const = 0;
  // Returns the most bytes that so many numbers become: at most kMaxPayloadBytes for kMaxRowFloats.
  virtual std::size_t bound(std::size_t numbers) const = 0;
  // Returns the length of the state of a row of so many numbers.
  virtual std::size_t state_length(std::size_t /*numbers*/) const { return 0; }
  // Returns a payload that shares the numbers and their owner, or has an owner of its own. The
  // numbers are finite. Called once for each contribution: repeated sends have the same bytes.
  virtual Payload encode(const Values& numbers, const Encoding& how = {}) const = 0;
  // Returns the `count` numbers of a payload, which they may share. The error completes the
  // sentence "The push ..." and names what is wrong with the bytes. All numbers that it returns are
  // finite, except those of float32, which the caller examines.
  virtual Result<Values> decode(const Payload& payload, std::size_t count) const = 0;
};

// Describes a codec: the words of its own file.
struct CodecKind {
  const char* help;     // a line for people
  float amount;         // where none is given; 0: it takes none
  float least, most;    // the amounts allowed; above `least`
  bool needs_feedback;  // without it training would not converge
  bool takes_bits, takes_stochastic;
  std::unique_ptr<Codec> (*make)(const CodecSpec& spec);
};

// Returns what its file says of a codec; null if this build has none of this id, or for float32.
const CodecKind* find_codec_kind(CodecId id);

// Makes the codec of a spec, with its error feedback; null if this build has none, and for float32.
std::unique_ptr<Codec> make_codec(const CodecSpec& spec);
using CodecMaker = std::unique_ptr<Codec> (*)(const CodecSpec&);
// Returns the codec whose payloads share the numbers in memory: nothing is copied.
const Codec& float32_codec();

// Sets numbers to what a reader of their payload gets.
void round_as(const Codec& codec, std::span<float> numbers);

// Makes memory for `count` numbers that a codec decodes.
inline std::pair<std::span<float>, Values> new_values(std::size_t count) {
  const auto memory = std::make_shared_for_overwrite<float[]>(count);
  return {{memory.get(), count}, {{memory.get(), count}, memory}};
}

// Decodes as Codec::decode does. A payload of float32 is decoded whatever the codec: that is what
// is sent instead where the codec cannot. One of another codec is an error.
Result<Values> decode_with(const Codec& codec, const Payload& payload, std::size_t count);

}  // namespace shoal::table
