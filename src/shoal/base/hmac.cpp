// Computes HMAC-SHA256.
#include "shoal/base/hmac.h"

#include <string>

#include "shoal/base/bytes.h"
#include "shoal/base/sha256.h"

namespace shoal {
namespace {

constexpr std::size_t kBlock = 64;  // of SHA-256

std::array<std::uint8_t, 32> sha256(std::string_view first, std::string_view second) {
  Sha256 sum;
  sum.update(first);
  sum.update(second);
  return sum.digest();
}

}  // namespace

std::array<std::uint8_t, 32> hmac_sha256(std::string_view key, std::string_view message) {
  std::string padded(key.size() > kBlock ? chars_of(sha256(key, {})) : key);
  padded.resize(kBlock, '\0');
  std::string inner = padded, outer = padded;
  for (char& c : inner) c ^= 0x36;
  for (char& c : outer) c ^= 0x5c;
  return sha256(outer, chars_of(sha256(inner, message)));
}

bool same_secret(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b) {
  if (a.size() != b.size()) return false;
  unsigned different = 0;
  for (std::size_t i = 0; i < a.size(); ++i) different |= static_cast<unsigned>(a[i] ^ b[i]);
  return different == 0;
}

}  // namespace shoal
