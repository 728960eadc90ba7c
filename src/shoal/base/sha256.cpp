// Computes SHA-256 with OpenSSL.
#include "shoal/base/sha256.h"

#include <openssl/evp.h>

#include "shoal/base/bytes.h"
#include "shoal/base/log.h"
#include "shoal/base/text.h"

namespace shoal {

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  CHECK(context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1)
      << "OpenSSL has no SHA-256; is its default provider switched off?";
}

void Sha256::update(std::string_view bytes) {
  CHECK_EQ(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()), 1);
}

std::array<std::uint8_t, 32> Sha256::digest() {
  std::array<std::uint8_t, 32> digest{};
  CHECK_EQ(EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr), 1);
  return digest;
}

std::string Sha256::finish() { return hex(chars_of(digest())); }

}  // namespace shoal
