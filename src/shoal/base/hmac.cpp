// Computes HMAC-SHA256 with OpenSSL.
#include "shoal/base/hmac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "shoal/base/log.h"

namespace shoal {

std::array<std::uint8_t, 32> hmac_sha256(std::string_view key, std::string_view message) {
  std::array<std::uint8_t, 32> sum{};
  const auto* const bytes = reinterpret_cast<const unsigned char*>(message.data());
  CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), bytes, message.size(),
             sum.data(), nullptr))
      << "OpenSSL has no HMAC-SHA256; is its default provider switched off?";
  return sum;
}

bool same_secret(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace shoal
