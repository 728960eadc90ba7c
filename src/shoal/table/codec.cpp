#include "shoal/table/codec.h"

#include <cstring>

#include "shoal/table/broken.h"

namespace shoal::table {
namespace {

class Float32 final : public Codec {
 public:
  CodecId id() const override { return CodecId::kFloat32; }
  std::size_t bound(std::size_t numbers) const override { return numbers * sizeof(float); }
  Payload encode(const Values& numbers, CodecState, int) const override {
    return as_payload(numbers);
  }
  Result<Values> decode(const Payload& payload, std::size_t count, CodecState, int) const override {
    const std::size_t bytes = payload.bytes.size();
    if (bytes % sizeof(float) != 0)
      return broken("has ", bytes, " bytes of numbers, which are four bytes each");
    if (bytes != bound(count))
      return broken("has ", bytes / sizeof(float), " numbers; the row has ", count);
    return Values{payload.floats(), payload.owner};
  }
};

}  // namespace

const Codec& float32_codec() {
  static const Float32 codec;
  return codec;
}

const Codec* find_codec(CodecId id) { return id == CodecId::kFloat32 ? &float32_codec() : nullptr; }

Result<Values> decode_with(const Codec& codec, const Payload& payload, std::size_t count,
                           CodecState state) {
  if (payload.codec == codec.id()) return codec.decode(payload, count, state);
  return broken("is in codec ", static_cast<int>(payload.codec), "; the plan says codec ",
                static_cast<int>(codec.id()));
}

Payload owned(const Payload& payload) {
  if (payload.owner || payload.bytes.empty()) return payload;
  Payload copy{.codec = payload.codec};
  const std::size_t bytes = payload.bytes.size();
  std::memcpy(allocate(copy, bytes).data(), payload.bytes.data(), bytes);
  return copy;
}

}  // namespace shoal::table
