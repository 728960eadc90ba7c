// HMAC-SHA256 (RFC 2104, FIPS 198-1): the proof that somebody knows a secret, without saying it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace shoal {

std::array<std::uint8_t, 32> hmac_sha256(std::string_view key, std::string_view message);

// Equality in a time that depends on the lengths alone, so that a guesser learns nothing from it.
bool same_secret(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b);

}  // namespace shoal
