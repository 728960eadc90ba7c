// Counter-based random numbers: the n-th number of a stream is a pure function of (seed, stream,
// n), so threads can draw parts of one sequence in any order, and a snapshot of a generator is
// three integers. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011
// (Philox4x32-10).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "shoal/base/on_any_device.h"

namespace shoal {

// Four random words for one counter value.
SHOAL_ON_ANY_DEVICE inline std::array<std::uint32_t, 4> philox(std::uint64_t seed,
                                                               std::uint64_t stream,
                                                               std::uint64_t counter) {
  constexpr std::uint32_t kMul0 = 0xD2511F53, kMul1 = 0xCD9E8D57, kWeyl0 = 0x9E3779B9,
                          kWeyl1 = 0xBB67AE85;
  std::uint32_t c0 = static_cast<std::uint32_t>(counter),
                c1 = static_cast<std::uint32_t>(counter >> 32);
  std::uint32_t c2 = static_cast<std::uint32_t>(stream),
                c3 = static_cast<std::uint32_t>(stream >> 32);
  std::uint32_t k0 = static_cast<std::uint32_t>(seed), k1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{kMul0} * c0, p1 = std::uint64_t{kMul1} * c2;
    const std::uint32_t next0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const std::uint32_t next2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c0 = next0;
    c1 = static_cast<std::uint32_t>(p1);
    c2 = next2;
    c3 = static_cast<std::uint32_t>(p0);
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  return {c0, c1, c2, c3};
}

// Returns a number in [0, 1), 24 bits.
SHOAL_ON_ANY_DEVICE inline float to_unit(std::uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

// Returns a 64-bit hash of a name that is the same on every machine and in every version (FNV-1a);
// names streams.
std::uint64_t stream_of(std::string_view name);

class Random {
 public:
  struct State {
    std::uint64_t seed = 0;
    std::uint64_t stream = 0;
    std::uint64_t position = 0;  // words drawn so far
    bool operator==(const State&) const = default;
  };

  explicit Random(std::uint64_t seed = 0, std::uint64_t stream = 0) : state_{seed, stream, 0} {}
  explicit Random(const State& state) : state_(state) {}

  const State& state() const { return state_; }
  // Returns a generator of the same seed that shares no numbers with this one.
  Random fork(std::string_view name) const;

  // Returns the word at position() + offset, which does not move the position. Any thread may call
  // it.
  std::uint32_t peek(std::uint64_t offset) const;
  // Moves the position past `words` words, which the caller has peeked at or will not use.
  void skip(std::uint64_t words) { state_.position += words; }

  std::uint32_t word();
  std::uint64_t word64() {
    std::uint64_t high = word();
    return high << 32 | word();
  }
  float unit() { return to_unit(word()); }  // [0, 1)
  float uniform(float low, float high) { return low + (high - low) * unit(); }
  // Takes two words a number.
  float gaussian(float mean, float std);
  // Returns a number uniform in [0, n), without bias; n > 0.
  std::uint64_t below(std::uint64_t n);

  // The members that std::shuffle and similar functions need.
  using result_type = std::uint32_t;
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return ~result_type{0}; }
  result_type operator()() { return word(); }

 private:
  State state_;
  // `block_` holds the four words around block_at_ * 4: drawing in order costs one philox for four.
  std::array<std::uint32_t, 4> block_{};
  std::uint64_t block_at_ = ~std::uint64_t{0};
};

// Returns the word that is `offset` words after those drawn: Random(state).peek(offset).
SHOAL_ON_ANY_DEVICE inline std::uint32_t word_at(const Random::State& state, std::uint64_t offset) {
  const std::uint64_t word = state.position + offset;
  return philox(state.seed, state.stream, word / 4)[word % 4];
}

// Returns a seed from the operating system, for a solver whose random_seed is not set.
std::uint64_t random_seed();

}  // namespace shoal
