// Weed-out by completions: SpeeDO's own vectors, and every order in which three workers can finish
// four tasks each.
#include "shoal/table/scheme/completion_window.h"

#include <gtest/gtest.h>

#include "shoal/base/text.h"
#include "support/pacer_rig.h"
#include "support/schemes.h"

namespace shoal::test::completion_window_test {
namespace {

const table::CompletionWindow& window_of(const PacerRig& rig) {
  return dynamic_cast<const table::CompletionWindow&>(*rig.pacer);
}
std::string ring_of(const PacerRig& rig) {
  std::vector<std::string> numbers;
  for (const int worker : window_of(rig).ring()) numbers.push_back(str(worker));
  return str('[', join(numbers), ']');
}
// "3, "next": 0"
std::string next_of(const PacerRig& rig) {
  return str(window_of(rig).limit(), ", \"next\": ", window_of(rig).next());
}
std::string judged(PacerRig& rig, const WorkerNumbers& workers) {
  std::string verdicts;
  for (const int worker : workers) verdicts += rig.judge(worker);
  return verdicts;
}

TEST(WeedOutWindow, VectorOfTheOriginal) {
  PacerRig rig("weed_out weedout=3");
  const std::pair<int, const char*> completions[] = {
      {0, "p[0]"}, {1, "p[0, 1]"}, {1, "p[0, 1, 1]"}, {0, "p[0, 1, 1]"}, {2, "d[0, 2, 1]"}};
  for (const auto& [worker, expected] : completions) {
    const std::string verdict(1, rig.judge(worker));
    EXPECT_EQ(verdict + ring_of(rig), expected);
    EXPECT_EQ(rig.ready(worker), WorkerNumbers{worker});  // at once, merged or not
  }
  EXPECT_EQ(next_of(rig), "3, \"next\": 2");
}

TEST(WeedOutWindow, JoinVectors) {
  const struct {
    WorkerNumbers completions;
    const char *ring, *next;
  } cases[] = {{{}, "[9]", "4, \"next\": 1"},
               {{0, 1, 2}, "[9, 0, 1, 2]", "4, \"next\": 1"},
               {{2, 1, 2, 0}, "[0, 9, 1, 2]", "4, \"next\": 2"},
               {{2, 2, 2, 0, 1}, "[0, 1, 9, 2]", "4, \"next\": 3"}};
  for (const auto& c : cases) {
    PacerRig rig("weed_out weedout=3");
    (void)judged(rig, c.completions);
    rig.pacer->join(9, {});
    EXPECT_EQ(ring_of(rig), c.ring);
    EXPECT_EQ(next_of(rig), c.next);
    EXPECT_EQ(rig.ready(9), WorkerNumbers{9});
    EXPECT_EQ(rig.judge(9), 'p');  // its first result merges
  }
}

TEST(WeedOutWindow, DeathVectors) {
  const struct {
    WorkerNumbers completions;
    const char *ring, *next;
  } cases[] = {{{0, 1, 2}, "[1, 2]", "2, \"next\": 0"},
               {{2, 1, 2, 0}, "[0, 2]", "2, \"next\": 1"},
               {{2, 2, 2, 0, 1}, "[0, 1]", "2, \"next\": 0"},
               {{0}, "[0]", "2, \"next\": 1"},
               {{0, 1}, "[0, 1]", "2, \"next\": 0"}};
  for (const auto& c : cases)
    for (const int who : {0, 1, 2}) {
      PacerRig rig("weed_out weedout=3");
      (void)judged(rig, c.completions);
      EXPECT_EQ(rig.leave(who), WorkerNumbers{});
      EXPECT_EQ(ring_of(rig), c.ring);
      EXPECT_EQ(next_of(rig), c.next);
    }
}

TEST(WeedOutWindow, BeginsAnewWhenAllHaveLeft) {
  PacerRig rig("weed_out weedout=1", 2);
  (void)judged(rig, {0, 1});
  rig.pacer->leave(0, {});
  rig.pacer->leave(1, {});
  EXPECT_EQ(next_of(rig), "0, \"next\": 0");
  rig.pacer->join(0, {});
  EXPECT_EQ(ring_of(rig), "[0]");
  EXPECT_EQ(next_of(rig), "1, \"next\": 0");
  EXPECT_EQ(judged(rig, {0, 0}), "pp");
  EXPECT_EQ(ring_of(rig), "[0]");
  rig.pacer->leave(0, {});
  EXPECT_EQ(next_of(rig), "0, \"next\": 0");
}

TEST(WeedOutWindow, IsNoSmallerThanTheJobAtItsStart) {
  EXPECT_EQ(next_of(PacerRig("weed_out weedout=1", 4)), "4, \"next\": 0");
  EXPECT_EQ(next_of(PacerRig("weed_out weedout=6", 4)), "6, \"next\": 0");
  PacerRig equal("weed_out weedout=1", 4);
  // in turn: nothing is late
  EXPECT_EQ(judged(equal, {3, 1, 2, 0, 3, 1, 2, 0, 3, 1, 2, 0}), "pppppppppppp");
}

TEST(WeedOutWindow, EveryInterleavingOfThreeWorkersAndFourTasks) {
  for (const int window : {3, 4})
    in_every_interleaving(3, 4, [&](const WorkerNumbers& order) {
      PacerRig rig(str("weed_out weedout=", window));
      for (std::size_t i = 0; i < order.size(); ++i) {
        // finished since its own last, or since ever
        std::size_t others = i;
        for (std::size_t j = i; j-- > 0;)
          if (order[j] == order[i]) {
            others = i - j - 1;
            break;
          }
        const bool warm = i < static_cast<std::size_t>(window);
        ASSERT_EQ(rig.judge(order[i]),
                  warm || others < static_cast<std::size_t>(window) ? 'p' : 'd')
            << testing::PrintToString(order) << " at " << i;
      }
    });
}

// Worker 2 is so slow that the others finish four tasks during each of its own.
std::string of_the_slow(PacerRig& rig, int tasks) {
  std::string verdicts;
  for (int task = 0; task < tasks; ++task) {
    (void)judged(rig, {0, 1, 0, 1});
    verdicts += rig.judge(2);
  }
  return verdicts;
}

TEST(WeedOutWindow, SaysWhoIsAlwaysLate) {
  PacerRig rig("weed_out weedout=3");
  EXPECT_EQ(of_the_slow(rig, 9), "ddddddddd");
  (void)judged(rig, {0, 1, 0, 1});
  EXPECT_TRUE(rig.pacer->take_remarks().empty());
  EXPECT_EQ(rig.judge(2), 'd');
  const auto remarks = rig.pacer->take_remarks();
  ASSERT_EQ(remarks.size(), 1u);
  EXPECT_EQ(remarks[0],
            "has had its last 10 tasks dropped: during each, 3 or more others were finished. A "
            "larger weedout, or merge_every, keeps its tasks");
  EXPECT_EQ(of_the_slow(rig, 10), "dddddddddd");
  EXPECT_TRUE(rig.pacer->take_remarks().empty());
}

TEST(WeedOutWindow, MayLetEveryNthCount) {
  PacerRig rig("weed_out weedout=3 merge_every=3");
  EXPECT_EQ(of_the_slow(rig, 12), "ddpddpddpddp");
  EXPECT_TRUE(rig.pacer->take_remarks().empty());
}

TEST(WeedOutWindow, IsOneOfTwoWaysToBeLate) {
  const auto task = [](const char* words) { return table::make_scheme(words).value()->task; };
  EXPECT_TRUE(task("weed_out weedout=3").judged);
  EXPECT_FALSE(task("weed_out max_version_lag=3").judged);
  EXPECT_EQ(table::make_scheme("weed_out weedout=3 merge_every=2 payload=delta").value()->name(),
            "weed_out weedout=3 merge_every=2 payload=delta");
  for (const char* words :
       {"weed_out", "weed_out weedout=0", "weed_out weedout=3 max_version_lag=2",
        "weed_out max_version_lag=2 merge_every=3"})
    EXPECT_FALSE(table::make_scheme(words).ok()) << words;
}

}  // namespace
}  // namespace shoal::test::completion_window_test
