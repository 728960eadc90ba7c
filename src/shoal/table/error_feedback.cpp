#include "shoal/table/error_feedback.h"

#include <algorithm>

#include "shoal/base/log.h"

namespace shoal::table {
namespace {

class ErrorFeedback final : public Codec {
 public:
  ErrorFeedback(std::unique_ptr<Codec> codec, float momentum)
      : codec_(std::move(codec)), momentum_(momentum) {}

  CodecId id() const override { return codec_->id(); }
  std::size_t bound(std::size_t numbers) const override { return codec_->bound(numbers); }
  std::size_t state_length(std::size_t numbers) const override {
    return own_length(numbers) + codec_->state_length(numbers);
  }

  Payload encode(const Values& numbers, const Encoding& how) const override {
    const std::size_t n = numbers.data.size();
    CHECK_EQ(how.state.size(), state_length(n)) << "state of a row of " << n;
    float& rate = how.state[0];
    const CodecState left = left_out(how.state, n);
    const float scale = rate > 0 && how.rate > 0 ? rate / how.rate : 1;
    rate = how.rate;
    const CodecState velocity = momentum_ > 0 ? how.state.subspan(1 + n, n) : CodecState();
    add(numbers.data, velocity, scale, left);
    if (how.whole) return whole(left, velocity);
    Encoding inner = how;
    inner.state = how.state.subspan(own_length(n));
    // The codec reads the sum where the rest will be.
    const Payload payload = codec_->encode({.data = left}, inner);
    const Result<Values> sent = codec_->decode(payload, n);
    CHECK(sent.ok()) << "what was encoded " << sent.error().message;
    subtract(sent.value().data, left, velocity);
    return payload;
  }
  Result<Values> decode(const Payload& payload, std::size_t count) const override {
    return codec_->decode(payload, count);
  }

 private:
  std::size_t own_length(std::size_t numbers) const {
    return 1 + (momentum_ > 0 ? 2 : 1) * numbers;
  }
  void add(std::span<const float> numbers, CodecState velocity, float scale,
           CodecState left) const {
    if (velocity.empty()) {
      for (std::size_t i = 0; i < left.size(); ++i) left[i] = numbers[i] + scale * left[i];
      return;
    }
    for (std::size_t i = 0; i < left.size(); ++i) {
      velocity[i] = momentum_ * velocity[i] + numbers[i];
      left[i] = velocity[i] + scale * left[i];
    }
  }
  static Payload whole(CodecState left, CodecState velocity) {
    const auto [copy, values] = new_values(left.size());
    std::ranges::copy(left, copy.begin());
    subtract(copy, left, velocity);
    return as_payload(values);
  }
  static void subtract(std::span<const float> sent, CodecState left, CodecState velocity) {
    for (std::size_t i = 0; i < left.size(); ++i) left[i] -= sent[i];
    for (std::size_t i = 0; i < velocity.size(); ++i)
      if (sent[i] != 0) velocity[i] = 0;
  }

  const std::unique_ptr<Codec> codec_;
  const float momentum_;
};

}  // namespace

std::unique_ptr<Codec> with_error_feedback(std::unique_ptr<Codec> codec, float momentum) {
  return std::make_unique<ErrorFeedback>(std::move(codec), momentum);
}

CodecState left_out(CodecState state, std::size_t numbers) { return state.subspan(1, numbers); }

}  // namespace shoal::table
