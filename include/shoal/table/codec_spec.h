// The choice of a codec: a name and what it is told. People write it as words, "topk:0.01:2".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "shoal/base/error.h"
#include "shoal/table/types.h"

namespace shoal::table {

struct CodecSpec {
  CodecId id = CodecId::kFloat32;
  // topk: the share of the numbers that is sent; twobit, threshold: the size from which a number is
  // sent; lowrank: the rank.
  float amount = 0;
  std::uint8_t bits = 0;    // of each value that topk sends: 32, 8 or 2
  bool stochastic = false;  // int8 rounds at random, so that the mean is right
  // The rest that a payload leaves out is added to the next one's numbers.
  bool feedback = false;
  // The momentum that a worker adds up before it encodes (momentum correction); 0: none.
  float momentum = 0;
  // The share of topk falls from a quarter to `amount` in so many clocks.
  std::int32_t warm_up = 0;
  bool operator==(const CodecSpec&) const = default;
};

// Returns the spec that the words mean, with the codec's own values for what they leave out. The
// error says what is wrong with them.
Result<CodecSpec> parse_codec(std::string_view words);
// Returns the words that mean this spec.
std::string words_of(const CodecSpec& spec);
// Returns "", or why the spec means nothing.
std::string validate(const CodecSpec& spec);
// Returns the name of a codec, or "codec N" if this build has none of this id.
std::string name_of(CodecId id);

}  // namespace shoal::table
