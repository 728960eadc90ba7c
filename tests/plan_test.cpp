// Plans that cannot be, and what is said of each.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "shoal/table/types.h"
#include "support/expect.h"

namespace shoal::table::plan_test {
namespace {

TEST(PlanIsValid, OrSaysWhy) {
  Plan good;
  good.rows.push_back({.length = 10});
  EXPECT_EQ(validate(good), "");
  const std::pair<const char*, std::function<void(Plan&)>> cases[] = {
      {"no rows", [](Plan& p) { p.rows.clear(); }},
      {"0 workers", [](Plan& p) { p.workers = 0; }},
      {"0 servers", [](Plan& p) { p.servers = 0; }},
      {"clock -1", [](Plan& p) { p.start = -1; }},
      {"iter_size is 0", [](Plan& p) { p.iter_size = 0; }},
      {"weight_decay is nan", [](Plan& p) { p.weight_decay = std::nanf(""); }},
      {"clip_gradients is inf", [](Plan& p) { p.clip = INFINITY; }},
      {"momentum is -1", [](Plan& p) { p.rule.momentum = -1; }},
      {"the scheme has no name", [](Plan& p) { p.scheme.clear(); }},
      {"has 70000 letters", [](Plan& p) { p.scheme.assign(70000, 's'); }},
      {"row 0 has 0 numbers", [](Plan& p) { p.rows[0].length = 0; }},
      {"row 0 has 1048577 numbers", [](Plan& p) { p.rows[0].length = kMaxRowFloats + 1; }},
      {"row 0 is on server 1, and there are 1", [](Plan& p) { p.rows[0].server = 1; }},
      {"row 0 is written by worker 9, and there are ", [](Plan& p) { p.rows[0].writer = 9; }},
      {"row 0 is written by worker 0 alone, and learns", [](Plan& p) { p.rows[0].writer = 0; }},
      {"row 0 is read by worker 9, and there are ", [](Plan& p) { p.rows[0].reader = 9; }},
      {"row 0 is read by worker 0 alone, and all workers write it",
       [](Plan& p) { p.rows[0].reader = 0; }},
      {"row 1 has lr_mult nan",
       [](Plan& p) { p.rows.push_back({.length = 1, .lr_mult = std::nanf("")}); }},
      {"row 1 has decay_mult inf",
       [](Plan& p) { p.rows.push_back({.length = 1, .decay_mult = INFINITY}); }},
      {"there are 1 workers, and ranks of 2",
       [](Plan& p) {
         p.ranks = {0, 1};
       }},
      {"the ranks of the workers do not rise",
       [](Plan& p) {
         p.workers = 2, p.ranks = {3, 3};
       }},
      {"there are 1 servers, and ranks of 2",
       [](Plan& p) {
         p.server_ranks = {0, 1};
       }},
      {"the ranks of the servers do not rise",
       [](Plan& p) {
         p.servers = 2, p.server_ranks = {1, 0};
       }},
      {"there are 1 workers, and clocks of 2",
       [](Plan& p) {
         p.clocks = {0, 1};
       }},
      {"the start is clock 0, and the least clock of a worker 1", [](Plan& p) { p.clocks = {1}; }},
      {"at most 1048576 are allowed", [](Plan& p) { p.rows.resize(kMaxRows + 1, p.rows[0]); }},
  };
  for (const auto& [words, spoil] : cases) {
    Plan bad = good;
    spoil(bad);
    EXPECT_HAS(validate(bad), words);
  }
}

}  // namespace
}  // namespace shoal::table::plan_test
