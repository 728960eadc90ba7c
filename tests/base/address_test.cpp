// Addresses of hosts and ports, taken apart and put together.
#include "shoal/base/address.h"

#include <gtest/gtest.h>

namespace shoal::test::address_test {
namespace {

TEST(Address, IsTakenApartAndPutTogether) {
  const char* const cases[][3] = {
      {"a:80", "a", "80"}, {"[::1]:80", "::1", "80"}, {":80", "", "80"},    {"", "", ""},
      {"a", "a", ""},      {"::1", "::1", ""},        {"[::1]", "::1", ""}, {"[a:80", "[a:80", ""},
  };
  for (const auto& [address, host, port] : cases) {
    EXPECT_EQ(split_address(address).host, host);
    EXPECT_EQ(split_address(address).port, port);
  }
  EXPECT_EQ(join_address("a", "80"), "a:80");
  EXPECT_EQ(join_address("::1", "80"), "[::1]:80");
}

}  // namespace
}  // namespace shoal::test::address_test
