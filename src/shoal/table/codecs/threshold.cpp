// threshold: the places of the numbers whose magnitude is at least a threshold, each of which then
// counts as plus or minus the threshold. The bytes: the threshold as f32, then a u32 for each such
// number in rising order: its place, and in bit 31 a 1 for minus. Source: Strom, "Scalable
// distributed DNN training using commodity GPU cloud computing", Interspeech 2015.
#include <cmath>
#include <limits>

#include "shoal/table/codecs/parts.h"

namespace shoal::table::codecs {
namespace {

constexpr std::size_t kThresholdHead = 4;
constexpr std::size_t kThresholdRun = 128;  // numbers; one in which all are small is passed over
constexpr std::uint32_t kMinus = 0x80000000u;

std::size_t count_of_sent(std::span<const float> numbers, float threshold) {
  std::uint32_t count = 0;  // of at most kMaxRowFloats
  for (const float number : numbers) count += std::abs(number) >= threshold;
  return count;
}

class Threshold final : public Codec {
 public:
  explicit Threshold(float threshold) : threshold_(threshold) {}
  CodecId id() const override { return threshold_id; }
  std::size_t bound(std::size_t numbers) const override { return kThresholdHead + 4 * numbers; }
  Payload encode(const Values& numbers, const Encoding&) const override {
    const std::span<const float> data = numbers.data;
    Payload payload{.codec = threshold_id};
    std::byte* at = allocate(payload, kThresholdHead + 4 * count_of_sent(data, threshold_)).data();
    store(at, threshold_);
    for (std::size_t begin = 0; begin < data.size(); begin += kThresholdRun) {
      const auto run = data.subspan(begin, std::min(kThresholdRun, data.size() - begin));
      if (count_of_sent(run, threshold_) == 0) continue;
      for (std::size_t i = 0; i < run.size(); ++i)
        if (std::abs(run[i]) >= threshold_) {
          at += 4;
          store(at, static_cast<std::uint32_t>(begin + i) | (run[i] < 0 ? kMinus : 0));
        }
    }
    return payload;
  }
  Result<Values> decode(const Payload& payload, std::size_t count) const override {
    const std::size_t bytes = payload.bytes.size();
    if (bytes < kThresholdHead || bytes > bound(count) || bytes % 4 != 0)
      return damage("has ", bytes, " bytes; up to ", count,
                    " entries of codec threshold take a multiple of 4 from 4 to ", bound(count));
    const std::byte* const entries = payload.bytes.data() + kThresholdHead;
    const auto threshold = load<float>(payload.bytes.data());
    if (!is_size(threshold) || threshold == 0) return not_a_size("threshold", threshold);
    std::size_t least = 0;  // that the next place may be
    for (std::size_t i = 0; i < (bytes - kThresholdHead) / 4; ++i) {
      const std::size_t place = load<std::uint32_t>(entries + 4 * i) & ~kMinus;
      if (place < least || place >= count)
        return damage("has place ", place, " as entry ", i, "; it must be at least ", least,
                      " and below ", count);
      least = place + 1;
    }
    const auto [numbers, values] = new_values(count);
    std::ranges::fill(numbers, 0.0f);
    for (std::size_t i = 0; i < (bytes - kThresholdHead) / 4; ++i) {
      const auto entry = load<std::uint32_t>(entries + 4 * i);
      numbers[entry & ~kMinus] = (entry & kMinus) != 0 ? -threshold : threshold;
    }
    return values;
  }

 private:
  const float threshold_;
};

}  // namespace
}  // namespace shoal::table::codecs

namespace shoal::table {

const CodecKind threshold_kind = {
    .help = "the numbers from a threshold (0.01) on, as plus or minus it; four bytes for each",
    .amount = 0.01f,
    .least = 0,
    .most = std::numeric_limits<float>::max(),
    .needs_feedback = true,
    .takes_bits = false,
    .takes_stochastic = false,
    .make = [](const CodecSpec& spec) -> std::unique_ptr<Codec> {
      return std::make_unique<codecs::Threshold>(spec.amount);
    }};

}  // namespace shoal::table
