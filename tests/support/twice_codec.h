// A codec for tests that sends each number twice, so that damage shows: the two must be equal.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "shoal/table/codec.h"

namespace shoal::table::test {

inline constexpr CodecId kTwice{200};

class TwiceCodec final : public Codec {
 public:
  CodecId id() const override { return kTwice; }
  std::size_t bound(std::size_t numbers) const override { return 2 * sizeof(float) * numbers; }
  Payload encode(const Values& numbers, const Encoding&) const override {
    const auto twice = std::make_shared<std::vector<float>>();
    for (const float number : numbers.data) twice->insert(twice->end(), 2, number);
    return {kTwice, std::as_bytes(std::span(*twice)), twice};
  }
  Result<Values> decode(const Payload& payload, std::size_t count) const override {
    if (payload.bytes.size() != bound(count))
      return Error{Code::kPeer,
                   str("has ", payload.bytes.size(), " bytes for ", count, " numbers")};
    const auto numbers = std::make_shared<std::vector<float>>(count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::byte* const pair = payload.bytes.data() + 2 * sizeof(float) * i;
      if (std::memcmp(pair, pair + sizeof(float), sizeof(float)) != 0)
        return Error{Code::kPeer, str("has two numbers ", i, " that differ")};
      std::memcpy(&(*numbers)[i], pair, sizeof(float));
    }
    return Values{*numbers, numbers};
  }
};

// Makes the product's codecs and this one.
inline std::unique_ptr<Codec> make_test_codec(const CodecSpec& spec) {
  return spec.id == kTwice ? std::make_unique<TwiceCodec>() : make_codec(spec);
}

}  // namespace shoal::table::test
