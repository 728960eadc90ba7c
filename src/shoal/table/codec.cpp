#include "shoal/table/codec.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "shoal/base/log.h"
#include "shoal/table/broken.h"
#include "shoal/table/codecs/kinds.h"
#include "shoal/table/error_feedback.h"

namespace shoal::table {

namespace {

class Float32 final : public Codec {
 public:
  CodecId id() const override { return CodecId::kFloat32; }
  std::size_t bound(std::size_t numbers) const override { return numbers * sizeof(float); }
  Payload encode(const Values& numbers, const Encoding&) const override {
    return as_payload(numbers);
  }
  Result<Values> decode(const Payload& payload, std::size_t count) const override {
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

const CodecKind* find_codec_kind(CodecId id) {
  struct Known {
    CodecId id;
    const CodecKind* kind;
  };
  constexpr Known kKnown[] = {
#define CODEC(id, name, number) {CodecId::id, &name##_kind},
#include "shoal/table/codecs.def"
  };
  const auto known = std::ranges::find(kKnown, id, &Known::id);
  return known == std::end(kKnown) ? nullptr : known->kind;
}

std::unique_ptr<Codec> make_codec(const CodecSpec& spec) {
  if (spec.id == CodecId::kFloat32 || !validate(spec).empty()) return nullptr;
  std::unique_ptr<Codec> made = find_codec_kind(spec.id)->make(spec);
  return made && spec.feedback ? with_error_feedback(std::move(made), spec.momentum)
                               : std::move(made);
}

Result<Values> decode_with(const Codec& codec, const Payload& payload, std::size_t count) {
  if (payload.codec == codec.id()) return codec.decode(payload, count);
  if (payload.codec == CodecId::kFloat32) return float32_codec().decode(payload, count);
  return broken("is in ", name_of(payload.codec), "; the plan says ", name_of(codec.id()));
}

void round_as(const Codec& codec, std::span<float> numbers) {
  if (codec.id() == CodecId::kFloat32 || numbers.empty()) return;
  const Result<Values> read = codec.decode(codec.encode({.data = numbers}), numbers.size());
  CHECK(read.ok()) << "what was encoded " << read.error().message;
  std::ranges::copy(read.value().data, numbers.begin());
}

Payload owned(const Payload& payload) {
  if (payload.owner || payload.bytes.empty()) return payload;
  Payload copy{.codec = payload.codec};
  const std::size_t bytes = payload.bytes.size();
  std::memcpy(allocate(copy, bytes).data(), payload.bytes.data(), bytes);
  return copy;
}

}  // namespace shoal::table
