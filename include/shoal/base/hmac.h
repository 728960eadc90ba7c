// Computes HMAC-SHA256 (RFC 2104, FIPS 198-1), which proves knowledge of a secret but hides it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace shoal {

std::array<std::uint8_t, 32> hmac_sha256(std::string_view key, std::string_view message);

// Compares in a time that depends on the lengths alone, so that it tells nothing of the secret.
bool same_secret(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b);

}  // namespace shoal
