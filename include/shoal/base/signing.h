// Signs with Ed25519 (RFC 8032): only a process that has the key can sign, and any that has its
// public key can check the signature.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

struct evp_pkey_st;  // OpenSSL's

namespace shoal {

using PublicKey = std::array<std::uint8_t, 32>;
using Signature = std::array<std::uint8_t, 64>;

class SigningKey {
 public:
  using Seed = std::array<std::uint8_t, 32>;
  // Draws a key that nobody else has.
  SigningKey();
  explicit SigningKey(const Seed& seed);
  const PublicKey& public_key() const { return public_key_; }
  Signature sign(std::string_view message) const;  // on any thread

 private:
  struct Free {
    void operator()(evp_pkey_st* key) const;
  };
  std::unique_ptr<evp_pkey_st, Free> key_;
  PublicKey public_key_{};
};

// Returns whether the message was signed with the key whose public key this is.
bool is_signed(std::string_view message, const Signature& signature, const PublicKey& key);

}  // namespace shoal
