// Computes SHA-256 (FIPS 180-4), by which the files of a snapshot are checked.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

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
  void block(const unsigned char* bytes);
  std::array<std::uint32_t, 8> state_;
  std::array<unsigned char, 64> rest_{};
  std::uint64_t bytes_ = 0;
};

}  // namespace shoal
