// Computes crc32c, with the processor's instruction or with tables.
#include "shoal/base/crc32c.h"

#include <array>
#include <cstddef>
#include <cstring>

#include "shoal/base/bytes.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace shoal {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;
using Table = std::array<std::uint32_t, 256>;

// Makes kTables: kTables[k][b] is what a byte b does to the crc once k zero bytes have followed it.
constexpr std::array<Table, 8> make_tables() {
  std::array<Table, 8> tables{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = c & 1 ? c >> 1 ^ kPolynomial : c >> 1;
    tables[0][i] = c;
  }
  for (std::size_t k = 1; k < 8; ++k)
    for (std::size_t i = 0; i < 256; ++i)
      tables[k][i] = tables[0][tables[k - 1][i] & 0xff] ^ tables[k - 1][i] >> 8;
  return tables;
}
constexpr auto kTables = make_tables();

#if defined(__x86_64__)

// The effect of `zeros` zero bytes on a crc is linear in its bits: a 32 x 32 matrix over GF(2),
// kept as four tables of its bytes.
using Shift = std::array<Table, 4>;
using Matrix = std::array<std::uint32_t, 32>;

constexpr std::uint32_t times(const Matrix& matrix, std::uint32_t vector) {
  std::uint32_t sum = 0;
  for (std::size_t bit = 0; bit < 32; ++bit) sum ^= vector >> bit & 1 ? matrix[bit] : 0;
  return sum;
}

// `zeros` is a power of two.
constexpr Shift make_shift(std::size_t zeros) {
  Matrix matrix{};
  for (std::uint32_t bit = 0; bit < 32; ++bit) {
    const std::uint32_t c = 1u << bit;
    matrix[bit] = kTables[0][c & 0xff] ^ c >> 8;
  }
  for (; zeros > 1; zeros /= 2) {
    Matrix square{};
    for (std::size_t bit = 0; bit < 32; ++bit) square[bit] = times(matrix, matrix[bit]);
    matrix = square;
  }
  Shift shift{};
  for (std::size_t k = 0; k < 4; ++k)
    for (std::uint32_t byte = 0; byte < 256; ++byte)
      shift[k][byte] = times(matrix, byte << (8 * k));
  return shift;
}
constexpr std::size_t kLong = 4096, kShort = 256;  // bytes of a part
constexpr Shift kShiftLong = make_shift(kLong), kShiftShort = make_shift(kShort);

std::uint64_t shifted(const Shift& shift, std::uint64_t c) {
  return shift[0][c & 0xff] ^ shift[1][c >> 8 & 0xff] ^ shift[2][c >> 16 & 0xff] ^
         shift[3][c >> 24 & 0xff];
}

std::uint64_t eight(const char* bytes) {
  std::uint64_t word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

// Takes as many times three parts of `Part` bytes as there are: the instruction has a latency of
// three and starts every cycle.
template <std::size_t Part>
__attribute__((target("sse4.2"))) std::uint64_t in_threes(const Shift& shift, std::uint64_t c,
                                                          std::string_view& bytes) {
  for (; bytes.size() >= 3 * Part; bytes.remove_prefix(3 * Part)) {
    const char* p = bytes.data();
    std::uint64_t second = 0, third = 0;
    for (const char* end = p + Part; p < end; p += 8) {
      c = _mm_crc32_u64(c, eight(p));
      second = _mm_crc32_u64(second, eight(p + Part));
      third = _mm_crc32_u64(third, eight(p + 2 * Part));
    }
    c = shifted(shift, shifted(shift, c) ^ second) ^ third;
  }
  return c;
}

// Returns x to the power of n modulo the polynomial, its bits in the order of a crc's.
constexpr std::uint32_t power_of_x(std::size_t n) {
  std::uint32_t power = 1u << 31;
  for (; n > 0; --n) power = power & 1 ? power >> 1 ^ kPolynomial : power >> 1;
  return power;
}

#define WITH_VECTORS __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.2")))

// Moves 16 bytes on by a distance in bytes: a power of x for each half of them. Source: Gopal et
// al., Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction (Intel, 2009).
template <std::size_t Distance>
constexpr long long kFirstHalf = power_of_x(8 * Distance + 31);
template <std::size_t Distance>
constexpr long long kSecondHalf = power_of_x(8 * Distance - 33);

// The sum of `onto` and each 16 of `bytes`, moved on.
template <std::size_t Distance>
WITH_VECTORS __m128i moved(__m128i bytes, __m128i onto) {
  const __m128i factors = _mm_set_epi64x(kSecondHalf<Distance>, kFirstHalf<Distance>);
  return _mm_xor_si128(onto, _mm_xor_si128(_mm_clmulepi64_si128(bytes, factors, 0x00),
                                           _mm_clmulepi64_si128(bytes, factors, 0x11)));
}
template <std::size_t Distance>
WITH_VECTORS __m512i moved(__m512i bytes, __m512i onto) {
  constexpr long long kFirst = kFirstHalf<Distance>, kSecond = kSecondHalf<Distance>;
  const __m512i factors =
      _mm512_set_epi64(kSecond, kFirst, kSecond, kFirst, kSecond, kFirst, kSecond, kFirst);
  return _mm512_xor_si512(onto, _mm512_xor_si512(_mm512_clmulepi64_epi128(bytes, factors, 0x00),
                                                 _mm512_clmulepi64_epi128(bytes, factors, 0x11)));
}

// Takes as many times 256 bytes as there are.
WITH_VECTORS std::uint64_t in_vectors(std::uint64_t c, std::string_view& bytes) {
  constexpr std::size_t kStep = 256;
  if (bytes.size() < kStep) return c;
  const char* p = bytes.data();
  const __m128i before = _mm_cvtsi64_si128(static_cast<long long>(c));
  __m512i sum0 = _mm512_xor_si512(_mm512_loadu_si512(p), _mm512_zextsi128_si512(before)),
          sum1 = _mm512_loadu_si512(p + 64), sum2 = _mm512_loadu_si512(p + 128),
          sum3 = _mm512_loadu_si512(p + 192);
  for (bytes.remove_prefix(kStep); bytes.size() >= kStep; bytes.remove_prefix(kStep)) {
    p = bytes.data();
    sum0 = moved<kStep>(sum0, _mm512_loadu_si512(p));
    sum1 = moved<kStep>(sum1, _mm512_loadu_si512(p + 64));
    sum2 = moved<kStep>(sum2, _mm512_loadu_si512(p + 128));
    sum3 = moved<kStep>(sum3, _mm512_loadu_si512(p + 192));
  }
  __m128i sums[4];
  _mm512_storeu_si512(sums, moved<64>(moved<64>(moved<64>(sum0, sum1), sum2), sum3));
  const __m128i sum = moved<16>(moved<16>(moved<16>(sums[0], sums[1]), sums[2]), sums[3]);
  c = _mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(sum)));
  return _mm_crc32_u64(c, static_cast<std::uint64_t>(_mm_extract_epi64(sum, 1)));
}

#endif

}  // namespace

std::uint32_t crc32c_by_tables(std::string_view bytes, std::uint32_t before) {
  std::uint32_t c = ~before;
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
    const std::uint32_t low = c ^ get_le<std::uint32_t>(bytes),
                        high = get_le<std::uint32_t>(bytes.substr(4));
    c = kTables[7][low & 0xff] ^ kTables[6][low >> 8 & 0xff] ^ kTables[5][low >> 16 & 0xff] ^
        kTables[4][low >> 24] ^ kTables[3][high & 0xff] ^ kTables[2][high >> 8 & 0xff] ^
        kTables[1][high >> 16 & 0xff] ^ kTables[0][high >> 24];
  }
  for (const char b : bytes) c = kTables[0][(c ^ static_cast<unsigned char>(b)) & 0xff] ^ c >> 8;
  return ~c;
}

#if defined(__x86_64__)

__attribute__((target("sse4.2"))) std::uint32_t crc32c_by_instruction(std::string_view bytes,
                                                                      std::uint32_t before) {
  std::uint64_t c = static_cast<std::uint32_t>(~before);
  c = in_threes<kLong>(kShiftLong, c, bytes);
  c = in_threes<kShort>(kShiftShort, c, bytes);
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) c = _mm_crc32_u64(c, eight(bytes.data()));
  for (const char b : bytes)
    c = _mm_crc32_u8(static_cast<std::uint32_t>(c), static_cast<unsigned char>(b));
  return ~static_cast<std::uint32_t>(c);
}
WITH_VECTORS std::uint32_t crc32c_by_vectors(std::string_view bytes, std::uint32_t before) {
  const std::uint64_t c = in_vectors(static_cast<std::uint32_t>(~before), bytes);
  return crc32c_by_instruction(bytes, ~static_cast<std::uint32_t>(c));
}
bool has_crc32c_instruction() { return __builtin_cpu_supports("sse4.2"); }
bool has_crc32c_vectors() {
  return has_crc32c_instruction() && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("pclmul");
}

#else

std::uint32_t crc32c_by_instruction(std::string_view bytes, std::uint32_t before) {
  return crc32c_by_tables(bytes, before);
}
std::uint32_t crc32c_by_vectors(std::string_view bytes, std::uint32_t before) {
  return crc32c_by_tables(bytes, before);
}
bool has_crc32c_instruction() { return false; }
bool has_crc32c_vectors() { return false; }

#endif

std::uint32_t crc32c(std::string_view bytes, std::uint32_t before) {
  static const auto fastest = has_crc32c_vectors()       ? crc32c_by_vectors
                              : has_crc32c_instruction() ? crc32c_by_instruction
                                                         : crc32c_by_tables;
  return fastest(bytes, before);
}

}  // namespace shoal
