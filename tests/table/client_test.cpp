// The client alone, against a server that says what the test tells it to: what it sends, what it
// takes, and what it asks for again.
#include "shoal/table/client.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/client_rig.h"
#include "support/expect.h"

namespace shoal::table::client_test {
namespace {

using namespace std::chrono_literals;
using test::ClientRig;
using test::rows;

TEST(Client, SendsTheFrontOfTheNetFirst) {
  ClientRig rig(rows({2, 0, 1, 0}));
  for (const RowId row : {0u, 2u, 3u, 1u}) rig.push(row, 0);
  EXPECT_EQ(rig.said(), "push 1@0, push 3@0, push 2@0, push 0@0");
  for (const RowId row : {0u, 1u, 2u, 3u}) EXPECT_FALSE(rig.client->arrived(row)) << row;
}

TEST(Client, AnUrgentRowOvertakesWhatHasNotLeft) {
  ClientRig rig(rows({2, 0, 1}));
  rig.push(0, 0);
  EXPECT_EQ(rig.pushed(2, 0).row, 2u);
  rig.push(1, 0);
  EXPECT_EQ(rig.said(), "push 1@0, push 0@0");
}

TEST(Client, ByArrivalSendsInTheOrderOfTheCalls) {
  ClientRig rig(rows({2, 0, 1}), Order::kArrival);
  rig.push(0, 0);
  rig.get(2, 0);
  rig.push(1, 0);
  EXPECT_EQ(rig.said(), "push 0@0, get 2@0, push 1@0");
}

TEST(Client, AsksEachServerForItsOwn) {
  ClientRig rig(rows({0, 1}, {1, 0}));
  rig.push(0, 0);
  rig.push(1, 0);
  EXPECT_EQ(rig.said(0), "push 1@0");
  EXPECT_EQ(rig.said(1), "push 0@0");
}

TEST(Client, ARowIsTheAcknowledgementAndCarriesTheNumbers) {
  ClientRig rig(rows({0, 1}));
  EXPECT_TRUE(rig.client->arrived(0));
  rig.push(0, 4);
  EXPECT_FALSE(rig.client->arrived(0));
  rig.said();
  EXPECT_TRUE(rig.row(0, 5, 2.5f).value());
  EXPECT_TRUE(rig.client->arrived(0));
  EXPECT_EQ(rig.numbers[0], (std::vector<float>{2.5f, 2.5f, 2.5f, 2.5f, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_FALSE(rig.client->overdue().has_value());
  EXPECT_EQ(rig.said(), "");
}

TEST(Client, SaysTheVersionThatTheWorkerRead) {
  ClientRig rig(rows({0}), Order::kPriority, 40);
  EXPECT_EQ(rig.pushed(0, 40).base, 40);
  ASSERT_TRUE(rig.row(0, 41, 1, 47).value());
  rig.get(0, 41, Part::kHistory);
  rig.said();
  // not what the next gradient is computed from
  ASSERT_TRUE(rig.row(0, 41, 1, 50, Part::kHistory).value());
  EXPECT_EQ(rig.pushed(0, 41).base, 47);
}

// Others' versions between the read and the answer: 5 and one of its own; 0; none at all, not even
// its own; nothing pushed.
TEST(Client, CountsHowOldWhatItPushedWas) {
  ClientRig rig(rows({0}), Order::kPriority, 40);
  Version version = 40;
  for (const auto& [grows, clock] : {std::pair{6, 40}, {1, 41}, {0, 42}, {1000, 43}}) {
    rig.sent_push(0, clock);
    ASSERT_TRUE(rig.row(0, clock + 1, 1, version += grows).value());
    rig.row(0, clock + 1, 1, version + 3).value();  // a second answer counts for nothing
  }
  rig.client->push({.row = 0, .clock = 44, .weight = 0}, rig.now);
  rig.said();
  ASSERT_TRUE(rig.row(0, 45, 1, version += 2).value());
  rig.sent_get(0, 45);
  ASSERT_TRUE(rig.row(0, 45, 1, version + 7).value());
  const StalenessCounts& counts = rig.client->staleness();
  StalenessCounts expected;
  expected.pushes[5] = expected.pushes[0] = expected.pushes[63] = 1;
  expected.drops = 2;
  EXPECT_EQ(counts.pushes, expected.pushes);
  EXPECT_EQ(counts.drops, expected.drops);
}

TEST(Client, LateAndRepeatedAnswersAreNotForAnyone) {
  ClientRig rig(rows({0, 1}));
  RowMessage first{0, 1, 1, Part::kWeights, {}};
  EXPECT_FALSE(rig.client->take(0, first).value()) << "thrown away, it comes without numbers";
  rig.push(0, 0);
  constexpr std::size_t kBytes = 4 * sizeof(float);
  EXPECT_TRUE(rig.client->place(first, kBytes).empty()) << "nothing was sent yet";
  rig.said();
  EXPECT_EQ(rig.client->place(first, kBytes).data(),
            std::as_bytes(std::span(rig.numbers[0])).data());
  EXPECT_EQ(rig.client->place(first, kBytes).size(), kBytes);
  EXPECT_TRUE(rig.client->place(first, kBytes - 4).empty()) << "numbers are missing";
  ASSERT_TRUE(rig.row(0, 1, 1).value());
  EXPECT_TRUE(rig.client->place(first, kBytes).empty()) << "a second one";
  EXPECT_FALSE(rig.row(0, 1, 9).value());
  rig.sent_push(0, 1);
  EXPECT_TRUE(rig.client->place(first, kBytes).empty()) << "a late one";
  EXPECT_FALSE(rig.row(0, 1, 9).value());
  EXPECT_FALSE(rig.row(0, 3, 9).value());
  EXPECT_EQ(rig.value(0), 1);
  EXPECT_FALSE(rig.client->arrived(0));
  EXPECT_TRUE(rig.row(0, 2, 3).value());
  EXPECT_EQ(rig.value(0), 3);
  RowMessage unknown{7, 1, 1, Part::kWeights, {}};
  EXPECT_TRUE(rig.client->place(unknown, kBytes).empty()) << "no such row";
}

// The acknowledgement of a row that this worker alone writes.
TEST(Client, AnAcknowledgementBringsNoNumbers) {
  std::vector<Row> own = rows({0});
  own[0].writer = 0;
  ClientRig rig(own);
  rig.push(0, 3);
  EXPECT_EQ("push 0@3", rig.said());
  RowMessage answer{0, 4, 1, Part::kWeights, {}};
  EXPECT_TRUE(rig.client->place(answer, own[0].length * sizeof(float)).empty());
  EXPECT_FALSE(rig.client->keeps(answer));
  EXPECT_FALSE(rig.client->arrived(0));
  EXPECT_TRUE(rig.client->take(0, answer).value());
  EXPECT_TRUE(rig.client->arrived(0));
}

// Numbers with an owner stay where they are, as those that are in their place already; others are
// copied, and found in their place.
TEST(Client, KeepsNumbersWhereTheyCame) {
  ClientRig rig(rows({0}));
  RowMessage row{0, 0, 1, Part::kWeights, {}};
  EXPECT_FALSE(rig.client->keeps(row));
  Values values;
  rig.values = &values;
  EXPECT_FALSE(rig.client->keeps(row)) << "not asked for";
  rig.sent_get(0, 0);
  EXPECT_TRUE(rig.client->keeps(row));
  const auto numbers = std::make_shared<const std::vector<float>>(4, 6.f);
  row.payload = as_payload({*numbers, numbers});
  EXPECT_TRUE(rig.client->take(0, row).value());
  EXPECT_EQ(values.data.data(), numbers->data());
  EXPECT_EQ(numbers.use_count(), 3);
  EXPECT_EQ(rig.value(0), 0);
  EXPECT_FALSE(rig.client->keeps(row)) << "it has come";
  rig.sent_get(0, 1);
  EXPECT_TRUE(rig.row(0, 1, 7).value());
  EXPECT_EQ(values.data.data(), rig.numbers[0].data());
  EXPECT_EQ(rig.value(0), 7);
  EXPECT_EQ(numbers.use_count(), 2) << "row.payload holds it";
  rig.sent_get(0, 2);
  RowMessage placed{0, 2, 1, Part::kWeights, {}};
  placed.payload.bytes = rig.client->place(placed, 4 * sizeof(float));
  std::ranges::fill(rig.numbers[0], 8.f);
  EXPECT_TRUE(rig.client->take(0, placed).value());
  EXPECT_EQ(rig.value(0), 8);
}

TEST(Client, PartsAreWaitedForByThemselves) {
  ClientRig rig(rows({0}));
  rig.get(0, 3);
  rig.get(0, 3, Part::kHistory);
  rig.get(0, 3, Part::kHistory2);
  rig.get(0, 3);  // said once
  EXPECT_EQ(rig.said(), "get 0@3, get 0@3 part 1, get 0@3 part 2");
  EXPECT_TRUE(rig.row(0, 3, 1).value());
  EXPECT_TRUE(rig.row(0, 3, 3, 1, Part::kHistory2).value());
  EXPECT_FALSE(rig.client->arrived(0));
  EXPECT_TRUE(rig.row(0, 3, 2, 1, Part::kHistory).value());
  EXPECT_TRUE(rig.client->arrived(0));
  EXPECT_EQ(rig.value(0, Part::kHistory), 2);
  EXPECT_EQ(rig.value(0, Part::kHistory2), 3);
}

TEST(Client, NamesTheRowThatIsWaitedForLongest) {
  ClientRig rig(rows({0, 0}, {0, 1}));
  EXPECT_FALSE(rig.client->overdue().has_value());
  rig.now = 5ms;
  rig.push(1, 8);
  rig.now = 9ms;
  rig.push(0, 8);
  rig.said(0);
  rig.said(1);
  const Client::Overdue oldest = *rig.client->overdue();
  EXPECT_EQ(oldest.row, 1u);
  EXPECT_EQ(oldest.server, 1);
  EXPECT_EQ(oldest.clock, 9);
  EXPECT_EQ(oldest.since, Instant(5ms));
  ASSERT_TRUE(rig.row(1, 9, 0).value());
  EXPECT_EQ(rig.client->overdue()->row, 0u);
}

TEST(Client, AServerThatBreaksTheProtocolIsToldHow) {
  ClientRig rig(rows({0, 0}, {0, 1}));
  rig.sent_push(0, 0);
  const std::vector<float> three(3);
  const std::tuple<int, Message, std::string> cases[] = {
      {0, RowMessage{2, 1, 1, Part::kWeights, {}},
       "server 0 broke the protocol: Row of row 2; there are 2"},
      {0, NeedPush{9, 1}, "NeedPush of row 9; there are 2"},
      {0, RowMessage{1, 1, 1, Part::kWeights, {}},
       "server 0 broke the protocol: Row of row 1, which is server 1's"},
      {1, NeedPush{0, 0}, "server 1 broke the protocol: NeedPush of row 0, which is server 0's"},
      {0, RowMessage{0, 1, 1, Part::kWeights, as_payload({three, nullptr})},
       "Row of row 0 has 3 numbers; the row has 4"},
      {0, Push{}, "server 0 broke the protocol: a Push to a worker"},
  };
  for (const auto& [server, message, words] : cases) {
    const Result<bool> taken = rig.client->take(server, message);
    EXPECT_FAILS_WITH(words, taken);
    EXPECT_EQ(taken.error().code, Code::kPeer);
  }
  EXPECT_FALSE(rig.client->arrived(0));
}

// ---- a server that misses a push or has a new link ----

TEST(Client, SendsAgainWhatTheServerMisses) {
  ClientRig rig(rows({0, 1}));
  rig.sent_push(0, 5);
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
  const Push first = rig.pushed(0, 0);
  EXPECT_EQ(first.payload.floats().data(), rig.gradients[0].data());
  rig.need(0, 0);
  const Push second = rig.next();
  EXPECT_NE(second.payload.owner, nullptr);
  ASSERT_TRUE(rig.row(0, 1, 1).value());
  rig.gradients[0].assign(4, 77.f);
  EXPECT_EQ(std::vector<float>(second.payload.floats().begin(), second.payload.floats().end()),
            std::vector<float>(4, 1.f));
}

TEST(Client, ANewLinkIsAskedForAllThatWasSent) {
  ClientRig rig(rows({3, 2, 1, 0}, {0, 0, 0, 1}));
  for (const RowId row : {0u, 1u, 3u}) rig.push(row, 0);
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
    rig.sent_push(0, 0);
    rig.need(0, 0);
    ASSERT_TRUE(rig.row(0, 1, 1).value());
    rig.push(1, 0);
    rig.push(0, 1);
    EXPECT_EQ(rig.said(), "push 1@0, push 0@1");
    EXPECT_EQ(rig.said(), "");
  }
}

TEST(ClientDeathTest, AWorkerThatPushesOverItsOwnPushIsStopped) {
  ClientRig rig(rows({0}));
  rig.push(0, 0);
  EXPECT_DEATH(rig.push(0, 1), "before that of clock 1 arrived");
  EXPECT_DEATH(rig.get(0, 7), "asked for at clock 7 and at 1");
}

}  // namespace
}  // namespace shoal::table::client_test
