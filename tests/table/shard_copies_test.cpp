// Tests rows that two servers have: what one merges the other does too, to the bit, before a worker
// sees it.
#include <gtest/gtest.h>

#include "shoal/table/client.h"
#include "support/expect.h"
#include "support/shard_pair.h"
#include "support/shard_rig.h"

namespace shoal::table::shard_copies_test {
namespace {

using test::plan_of;
using test::push_of;
using Pair = test::ShardPair;

Plan two_rows(const char* scheme, std::uint16_t workers) {
  Plan plan = plan_of(scheme, workers, {4, 4});
  plan.rows.edit()[1].server = 1;
  plan.rule.momentum = 0.9f;
  return plan;
}

TEST(ShardCopies, AnAnswerWaitsForTheCopy) {
  Pair pair(two_rows("bsp", 2));
  for (int worker = 0; worker < 2; ++worker) pair.give(0, worker, push_of(0, 0, 1.f + worker, 4));
  EXPECT_EQ(pair.answers.size(), 0u);
  ASSERT_EQ(pair.between.size(), 1u);
  pair.deliver(1);  // the update
  EXPECT_EQ(pair.answers.size(), 0u);
  EXPECT_EQ(pair.first_of(1, 0), pair.first_of(0, 0));
  pair.deliver();  // that it is there
  EXPECT_EQ(pair.answers.size(), 2u);
}

// Tells the servers the total of the norms that they have said at the clock. Returns it.
double tell_norm(Pair& pair, Clock clock, const std::vector<int>& servers) {
  double squares = 0;
  for (const Outgoing& one : pair.answers)
    if (const auto* norm = std::get_if<Norm>(&one.message); norm && norm->clock == clock)
      squares += norm->squares;
  for (const int server : servers) pair.give(server, 0, NormTotal{clock, squares});
  return squares;
}

Push whole_push(RowId row, Clock clock, float value) {
  Push push = push_of(row, clock, value, 4);
  push.base = clock;
  return push;
}

// The last update of the lost server's row was not copied: it is a clock behind the heir's row.
TEST(ShardCopies, AnHeirClipsByTheNormOfAllRows) {
  for (const bool is_copied : {false, true}) {
    SCOPED_TRACE(is_copied);
    Plan plan = two_rows("bsp", 1);
    plan.clip = 2;
    plan.iter_size = 3;
    Pair pair(plan), whole(plan);
    double norm = 0;
    for (Pair* const one : {&pair, &whole}) {
      for (const RowId row : {0, 1}) one->give(static_cast<int>(row), 0, whole_push(row, 0, 3.3f));
      norm = tell_norm(*one, 0, {0, 1});
      if (one == &whole || is_copied) one->deliver();
    }
    EXPECT_FLOAT_EQ(static_cast<float>(norm), 8 * 3.3f * 3.3f);
    std::erase_if(pair.between, [](const auto& one) { return one.first == 1; });
    pair.lose(0, -1);
    pair.deliver();
    pair.answers.clear();
    pair.give(1, 0, whole_push(0, 0, 3.3f));  // again, since it was not acknowledged
    if (!is_copied) {
      ASSERT_EQ(pair.answers.size(), 1u);
      const auto* part = std::get_if<Norm>(&pair.answers[0].message);
      ASSERT_TRUE(part && part->server == 0 && part->clock == 0);
      pair.give(1, 0, NormTotal{0, norm});  // which the coordinator knows
    }
    EXPECT_EQ(pair.first_of(1, 0), whole.first_of(0, 0));
    pair.answers.clear(), whole.answers.clear();
    for (const RowId row : {0, 1}) {
      pair.give(1, 0, whole_push(row, 1, 1.7f));
      whole.give(static_cast<int>(row), 0, whole_push(row, 1, 1.7f));
    }
    EXPECT_EQ(tell_norm(pair, 1, {1}), tell_norm(whole, 1, {0, 1}));
    for (const RowId row : {0, 1})
      EXPECT_EQ(pair.first_of(1, row), whole.first_of(static_cast<int>(row), row));
  }
}

TEST(ShardCopies, AnHeirGoesOnWithTheSameBits) {
  for (const char* const scheme : {"bsp", "async", "ssp 2"}) {
    SCOPED_TRACE(scheme);
    Pair pair(two_rows(scheme, 2)), whole(two_rows(scheme, 2));
    for (Pair* const one : {&pair, &whole})
      for (Clock clock = 0; clock < 3; ++clock)
        for (int worker = 0; worker < 2; ++worker) {
          Push push = push_of(0, clock, 0.1f + static_cast<float>(clock + worker), 4);
          push.base = one->shards[0]->look(0)->version;
          one->give(0, worker, push);
          one->deliver();
        }
    pair.lose(0, -1);
    for (int worker = 0; worker < 2; ++worker) {
      Push push = push_of(0, 3, 2.f, 4);
      push.base = whole.shards[0]->look(0)->version;
      whole.give(0, worker, push);
      pair.give(1, worker, push);
    }
    EXPECT_EQ(pair.first_of(1, 0), whole.first_of(0, 0));
    EXPECT_EQ(pair.shards[1]->look(0)->version, whole.shards[0]->look(0)->version);
  }
}

// Pushes that a lost server had merged, and told nobody of, come again and count once.
TEST(ShardCopies, APushThatNobodySawMergedCountsOnce) {
  Pair pair(two_rows("async", 2));
  pair.give(0, 0, push_of(0, 0, 1, 4));
  pair.between.clear();  // the update is lost with its server
  pair.lose(0, -1);
  pair.give(1, 0, push_of(0, 0, 1, 4));  // the client pushes again
  ASSERT_EQ(pair.answers.size(), 1u);
  EXPECT_EQ(std::get<RowMessage>(pair.answers[0].message).version, 1);
  Pair other(two_rows("async", 2));
  other.give(0, 0, push_of(0, 0, 1, 4));
  other.deliver(1);  // the update arrives, its acknowledgement does not
  other.between.clear();
  other.lose(0, -1);
  other.give(1, 0, push_of(0, 0, 1, 4));
  ASSERT_EQ(other.answers.size(), 1u);
  EXPECT_EQ(std::get<RowMessage>(other.answers[0].message).version, 1);
  EXPECT_EQ(other.first_of(1, 0), pair.first_of(1, 0));
}

// Workers may know of a loss before the heir does.
TEST(ShardCopies, WhatComesToTheHeirEarlyWaits) {
  Pair pair(two_rows("async", 2));
  pair.give(1, 0, push_of(0, 0, 1, 4));
  pair.give(1, 1, Get{.row = 0, .clock = 0});
  EXPECT_EQ(pair.answers.size(), 0u);
  pair.lose(0, -1);
  EXPECT_EQ(pair.answers.size(), 2u);
}

TEST(ShardCopies, AnUpdateThatComesAfterItsServerWasLostIsIgnored) {
  Pair pair(two_rows("async", 2));
  pair.give(0, 0, push_of(0, 0, 1, 4));
  pair.lose(0, -1);
  pair.deliver();
  EXPECT_EQ(pair.shards[1]->look(0)->version, 0);
  pair.give(1, 0, push_of(0, 0, 1, 4));
  EXPECT_EQ(pair.shards[1]->look(0)->version, 1);
  EXPECT_EQ(pair.first_of(1, 0), 0) << "half of one gradient from 0.5";
}

TEST(ShardCopies, WhatALostWorkerSentEarlyIsDropped) {
  Pair pair(two_rows("async", 2));
  for (int worker = 0; worker < 2; ++worker) pair.give(1, worker, push_of(0, 0, 1, 4));
  pair.shards[1]->leave(1, pair.out);
  pair.lose(0, -1);
  ASSERT_EQ(pair.answers.size(), 1u);
  EXPECT_EQ(pair.answers[0].to, 0);
  EXPECT_EQ(pair.shards[1]->look(0)->version, 1);
}

TEST(ShardCopies, AWorkerThatIsLostWithItsServerCountsByWhatWasMerged) {
  Pair pair(two_rows("bsp", 2));
  for (int worker = 0; worker < 2; ++worker) pair.give(0, worker, push_of(0, 0, 1, 4));
  pair.deliver();
  pair.answers.clear();
  pair.give(0, 1, push_of(0, 1, 1, 4));
  pair.lose(0, 1);
  pair.give(1, 0, push_of(0, 1, 1, 4));
  ASSERT_EQ(pair.answers.size(), 1u) << "nothing waits for the lost worker";
  EXPECT_EQ(std::get<RowMessage>(pair.answers[0].message).version, 2);
}

TEST(ShardCopies, WithoutItsCopyAServerGoesOnAlone) {
  Pair pair(two_rows("bsp", 1));
  pair.give(0, 0, push_of(0, 0, 1, 4));
  EXPECT_EQ(pair.answers.size(), 0u);
  pair.lose(1, -1);
  EXPECT_EQ(pair.answers.size(), 1u);
  pair.between.clear();
  pair.give(0, 0, push_of(0, 1, 1, 4));
  EXPECT_EQ(pair.answers.size(), 2u);
  EXPECT_EQ(pair.between.size(), 0u);
}

TEST(ShardCopies, AfterABrokenConnectionUpdatesComeAgainOnce) {
  Pair pair(two_rows("async", 1));
  pair.give(0, 0, push_of(0, 0, 1, 4));
  pair.deliver(1);
  pair.between.clear();
  pair.shards[0]->send_updates(pair.out);
  pair.take(0);
  pair.deliver();
  EXPECT_EQ(pair.answers.size(), 1u);
  EXPECT_EQ(pair.first_of(1, 0), pair.first_of(0, 0));
}

TEST(ShardCopies, WrongUpdatesAreNamed) {
  Pair pair(two_rows("async", 1));
  const auto refused = [&](int server, Update update) {
    const Status status = pair.shards[server]->hear_server(update, pair.out);
    return status.ok() ? "" : status.error().message;
  };
  const Payload numbers = test::push_of(0, 0, 1, 4).payload;
  const Update right{.row = 0, .number = 1, .merged = {{0, 0}}, .payload = numbers};
  Update gap = right, many = right, whose = right;
  gap.number = 3, many.merged = {{7, 0}}, whose.row = 1;
  EXPECT_HAS(refused(1, gap), "number 3, comes after number 0");
  EXPECT_HAS(refused(1, many), "holds a push of worker 7");
  EXPECT_HAS(refused(1, whose), "came to the server that makes this row's updates");
  Update cut = right;
  cut.payload.bytes = cut.payload.bytes.first(8);
  EXPECT_HAS(refused(1, cut), "row 0");
  EXPECT_EQ(refused(1, right), "");
}

// ---- a client whose server is lost ----

struct ClientRig {
  ClientRig() : plan(two_rows("async", 1)) {
    plan.servers = plan.copies = 2;
    client = std::make_unique<Client>(
        ClientOptions{}, plan, [this](RowId row, Part) { return std::span<float>(numbers[row]); });
  }
  void arrive(int server, RowId row, Clock clock) {
    const RowMessage answer{
        .row = row, .clock = clock, .version = clock, .payload = push_of(row, 0, 3, 4).payload};
    EXPECT_TRUE(client->take(server, answer).value());
  }
  std::string next(int server) {
    const std::optional<Message> message = client->next(server);
    return message ? name_of(*message) : "nothing";
  }

  Plan plan;
  std::vector<std::vector<float>> numbers{std::vector<float>(4), std::vector<float>(4)};
  std::unique_ptr<Client> client;
};

TEST(ClientLosses, TheHeirIsAskedAndGetsWhatWasNotAcknowledged) {
  ClientRig rig;
  for (const RowId row : {0u, 1u}) rig.client->get(row, 0, Part::kWeights, {});
  EXPECT_EQ(rig.next(0), "Get");
  EXPECT_EQ(rig.next(1), "Get");
  rig.arrive(0, 0, 0);
  rig.arrive(1, 1, 0);
  rig.client->push(push_of(0, 0, 1, 4), {});
  EXPECT_EQ(rig.next(0), "Push");
  const auto lost = rig.client->lose_server(0, [](int) { return 1; });
  EXPECT_TRUE(lost.ok() && lost.value().empty());
  EXPECT_EQ(rig.next(1), "Push");
  rig.arrive(1, 0, 1);
  EXPECT_TRUE(rig.client->arrived(0));
}

TEST(ClientLosses, WithoutAnHeirRowsStayAsTheyWereRead) {
  ClientRig rig;
  const auto none = [](int) { return Client::kNoServer; };
  rig.client->get(0, 0, Part::kWeights, {});
  rig.next(0);
  rig.arrive(0, 0, 0);
  rig.client->push(push_of(0, 0, 1, 4), {});
  EXPECT_EQ(rig.client->lose_server(0, none).value(), std::vector<RowId>{0});
  EXPECT_TRUE(rig.client->arrived(0));
  EXPECT_EQ(rig.numbers[0][0], 3);
  rig.client->push(push_of(0, 1, 1, 4), {});
  rig.client->get(0, 2, Part::kHistory, {});
  EXPECT_TRUE(rig.client->arrived(0));
  ClientRig unread;
  unread.client->get(0, 0, Part::kWeights, {});
  EXPECT_HAS(unread.client->lose_server(0, none).error().message, "row 0 was never read");
}

}  // namespace
}  // namespace shoal::table::shard_copies_test
