// topk: of each chunk of 4096 numbers the k that are greatest in magnitude, with their places. The
// bytes: u8 bits of a value, a zero, u16 k; then for each chunk the places in rising order, 12 bits
// each, the first in the lowest bits, with zero bits up to a whole byte, and the values
// (sent_values.h). The last chunk, of m numbers, has k m / 4096 of them, rounded, at least one.
// Sources: Lin et al., "Deep gradient compression", ICLR 2018 (the warm-up); Sarfi et al.,
// "Communication efficient LLM pre-training with SparseLoCo", 2025 (chunks, few bits for values).
#include <cmath>

#include "shoal/table/codecs/greatest.h"
#include "shoal/table/codecs/parts.h"
#include "shoal/table/codecs/sent_values.h"

namespace shoal::table::codecs {
namespace {

constexpr std::size_t kTopKHead = 4;
constexpr std::size_t kMostOfChunk = kChunk / 2;  // places that a chunk may send
constexpr double kFirstShare = 0.25;              // where it falls

// The sizes of the parts of a payload.
struct Form {
  unsigned bits = 32;
  std::size_t k = 1;  // places that a full chunk sends, 1 .. kMostOfChunk

  std::size_t places(std::size_t chunk) const {
    return std::max<std::size_t>(1, (k * chunk + kChunk / 2) / kChunk);
  }
  static std::size_t place_bytes(std::size_t places) { return divided_up(12 * places, 8); }
  std::size_t chunk_bytes(std::size_t chunk) const {
    return place_bytes(places(chunk)) + value_bytes(bits, places(chunk));
  }
  std::size_t bytes(std::size_t numbers) const {
    const std::size_t rest = numbers % kChunk;
    return kTopKHead + numbers / kChunk * chunk_bytes(kChunk) + (rest > 0 ? chunk_bytes(rest) : 0);
  }
};

std::size_t places_of(double share) {
  const double k = std::round(share * static_cast<double>(kChunk));
  return static_cast<std::size_t>(std::clamp(k, 1.0, static_cast<double>(kMostOfChunk)));
}

void write_places(std::span<const std::uint16_t> places, std::byte* at) {
  std::size_t i = 0;
  for (; i + 2 <= places.size(); i += 2, at += 3) {
    const unsigned pair = places[i] | static_cast<unsigned>(places[i + 1]) << 12;
    store(at, static_cast<std::uint16_t>(pair));
    at[2] = static_cast<std::byte>(pair >> 16);
  }
  if (i < places.size()) store(at, places[i]);
}

void read_places(const std::byte* at, std::span<std::uint16_t> places) {
  std::size_t i = 0;
  for (; i + 2 <= places.size(); i += 2, at += 3) {
    const unsigned pair = load<std::uint16_t>(at) | static_cast<unsigned>(at[2]) << 16;
    places[i] = static_cast<std::uint16_t>(pair & 0xfffu);
    places[i + 1] = static_cast<std::uint16_t>(pair >> 12);
  }
  // The bits behind the last place make it too great if they are not zero.
  if (i < places.size()) places[i] = load<std::uint16_t>(at);
}

// Returns "", or why these are no places of a chunk of so many numbers.
std::string wrong_places(std::span<const std::uint16_t> places, std::size_t chunk) {
  std::size_t least = 0;
  for (const std::size_t place : places) {
    if (place < least || place >= chunk)
      return str("has place ", place, " in a chunk of top-k; it must be at least ", least,
                 " and below ", chunk);
    least = place + 1;
  }
  return "";
}

class TopK final : public Codec {
 public:
  explicit TopK(const CodecSpec& spec)
      : share_(spec.amount),
        bits_(spec.bits == 0 ? 32 : spec.bits),
        warm_up_(share_ < kFirstShare ? spec.warm_up : 0) {}
  CodecId id() const override { return topk_id; }
  std::size_t bound(std::size_t numbers) const override { return form_at(0).bytes(numbers); }
  Payload encode(const Values& numbers, const Encoding& how) const override {
    const std::span<const float> data = numbers.data;
    const Form form = form_at(how.clock);
    Payload payload{.codec = topk_id};
    std::byte* at = allocate(payload, form.bytes(data.size())).data();
    store(at, static_cast<std::uint16_t>(form.bits));
    store(at + 2, static_cast<std::uint16_t>(form.k));
    at += kTopKHead;
    GreatestScratch scratch;
    std::uint16_t places[kMostOfChunk];
    float values[kMostOfChunk];
    for (std::size_t begin = 0; begin < data.size(); begin += kChunk) {
      const auto chunk = data.subspan(begin, std::min(kChunk, data.size() - begin));
      const std::size_t k = form.places(chunk.size());
      find_greatest(chunk, k, places, scratch);
      for (std::size_t i = 0; i < k; ++i) values[i] = chunk[places[i]];
      write_places({places, k}, at);
      write_values(form.bits, {values, k}, at + Form::place_bytes(k));
      at += form.chunk_bytes(chunk.size());
    }
    return payload;
  }
  Result<Values> decode(const Payload& payload, std::size_t count) const override {
    const std::size_t bytes = payload.bytes.size();
    if (bytes < kTopKHead)
      return damage("has ", bytes, " bytes, fewer than codec topk begins with");
    const std::byte* at = payload.bytes.data();
    const Form form{.bits = load<std::uint16_t>(at), .k = load<std::uint16_t>(at + 2)};
    if (form.bits != 32 && form.bits != 8 && form.bits != 2)
      return damage("has values of ", form.bits, " bits; codec topk has 32, 8 or 2");
    if (form.k < 1 || form.k > kMostOfChunk)
      return damage("has ", form.k, " numbers of each chunk of top-k; it must be from 1 to ",
                    kMostOfChunk);
    if (bytes != form.bytes(count)) return wrong_length(payload, count, "topk", form.bytes(count));
    at += kTopKHead;
    const auto [numbers, decoded] = new_values(count);
    std::ranges::fill(numbers, 0.0f);
    std::uint16_t places[kMostOfChunk];
    float values[kMostOfChunk];
    for (std::size_t begin = 0; begin < count; begin += kChunk) {
      const std::size_t chunk = std::min(kChunk, count - begin), k = form.places(chunk);
      read_places(at, {places, k});
      if (auto wrong = wrong_places({places, k}, chunk); !wrong.empty()) return damage(wrong);
      if (auto wrong = read_values(form.bits, at + Form::place_bytes(k), {values, k});
          !wrong.empty())
        return damage(wrong);
      for (std::size_t i = 0; i < k; ++i) numbers[begin + places[i]] = values[i];
      at += form.chunk_bytes(chunk);
    }
    return decoded;
  }

 private:
  // Returns the form of a push of this clock. That of clock 0 is the longest.
  Form form_at(Clock clock) const {
    double share = share_;
    if (clock < warm_up_) {
      const double way = static_cast<double>(std::max<Clock>(clock, 0));
      share = kFirstShare * std::pow(share_ / kFirstShare, way / static_cast<double>(warm_up_));
    }
    return {.bits = bits_, .k = places_of(share)};
  }

  const double share_;
  const unsigned bits_;
  const Clock warm_up_;
};

}  // namespace
}  // namespace shoal::table::codecs

namespace shoal::table {

const CodecKind topk_kind = {
    .help = "of each 4096 numbers a share (0.01) that is greatest, with 32, 8 or 2 bits each",
    .amount = 0.01f,
    .least = 0,
    .most = 0.5f,
    .needs_feedback = true,
    .takes_bits = true,
    .takes_stochastic = false,
    .make = [](const CodecSpec& spec) -> std::unique_ptr<Codec> {
      return std::make_unique<codecs::TopK>(spec);
    }};

}  // namespace shoal::table
