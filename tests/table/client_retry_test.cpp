// The client when its server misses a push or has a new link.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "shoal/table/client.h"
#include "support/client_rig.h"

namespace shoal::table::client_retry_test {
namespace {

using test::ClientRig;
using test::rows;

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
  rig.client->link_up(0);
  EXPECT_EQ(rig.said(0), "get 2@0 part 1, push 2@0, get 0@1, get 1@2");
  EXPECT_EQ(rig.said(1), "");
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
