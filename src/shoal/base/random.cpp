// Implements the numbers that are made from the Philox generator.
#include "shoal/base/random.h"

#include <cmath>
#include <numbers>
#include <random>

namespace shoal {

std::uint64_t stream_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

Random Random::fork(std::string_view name) const {
  // Mixes the names: under xor fork(a).fork(b) would be fork(b).fork(a).
  const auto mixed = philox(state_.stream, stream_of(name), 0);
  return Random(state_.seed, std::uint64_t{mixed[0]} << 32 | mixed[1]);
}

std::uint32_t Random::peek(std::uint64_t offset) const { return word_at(state_, offset); }

std::uint32_t Random::word() {
  if (state_.position / 4 != block_at_) {
    block_at_ = state_.position / 4;
    block_ = philox(state_.seed, state_.stream, block_at_);
  }
  return block_[state_.position++ % 4];
}

float Random::gaussian(float mean, float std) {
  // The logarithm is of a number in (0, 1].
  const double radius = std::sqrt(-2.0 * std::log(1.0 - word() * 0x1p-32));
  const double angle = 2.0 * std::numbers::pi * (word() * 0x1p-32);
  return static_cast<float>(mean + std * radius * std::cos(angle));
}

std::uint64_t Random::below(std::uint64_t n) {
  // The limit is the last value of a whole number of ranges.
  const std::uint64_t limit = ~std::uint64_t{0} - (~std::uint64_t{0} % n + 1) % n;
  std::uint64_t value = word64();
  while (value > limit) value = word64();
  return value % n;
}

std::uint64_t random_seed() {
  std::random_device device;
  return (std::uint64_t{device()} << 32 | device()) & 0x7fffffffffffffff;
}

}  // namespace shoal
