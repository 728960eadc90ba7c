// Computes SHA-256 (FIPS 180-4), by which the files of a snapshot are checked.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

struct evp_md_ctx_st;  // OpenSSL's

namespace shoal {

class Sha256 {
 public:
  Sha256();
  void update(std::string_view bytes);
  // Return the digest, and the digest as 64 lower-case hexadecimal digits. No call may follow
  // either of them.
  std::array<std::uint8_t, 32> digest();
  std::string finish();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

}  // namespace shoal
