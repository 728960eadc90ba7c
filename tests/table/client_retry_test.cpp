// The client when its server is silent, misses a push or has a new link.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "shoal/table/client.h"
#include "support/client_rig.h"

namespace shoal::table::client_retry_test {
namespace {

using namespace std::chrono_literals;
using test::ClientRig;
using test::rows;

TEST(Client, AsksAgainLessAndLessOften) {
  ClientRig rig(rows({0, 1}));
  rig.push(0, 0);
  rig.said();
  std::vector<int> asked;
  for (int ms = 1; ms <= 7000; ++ms) {
    rig.now = ms * 1ms;
    rig.client->on_time(rig.now);
    const std::string words = rig.said();
    if (words.empty()) continue;
    EXPECT_EQ(words, "get 0@1");
    asked.push_back(ms);
  }
  EXPECT_EQ(asked, (std::vector<int>{100, 300, 700, 1500, 3100, 4700, 6300}));
}

TEST(Client, SaysWhenToBeCalledNext) {
  ClientRig rig(rows({0, 1}));
  EXPECT_EQ(rig.client->on_time(rig.now), Instant::max());
  rig.push(0, 0);
  rig.said();
  rig.now = 30ms;
  rig.push(1, 0);
  rig.said();
  EXPECT_EQ(rig.client->on_time(rig.now), Instant(100ms));
  rig.now = 100ms;
  // row 1; row 0 is asked for again at 300
  EXPECT_EQ(rig.client->on_time(rig.now), Instant(130ms));
  EXPECT_EQ(rig.said(), "get 0@1");
  ASSERT_TRUE(rig.row(1, 1, 1).value());
  EXPECT_EQ(rig.client->on_time(rig.now), Instant(300ms));
}

TEST(Client, APushWhoseTurnHasNotComeIsNotAskedFor) {
  ClientRig rig(rows({0}));
  rig.push(0, 0);
  for (int i = 1; i < 50; ++i) rig.client->on_time(rig.now = i * 100ms);
  EXPECT_EQ(rig.said(), "push 0@0");
  rig.client->on_time(rig.now += 100ms);
  EXPECT_EQ(rig.said(), "get 0@1") << "waiting for its turn costs no patience";
}

TEST(Client, SendsAgainWhatTheServerMisses) {
  ClientRig rig(rows({0, 1}));
  rig.push(0, 5);
  rig.said();
  rig.need(0, 4);  // late
  EXPECT_EQ(rig.said(), "");
  rig.need(0, 5);
  rig.need(0, 5);  // repeated
  EXPECT_EQ(rig.said(), "push 0@5");
  ASSERT_TRUE(rig.row(0, 6, 1).value());
  rig.need(0, 5);
  EXPECT_EQ(rig.said(), "") << "acknowledged";
  rig.need(1, 5);
  EXPECT_EQ(rig.said(), "") << "never pushed";
}

// The answer to the first may come, and the worker write its next gradient, while a link is still
// reading the second.
TEST(Client, WhatIsSentAgainIsACopy) {
  ClientRig rig(rows({0}));
  rig.push(0, 0);
  const Push first = std::get<Push>(*rig.client->next(0));
  EXPECT_EQ(first.payload.floats().data(), rig.gradients[0].data());
  rig.need(0, 0);
  const Push second = std::get<Push>(*rig.client->next(0));
  EXPECT_NE(second.payload.owner, nullptr);
  ASSERT_TRUE(rig.row(0, 1, 1).value());
  rig.gradients[0].assign(4, 77.f);
  EXPECT_EQ(std::vector<float>(second.payload.floats().begin(), second.payload.floats().end()),
            std::vector<float>(4, 1.f));
}

TEST(Client, ANewLinkIsAskedForAllThatWasSent) {
  std::vector<Row> four = rows({3, 2, 1, 0});
  four[3].server = 1;
  ClientRig rig(four);
  rig.push(0, 0);
  rig.push(1, 0);
  rig.push(3, 0);
  rig.said(0);
  rig.said(1);
  ASSERT_TRUE(rig.row(1, 1, 1).value());
  rig.push(1, 1);
  rig.get(2, 0, Part::kHistory);
  rig.said();
  rig.push(2, 0);  // has never left
  rig.client->link_up(0, rig.now);
  EXPECT_EQ(rig.said(0), "get 2@0 part 1, push 2@0, get 0@1, get 1@2");
  EXPECT_EQ(rig.said(1), "");
}

TEST(Client, ANewLinkBringsNewPatience) {
  ClientRig rig(rows({0}));
  rig.push(0, 0);
  for (int ms = 0; ms <= 1600; ms += 100, rig.said()) rig.client->on_time(rig.now = ms * 1ms);
  rig.client->link_up(0, rig.now);
  EXPECT_EQ(rig.said(), "get 0@1");
  EXPECT_EQ(rig.client->on_time(rig.now), rig.now + 100ms);
}

// The missing push waits for its turn when its row comes after all: its turn is given to nobody.
TEST(Client, AnAnswerTakesWhatItAnswersOutOfTheQueue) {
  for (const Order order : {Order::kPriority, Order::kArrival}) {
    ClientRig rig(rows({0, 0}), order);
    rig.push(0, 0);
    rig.said();
    rig.need(0, 0);
    ASSERT_TRUE(rig.row(0, 1, 1).value());
    rig.push(1, 0);
    rig.push(0, 1);
    EXPECT_EQ(rig.said(), "push 1@0, push 0@1");
    EXPECT_EQ(rig.said(), "");
  }
}

}  // namespace
}  // namespace shoal::table::client_retry_test
