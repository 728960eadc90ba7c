// Two ends of TLS without sockets.
#include "shoal/table/link/tls.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/expect.h"
#include "support/messages.h"

namespace shoal::table::tls_test {
namespace {

TEST(Tls, ANewKeyFollowsAfterItsRecords) {
  Tls near(Tls::Role::kConnects, test::kGoldenToken, nullptr, 3),
      far(Tls::Role::kAccepts, test::kGoldenToken, nullptr, 3);
  near.begin();
  std::string heard[2];
  std::size_t moved = 0, new_keys = 0;
  const auto move = [&] {
    for (const auto& [from, to, text] :
         {std::tuple(&near, &far, &heard[1]), std::tuple(&far, &near, &heard[0])}) {
      const std::string records(from->records());
      from->sent(records.size());
      moved += records.size();
      for (std::string_view rest = records; !rest.empty();) {
        const std::span<char> room = to->room();
        const std::size_t count = std::min(room.size(), rest.size());
        std::copy_n(rest.begin(), count, room.begin());
        to->took(count);
        rest.remove_prefix(count);
      }
      char piece[100];
      for (;;) {
        const Result<std::size_t> read = to->read(piece);
        ASSERT_OK(read);
        if (read.value() == 0) break;
        text->append(piece, read.value());
      }
    }
  };
  for (int i = 0; i < 4; ++i) move();
  ASSERT_TRUE(near.is_open() && far.is_open());
  std::string expected;
  for (int i = 0; i < 50; ++i) {
    const std::string text = str("record ", i, ";");
    const std::string_view piece = text;
    expected += text;
    ASSERT_TRUE(near.write(std::span(&piece, 1)) && far.write(std::span(&piece, 1)));
    moved = 0;
    move();
    new_keys += moved > 2 * (text.size() + 22);  // a record has 22 bytes more; a KeyUpdate is one
  }
  EXPECT_EQ(heard[0], expected);
  EXPECT_EQ(heard[1], expected);
  EXPECT_EQ(new_keys, 16u);
}

}  // namespace
}  // namespace shoal::table::tls_test
