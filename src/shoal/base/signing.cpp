// Signs with Ed25519 of OpenSSL.
#include "shoal/base/signing.h"

#include <openssl/evp.h>
#include <openssl/rand.h>

#include "shoal/base/log.h"

namespace shoal {
namespace {

using Context = std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)>;

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

SigningKey::Seed random_secret() {
  SigningKey::Seed seed;
  CHECK_EQ(RAND_priv_bytes(seed.data(), static_cast<int>(seed.size())), 1)
      << "OpenSSL has no random numbers";
  return seed;
}

}  // namespace

void SigningKey::Free::operator()(evp_pkey_st* key) const { EVP_PKEY_free(key); }

SigningKey::SigningKey() : SigningKey(random_secret()) {}

SigningKey::SigningKey(const Seed& seed)
    : key_(EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, seed.data(), seed.size())) {
  std::size_t size = public_key_.size();
  CHECK(key_ && EVP_PKEY_get_raw_public_key(key_.get(), public_key_.data(), &size) == 1)
      << "OpenSSL has no Ed25519; is its default provider switched off?";
}

Signature SigningKey::sign(std::string_view message) const {
  const Context context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  Signature signature;
  std::size_t size = signature.size();
  CHECK(EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key_.get()) == 1 &&
        EVP_DigestSign(context.get(), signature.data(), &size, bytes_of(message), message.size()) ==
            1)
      << "OpenSSL does not sign with Ed25519";
  return signature;
}

bool is_signed(std::string_view message, const Signature& signature, const PublicKey& key) {
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> its(
      EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, key.data(), key.size()),
      &EVP_PKEY_free);
  const Context context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  return its && EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, its.get()) == 1 &&
         EVP_DigestVerify(context.get(), signature.data(), signature.size(), bytes_of(message),
                          message.size()) == 1;
}

}  // namespace shoal
