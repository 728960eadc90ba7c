// Checksums, digests and proofs: crc32c by each of its ways, SHA-256, HMAC-SHA256, Ed25519.
#include "shoal/base/bytes.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "shoal/base/crc32c.h"
#include "shoal/base/hmac.h"
#include "shoal/base/random.h"
#include "shoal/base/sha256.h"
#include "shoal/base/signing.h"
#include "shoal/base/text.h"

namespace shoal::bytes_test {
namespace {

std::string from_hex(std::string_view digits) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16)));
  return bytes;
}

std::uint32_t bit_by_bit(std::string_view bytes, std::uint32_t before) {
  std::uint32_t c = ~before;
  for (const char b : bytes) {
    c ^= static_cast<unsigned char>(b);
    for (int i = 0; i < 8; ++i) c = c & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1;
  }
  return ~c;
}

// RFC 3720, B.4.
TEST(Crc32c, StandardsExamples) {
  std::string rising(32, '\0');
  for (std::size_t i = 0; i < 32; ++i) rising[i] = static_cast<char>(i);
  const std::string falling(rising.rbegin(), rising.rend());
  const std::pair<std::string, std::uint32_t> cases[] = {{"123456789", 0xe3069283},
                                                         {std::string(32, '\0'), 0x8a9136aa},
                                                         {std::string(32, '\xff'), 0x62a8ab43},
                                                         {rising, 0x46dd794e},
                                                         {falling, 0x113fdb5c},
                                                         {"", 0}};
  for (const auto& [bytes, crc] : cases) {
    EXPECT_EQ(crc32c(bytes), crc);
    EXPECT_EQ(crc32c_by_tables(bytes, 0), crc);
  }
}

// Lengths around each step of all ways, from every alignment, continued from every crc.
TEST(Crc32c, AllWaysAgree) {
  Random random(11);
  std::string bytes(40'000, '\0');
  for (char& b : bytes) b = static_cast<char>(random.word());
  std::vector<std::size_t> lengths = {255,  256,  257,   511,   512,   767,   768,   769,
                                      1536, 1543, 12287, 12288, 12289, 13056, 24576, 39'990};
  for (std::size_t n = 0; n < 70; ++n) lengths.push_back(n);
  for (int i = 0; i < 100; ++i) lengths.push_back(random.below(39'990));
  for (const std::size_t length : lengths) {
    const std::string_view part = std::string_view(bytes).substr(random.below(9), length);
    const std::uint32_t before = random.word(), right = bit_by_bit(part, before);
    ASSERT_EQ(crc32c_by_tables(part, before), right) << length << " bytes";
    ASSERT_EQ(crc32c(part, before), right) << length << " bytes";
    if (has_crc32c_instruction()) {
      ASSERT_EQ(crc32c_by_instruction(part, before), right) << length << " bytes";
    }
    if (has_crc32c_vectors()) {
      ASSERT_EQ(crc32c_by_vectors(part, before), right) << length << " bytes";
    }
    const std::size_t cut = random.below(length + 1);
    ASSERT_EQ(crc32c(part.substr(cut), crc32c(part.substr(0, cut), before)), right)
        << length << " bytes cut at " << cut;
  }
}

// RFC 4231, section 4; the fifth is its truncated one, compared as far as it goes.
TEST(Hmac, StandardsExamples) {
  struct Case {
    std::string key, message, digest;
  };
  const Case cases[] = {
      {std::string(20, '\x0b'), "Hi There",
       "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
      {"Jefe", "what do ya want for nothing?",
       "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
      {std::string(20, '\xaa'), std::string(50, '\xdd'),
       "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
      {from_hex("0102030405060708090a0b0c0d0e0f10111213141516171819"), std::string(50, '\xcd'),
       "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"},
      {std::string(20, '\x0c'), "Test With Truncation", "a3b6167473100ee06e0c796c2955552b"},
      {std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First",
       "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
      {std::string(131, '\xaa'),
       "This is a test using a larger than block-size key and a larger than block-size data. The "
       "key needs to be hashed before being used "
       "by the HMAC algorithm.",
       "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"}};
  for (const Case& c : cases)
    EXPECT_EQ(hex(chars_of(hmac_sha256(c.key, c.message))).substr(0, c.digest.size()), c.digest);
}

// The examples of FIPS 180-4, each also in two pieces.
TEST(Sha256, DigestsAreThoseOfTheStandard) {
  const std::string two_blocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
  const std::pair<std::string, std::string> cases[] = {
      {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {two_blocks, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
      {std::string(1'000'000, 'a'),
       "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"}};
  for (const auto& [text, digest] : cases) {
    Sha256 sum;
    sum.update(std::string_view(text).substr(0, text.size() / 3));
    sum.update(std::string_view(text).substr(text.size() / 3));
    EXPECT_EQ(sum.finish(), digest);
  }
}

TEST(Hmac, SecretsAreTheSameOrNot) {
  const auto digest = hmac_sha256("key", "message");
  auto other = digest;
  EXPECT_TRUE(same_secret(digest, other));
  EXPECT_FALSE(same_secret(digest, std::span(other).first(31)));
  for (std::uint8_t& byte : other) {
    byte ^= 0x10;
    EXPECT_FALSE(same_secret(digest, other));
    byte ^= 0x10;
  }
}

// RFC 8032, 7.1, test 2.
TEST(Ed25519, SignaturesAreThoseOfTheStandard) {
  SigningKey::Seed seed{};
  std::ranges::copy(from_hex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"),
                    seed.begin());
  const SigningKey key(seed);
  EXPECT_EQ(hex(chars_of(key.public_key())),
            "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c");
  const Signature signature = key.sign("r");
  EXPECT_EQ(hex(chars_of(signature)),
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
            "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00");
  EXPECT_TRUE(is_signed("r", signature, key.public_key()));
  EXPECT_FALSE(is_signed("s", signature, key.public_key()));
  EXPECT_FALSE(is_signed("r", signature, SigningKey().public_key()));
  EXPECT_FALSE(is_signed("r", Signature{}, key.public_key()));
  EXPECT_FALSE(is_signed("r", Signature{}, PublicKey{}));
}

}  // namespace
}  // namespace shoal::bytes_test
