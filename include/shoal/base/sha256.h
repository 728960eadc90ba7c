// SHA-256 (FIPS 180-4), which says whether the files of a snapshot are the ones that were written.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace shoal {

class Sha256 {
 public:
  Sha256();
  void update(std::string_view bytes);
  // The digest, and the same in 64 lower-case hexadecimal digits. Either ends the object's life:
  // nothing may follow.
  std::array<std::uint8_t, 32> digest();
  std::string finish();

 private:
  void block(const unsigned char* bytes);
  std::array<std::uint32_t, 8> state_;
  std::array<unsigned char, 64> rest_{};
  std::uint64_t bytes_ = 0;
};

}  // namespace shoal
