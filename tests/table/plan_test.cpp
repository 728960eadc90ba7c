// Plans that cannot be, and what is said of each.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "shoal/base/random.h"
#include "shoal/table/messages.h"
#include "shoal/table/own_rows.h"
#include "support/expect.h"

namespace shoal::table::plan_test {
namespace {

TEST(PlanIsValid, OrSaysWhy) {
  Plan good;
  good.rows.edit().push_back({.length = 10});
  EXPECT_EQ(validate(good), "");
  const std::pair<const char*, std::function<void(Plan&)>> cases[] = {
      {"no rows", [](Plan& p) { p.rows.edit().clear(); }},
      {"0 workers", [](Plan& p) { p.workers = 0; }},
      {"0 servers", [](Plan& p) { p.servers = 0; }},
      {"clock -1", [](Plan& p) { p.start = -1; }},
      {"iter_size is 0", [](Plan& p) { p.iter_size = 0; }},
      {"weight_decay is nan", [](Plan& p) { p.weight_decay = std::nanf(""); }},
      {"clip_gradients is inf", [](Plan& p) { p.clip = INFINITY; }},
      {"momentum is -1", [](Plan& p) { p.rule.momentum = -1; }},
      {"the scheme has no name", [](Plan& p) { p.scheme.name.clear(); }},
      {"has 70000 letters", [](Plan& p) { p.scheme.name.assign(70000, 's'); }},
      {"row 0 has 0 numbers", [](Plan& p) { p.rows.edit()[0].length = 0; }},
      {"row 0 has 1048577 numbers", [](Plan& p) { p.rows.edit()[0].length = kMaxRowFloats + 1; }},
      {"row 0 is on server 1, but there are 1", [](Plan& p) { p.rows.edit()[0].server = 1; }},
      {"row 0 is written by worker 9, but there are ",
       [](Plan& p) { p.rows.edit()[0].writer = 9; }},
      {"row 0 is written by worker 0 alone, and learns",
       [](Plan& p) { p.rows.edit()[0].writer = 0; }},
      {"row 0 is read by worker 9, but there are ", [](Plan& p) { p.rows.edit()[0].reader = 9; }},
      {"row 0 is read by worker 0 alone, and all workers write it",
       [](Plan& p) { p.rows.edit()[0].reader = 0; }},
      {"row 1 has lr_mult nan",
       [](Plan& p) { p.rows.edit().push_back({.length = 1, .lr_mult = std::nanf("")}); }},
      {"row 1 has decay_mult inf",
       [](Plan& p) { p.rows.edit().push_back({.length = 1, .decay_mult = INFINITY}); }},
      {"there are 1 workers, but 2 ranks of workers", [](Plan& p) { p.ranks.resize(2); }},
      {"the ranks of the workers are not in rising order",
       [](Plan& p) { p.workers = 2, p.ranks.assign(2, 3); }},
      {"there are 1 servers, but 2 ranks of servers", [](Plan& p) { p.server_ranks.resize(2); }},
      {"the ranks of the servers are not in rising order",
       [](Plan& p) { p.servers = 2, p.server_ranks.assign(2, 1); }},
      {"there are 1 workers, but 2 clocks of workers", [](Plan& p) { p.clocks.resize(2); }},
      {"the start is clock 0, but the least clock of a worker is 1",
       [](Plan& p) { p.clocks = {1}; }},
      {"at most 1048576 are allowed",
       [](Plan& p) { p.rows.edit().resize(kMaxRows + 1, p.rows[0]); }},
  };
  for (const auto& [words, spoil] : cases) {
    Plan bad = good;
    spoil(bad);
    EXPECT_HAS(validate(bad), words);
  }
}

TEST(RowsOfAPlan, AreSharedUntilChanged) {
  Plan first;
  first.rows = {{.length = 1}, {.length = 2}};
  Plan second = first;
  EXPECT_EQ(&first.rows[0], &second.rows[0]);
  second.rows.edit()[1].length = 3;
  EXPECT_EQ(first.rows[1].length, 2u);
  EXPECT_EQ(second.rows[1].length, 3u);
  EXPECT_EQ(first.rows[0], second.rows[0]);
  EXPECT_FALSE(first == second);
}

TEST(OwnRows, AreNumberedInTheirOrder) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed, 0);
    std::vector<Row> rows(random.word() % 40);
    for (std::size_t i = 0; i < rows.size(); ++i)
      rows[i].server = static_cast<std::uint16_t>(random.word() % 3);
    const OwnRows own(Rows(rows), [](const Row& row) { return row.server == 1; });
    std::size_t number = 0;
    for (RowId id = 0; id < rows.size(); ++id) {
      if (rows[id].server != 1) {
        EXPECT_EQ(own.find(id), OwnRows::kNone);
        continue;
      }
      EXPECT_EQ(own.find(id), number);
      EXPECT_EQ(own[number++], id);
    }
    EXPECT_EQ(own.size(), number);
    EXPECT_EQ(own.find(static_cast<RowId>(rows.size())), OwnRows::kNone);
  }
}

// A server's answers leave as their clocks have it, and within a clock as the plan's priorities.
TEST(Urgency, IsTheClocksFirst) {
  Plan plan;
  plan.rows = Rows({Row{.length = 1, .priority = 5}, Row{.length = 1, .priority = 2}});
  const auto of = [&](RowId row, Clock clock) {
    return urgency_of(RowMessage{.row = row, .clock = clock}, plan);
  };
  EXPECT_LT(of(0, 3), of(1, 4));
  EXPECT_LT(of(1, 3), of(0, 3));
  EXPECT_EQ(of(1, 3), of(1, 3));
  EXPECT_LT(urgency_of(NeedPush{.row = 1, .clock = 9}, plan), of(1, 0)) << "all else comes before";
}

}  // namespace
}  // namespace shoal::table::plan_test
