// Codecs: float32 copies nothing, another one passes through client and shard, and no damaged or
// unknown payload becomes numbers. faults_test sends rows in two codecs over a network with faults.
#include "shoal/table/codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "shoal/table/codecs/kinds.h"
#include "shoal/table/error_feedback.h"
#include "support/client_rig.h"
#include "support/expect.h"
#include "support/schemes.h"
#include "support/shard_rig.h"
#include "support/twice_codec.h"

namespace shoal::table::codec_test {
namespace {

using test::ClientRig;
using test::kTwice;
using test::make_test_codec;
using test::plan_of;
using test::ShardRig;

std::vector<float> numbers_of(const Payload& payload, std::size_t count) {
  const Result<Values> numbers = test::TwiceCodec().decode(payload, count);
  EXPECT_TRUE(numbers.ok());
  return {numbers.value().data.begin(), numbers.value().data.end()};
}

TEST(Codec, Float32SharesTheNumbers) {
  const auto owner = std::make_shared<const std::vector<float>>(3, 1.5f);
  const Payload payload = float32_codec().encode({*owner, owner});
  EXPECT_EQ(payload.bytes.data(), std::as_bytes(std::span(*owner)).data());
  EXPECT_EQ(payload.owner, owner);
  const Result<Values> numbers = float32_codec().decode(payload, 3);
  ASSERT_TRUE(numbers.ok());
  EXPECT_EQ(numbers.value().data.data(), owner->data());
  EXPECT_EQ(numbers.value().owner, owner);
}

TEST(Codec, DamageAndAnotherCodecAreNamed) {
  const std::vector<float> three(3);
  Payload payload = as_payload({three});
  EXPECT_EQ(decode_with(float32_codec(), payload, 4).error().message,
            "has 3 numbers; the row has 4");
  payload.bytes = payload.bytes.first(5);
  EXPECT_EQ(decode_with(float32_codec(), payload, 3).error().message,
            "has 5 bytes of numbers, which are four bytes each");
  payload.codec = kTwice;
  EXPECT_EQ(decode_with(float32_codec(), payload, 3).error().message,
            "is in codec 200; the plan says float32");
}

// ---- a shard and its two clients, of one row that is sent twice both ways ----

struct Pair {
  explicit Pair(const std::string& scheme, bool twice = true)
      : row{.length = 3, .push_codec = twice, .pull_codec = twice},
        plan(plan_with(scheme)),
        shard(plan, 10, 0, &SchemeSpec::make, make_test_codec),
        clients{ClientRig(plan, {.worker = 0, .codecs = make_test_codec}),
                ClientRig(plan, {.worker = 1, .codecs = make_test_codec})} {}
  Plan plan_with(const std::string& scheme) const {
    Plan plan = plan_of(scheme, 2);
    plan.codecs = {{.id = kTwice}};
    plan.rows.edit()[0] = row;
    return plan;
  }
  Push push(int worker, Clock clock, float value) {
    clients[worker].gradients[0].assign(3, value);
    return clients[worker].pushed(0, clock);
  }
  Result<bool> take(int worker, const Message& message) {
    return clients[worker].client->take(0, message);
  }
  std::vector<float> weights(int worker) const {
    const std::vector<float>& all = clients[worker].numbers[0];
    return {all.begin(), all.begin() + 3};
  }

  const Row row;
  const Plan plan;
  ShardRig shard;
  ClientRig clients[2];
};

TEST(Codec, PassesThroughClientShardAndSharedAnswers) {
  Pair pair("bsp");
  const Push push = pair.push(0, 0, 2);
  EXPECT_EQ(push.payload.codec, kTwice);
  EXPECT_EQ(push.payload.bytes.size(), 24u);
  pair.clients[0].need(0, 0);
  EXPECT_EQ(pair.clients[0].next().payload.bytes.data(), push.payload.bytes.data())
      << "encoded once, and sent again as it was";
  pair.shard.give(0, push);
  pair.shard.give(1, pair.push(1, 0, 4));
  ASSERT_EQ(pair.shard.out().size(), 2u);
  auto& first = std::get<RowMessage>(pair.shard.out()[0].message);
  const auto& second = std::get<RowMessage>(pair.shard.out()[1].message);
  EXPECT_EQ(first.payload.codec, kTwice);
  EXPECT_EQ(first.payload.bytes.data(), second.payload.bytes.data()) << "encoded once for both";
  ASSERT_TRUE(pair.take(0, first).value());
  EXPECT_EQ(pair.weights(0), std::vector<float>(3, 7.f)) << "10 - (2 + 4) / 2";
  // as a link reads it: where place() says
  RowMessage placed = second;
  placed.payload = {.codec = kTwice};
  Client& client = *pair.clients[1].client;
  EXPECT_TRUE(client.place(placed, 25).empty()) << "more than three numbers can be";
  const std::span<std::byte> place = client.place(placed, 24);
  ASSERT_EQ(place.size(), 24u);
  std::ranges::copy(second.payload.bytes, place.begin());
  ASSERT_TRUE(pair.take(1, placed).value());
  EXPECT_EQ(pair.weights(1), pair.weights(0));
}

TEST(Codec, AWorkersOwnAnswerIsEncodedToo) {
  Pair pair("elastic moving_rate=0.5");
  Push push = pair.push(0, 0, 20);
  push.kind = ContributionKind::kWeights;
  pair.shard.give(0, push);
  ASSERT_EQ(pair.shard.out().size(), 1u);
  const auto& answer = std::get<RowMessage>(pair.shard.out()[0].message);
  EXPECT_EQ(numbers_of(answer.payload, 3), std::vector<float>(3, 15.f)) << "half way to 10";
}

TEST(Codec, WhatIsReadIsKeptAsItWasRead) {
  const auto end = [](const char* scheme, bool twice) {
    Pair pair(scheme, twice);
    pair.shard.give(0, pair.push(0, 0, 2));
    EXPECT_TRUE(pair.take(0, pair.shard.out().at(0).message).value());
    pair.shard.give(1, pair.push(1, 0, 1));
    pair.shard.give(0, pair.push(0, 1, 1));
    const auto weights = pair.shard.shard().look(0)->payload.floats();
    return std::vector<float>(weights.begin(), weights.end());
  };
  const std::vector<float> plain = end("async compensation=1", false);
  EXPECT_EQ(end("async compensation=1", true), plain);
  EXPECT_NE(end("async", true), plain);
}

TEST(Codec, NothingDamagedBecomesNumbers) {
  Pair pair("bsp");
  Push push = pair.push(0, 0, 2);
  std::vector<std::byte> bytes(push.payload.bytes.begin(), push.payload.bytes.end());
  bytes[13] ^= std::byte{1};
  push.payload = {kTwice, bytes, nullptr};
  EXPECT_EQ(pair.shard.refused(0, push),
            "worker 0's push of row 0 at clock 0 has two numbers 1 that differ");
  push.payload.codec = CodecId{9};
  EXPECT_EQ(pair.shard.refused(0, push),
            "worker 0's push of row 0 at clock 0 is in codec 9; the plan says codec 200");
  RowMessage row{.row = 0, .clock = 1, .version = 1, .payload = {kTwice, bytes, nullptr}};
  EXPECT_FAILS_WITH("Row of row 0 has two numbers 1 that differ", pair.take(0, row));
  EXPECT_EQ(pair.weights(0), std::vector<float>(3, 0.f));
  EXPECT_TRUE(pair.shard.out().empty());
}

// ---- a codec with a state on the side that encodes, of a whole number for each number ----

constexpr CodecId kWhole{201};

// Sends the nearest whole numbers; with error feedback, what that leaves out for the next time.
class WholeCodec : public Codec {
 public:
  CodecId id() const override { return kWhole; }
  std::size_t bound(std::size_t numbers) const override { return numbers * sizeof(float); }
  Payload encode(const Values& numbers, const Encoding&) const override {
    auto [whole, values] = new_values(numbers.data.size());
    std::ranges::transform(numbers.data, whole.begin(), [](float x) { return std::round(x); });
    return {kWhole, std::as_bytes(values.data), values.owner};
  }
  Result<Values> decode(const Payload& payload, std::size_t count) const override {
    if (payload.floats().size() != count) return Error{Code::kPeer, "has another length"};
    return Values{payload.floats(), payload.owner};
  }
};
std::unique_ptr<Codec> make_with_whole(const CodecSpec& spec) {
  if (spec.id != kWhole) return make_test_codec(spec);
  return with_error_feedback(std::make_unique<WholeCodec>(), 0);
}

// Gradients of 0.3 are 0 or 1 on the wire; after ten of them the row has moved by 3, and so has
// what its reader has, though a push was lost, repeated and sent again. The reader is told only
// what changed, and has the server's weights to the bit.
TEST(Codec, KeepsWhatItLeavesOutOnBothSides) {
  Plan plan = plan_of("bsp", 1, {2});
  plan.codecs = {{.id = kWhole, .feedback = true}};
  plan.rows.edit()[0].push_codec = plan.rows.edit()[0].pull_codec = 1;
  Shard shard(0, &SchemeSpec::make, make_with_whole);
  Outbox out;
  const std::vector<float> first(2, 0.25f), gradient(2, 0.3f);
  or_throw(shard.handle(0, PlanMessage{plan}, out));
  or_throw(shard.handle(0, Init{0, Part::kWeights, as_payload({first})}, out));
  std::vector<float> weights = first, seen;
  Client client({.worker = 0, .codecs = make_with_whole}, plan,
                [&](RowId, Part) { return std::span(weights); });
  for (Clock clock = 0; clock < 10; ++clock) {
    out.clear();
    client.push({.row = 0, .clock = clock, .rate = 1, .payload = as_payload({gradient})},
                Instant{});
    const Push push = std::get<Push>(*client.next(0));
    EXPECT_FALSE(client.take(0, NeedPush{0, clock}).value());
    const Push again = std::get<Push>(*client.next(0));
    EXPECT_TRUE(std::ranges::equal(push.payload.bytes, again.payload.bytes)) << clock;
    for (const Push& one : {again, push}) {
      const Status status = shard.handle(0, one, out);
      ASSERT_TRUE(status.ok()) << status.error().message;
    }
    EXPECT_EQ(std::get<RowMessage>(out.at(0).message).payload.codec, kWhole);
    ASSERT_TRUE(client.take(0, out.at(0).message).value());
    EXPECT_EQ(weights[0], shard.look(0)->payload.floats()[0]);
    seen.push_back(weights[0]);
  }
  EXPECT_NEAR(weights[0], 0.25f - 3, 1.0f / 2);
  EXPECT_NE(seen.front(), seen.back());
}

// A reader that does not have the version before gets whole weights.
TEST(Codec, AReaderWithoutTheVersionBeforeGetsAllNumbers) {
  Plan plan = plan_of("async", 2, {2});
  plan.codecs = {{.id = kWhole, .feedback = true}};
  plan.rows.edit()[0].pull_codec = 1;
  ShardRig shard(plan, 10, 0, &SchemeSpec::make, make_with_whole);
  ClientRig clients[] = {{plan, {.worker = 0, .codecs = make_with_whole}},
                         {plan, {.worker = 1, .codecs = make_with_whole}}};
  for (ClientRig& client : clients) std::ranges::fill(client.numbers[0], 10);
  const auto exchange = [&](int worker, Clock clock) {
    clients[worker].gradients[0].assign(2, 2.25f);
    shard.give(worker, clients[worker].pushed(0, clock));
    const Message answer = shard.out().back().message;
    EXPECT_TRUE(clients[worker].client->take(0, answer).value());
    EXPECT_EQ(clients[worker].numbers[0][0], shard.shard().look(0)->payload.floats()[0]);
    return std::get<RowMessage>(answer).payload.codec;
  };
  EXPECT_EQ(exchange(0, 0), kWhole);
  EXPECT_EQ(exchange(0, 1), kWhole);
  EXPECT_EQ(exchange(1, 0), CodecId::kFloat32) << "worker 1 has version 0, and there are three";
  EXPECT_EQ(exchange(1, 1), kWhole);
}

// A number that is not finite leaves as it is, so that the server names it, and what was left out
// is forgotten.
TEST(Codec, WhatIsNotFiniteIsSentAsItIs) {
  Plan plan = plan_of("bsp", 1, {2});
  plan.codecs = {{.id = kWhole, .feedback = true}};
  plan.rows.edit()[0].push_codec = 1;
  std::vector<float> weights(2), state(3, 7), gradient = {1, NAN};
  Client client({.worker = 0,
                 .codecs = make_with_whole,
                 .states = [&](RowId, std::size_t) { return CodecState(state); }},
                plan, [&](RowId, Part) { return std::span(weights); });
  client.push({.row = 0, .payload = as_payload({gradient})}, Instant{});
  const Push push = std::get<Push>(*client.next(0));
  EXPECT_EQ(push.payload.codec, CodecId::kFloat32);
  EXPECT_EQ(push.payload.bytes.data(), std::as_bytes(std::span(gradient)).data());
  EXPECT_EQ(state, std::vector<float>(3, 0));
}

// A push of the whole is float32 and holds the numbers, the momentum and what was left out before,
// at the rate of now: nothing is missing from the sum of the pushes then. Sent again it has the
// same bytes, though the worker went on.
TEST(Codec, APushOfTheWholeHoldsAllThatWasLeftOut) {
  constexpr std::size_t kLength = 40;
  for (const float momentum : {0.f, 0.5f}) {
    SCOPED_TRACE(momentum);
    Plan plan = plan_of("bsp", 1, {kLength});
    plan.codecs = {
        {.id = topk_id, .amount = 0.1f, .bits = 32, .feedback = true, .momentum = momentum}};
    plan.rows.edit()[0].push_codec = 1;
    std::vector<float> state((momentum > 0 ? 2 : 1) * kLength + 1), gradient(kLength);
    const auto states = [&](RowId, std::size_t) { return CodecState(state); };
    ClientRig worker(plan, {.states = states});
    std::vector<double> sums(kLength), sent(kLength);
    for (Clock clock = 0; clock < 7; ++clock) {
      const float rate = 1 / static_cast<float>(1 + clock);
      const bool whole = clock >= 5;
      const std::vector<float> before = state;
      for (std::size_t i = 0; i < kLength; ++i)
        gradient[i] = static_cast<float>(i * (i + 3) % 17) - 8 + static_cast<float>(clock);
      const std::vector<float> made = gradient;
      worker.client->push({.row = 0,
                           .clock = clock,
                           .rate = rate,
                           .payload = as_payload({gradient}),
                           .whole = whole,
                           .clear_after = gradient},
                          {});
      EXPECT_EQ(gradient, std::vector<float>(kLength)) << "they may be cleared at once";
      const Push push = worker.next();
      EXPECT_EQ(push.payload.codec, whole ? CodecId::kFloat32 : topk_id);
      const auto codec = make_codec(plan.codecs[0]);
      const Values values = or_throw(decode_with(*codec, push.payload, kLength));
      for (std::size_t i = 0; i < kLength; ++i) {
        sums[i] += double{rate} * made[i];
        sent[i] += double{rate} * values.data[i];
        if (!whole) continue;
        const float velocity = momentum > 0 ? momentum * before[1 + kLength + i] : 0;
        EXPECT_FLOAT_EQ(values.data[i], velocity + made[i] + before[0] / rate * before[1 + i]);
        EXPECT_EQ(state[1 + i], 0);
      }
      worker.need(0, clock);
      EXPECT_TRUE(std::ranges::equal(worker.next().payload.bytes, push.payload.bytes));
      ASSERT_TRUE(worker.row(0, clock + 1, 0, clock + 1).value());
    }
    for (std::size_t i = 0; i < kLength && momentum == 0; ++i) EXPECT_NEAR(sent[i], sums[i], 1e-5);
  }
}

TEST(Codec, APlanWithAnUnknownCodecIsRefused) {
  Shard shard(0);
  Outbox out;
  Plan plan = plan_of("bsp", 1);
  plan.rows.edit()[0].pull_codec = 1;
  EXPECT_EQ(shard.handle(0, PlanMessage{plan}, out).error().message,
            "worker 0's plan: row 0 is in codec 1, but there are 0, numbered from 1");
  plan.codecs = {{.id = CodecId{7}}};
  EXPECT_EQ(shard.handle(0, PlanMessage{plan}, out).error().message,
            "worker 0's plan has rows in codec 7, which this build does not have");
}

}  // namespace
}  // namespace shoal::table::codec_test
