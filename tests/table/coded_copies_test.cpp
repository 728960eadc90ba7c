// Tests the copies of rows whose pushes travel in a codec: what a server hands to the copy is in
// that codec too.
#include <gtest/gtest.h>

#include <algorithm>

#include "shoal/table/codecs/kinds.h"
#include "shoal/table/error_feedback.h"
#include "support/shard_pair.h"
#include "support/shard_rig.h"

namespace shoal::table::coded_copies_test {
namespace {

// Two workers' pushes of a row in a codec, to servers with copies and to one without.
struct CodedPair {
  static constexpr std::size_t kLength = 40;
  static constexpr float kRate = 0.5f;
  explicit CodedPair(const CodecSpec& spec)
      : codec(make_codec(spec)), pair(plan_with(spec)), single(one_copy(pair.plan), 0.5f) {
    for (auto& state : states) state.resize(codec->state_length(kLength));
  }
  static Plan plan_with(const CodecSpec& spec) {
    Plan plan = test::plan_of("bsp", 2, {kLength, 4});
    plan.rows.edit()[1].server = 1;
    plan.codecs = {spec};
    plan.rows.edit()[0].push_codec = 1;
    return plan;
  }
  static Plan one_copy(Plan plan) {
    plan.copies = 1;
    return plan;
  }
  // Pushes to `server` of the pair, and to the other. Notes what the codec leaves out of the merge.
  void push(Clock clock, int server, bool whole = false) {
    std::vector<float> sum(kLength);
    for (int worker = 0; worker < 2; ++worker) {
      std::vector<float> gradient(kLength);
      for (std::size_t i = 0; i < kLength; ++i)
        gradient[i] = 0.001f * static_cast<float>(1 + (i * 7 + clock * 5 + worker * 3) % 23);
      Push push{.row = 0, .clock = clock, .base = clock, .rate = kRate};
      push.payload = codec->encode(
          {.data = gradient},
          {.state = states[worker], .clock = clock, .rate = kRate, .whole = whole && worker == 1});
      const Values sent = or_throw(decode_with(*codec, push.payload, kLength));
      for (std::size_t i = 0; i < kLength; ++i) sum[i] += sent.data[i];
      pair.give(server, worker, push);
      single.give(worker, push);
    }
    pair.deliver();
    if (server != 0) return;
    const CodecState merged(states[2]);
    const Payload copied = codec->encode({.data = sum}, {.state = merged, .rate = kRate});
    const Values has = or_throw(decode_with(*codec, copied, kLength));
    if (merged.empty())
      for (std::size_t i = 0; i < kLength; ++i) left[i] += double{sum[i]} - has.data[i];
    else
      std::ranges::copy(left_out(merged, kLength), left.begin());
  }
  std::span<const float> row(int server) const { return pair.numbers_of(server, 0); }
  // Expects that servers with copies lack what the merges left out, and nothing else.
  void expect_lacks_what_was_left_out(int server) {
    const std::span<const float> all = single.shard().look(0)->payload.floats();
    for (std::size_t i = 0; i < kLength; ++i)
      EXPECT_NEAR(row(server)[i] - all[i], kRate / 2 * left[i], 1e-6) << i;
  }

  const std::unique_ptr<Codec> codec;
  std::vector<float> states[3];  // of the workers, and of the merges as this test makes them
  std::vector<double> left = std::vector<double>(kLength);
  test::ShardPair pair;
  test::ShardRig single;
};

// Both servers have the same bits, and the heir goes on from them. What the merges' codec has left
// out is lost with the server, and nothing else is.
TEST(CodedCopies, AnHeirOfCodedPushesGoesOnWithTheSameBits) {
  for (const CodecSpec& spec :
       {CodecSpec{.id = fp16_id},
        CodecSpec{.id = topk_id, .amount = 0.1f, .bits = 32, .feedback = true}}) {
    SCOPED_TRACE(static_cast<int>(spec.id));
    CodedPair job(spec);
    for (Clock clock = 0; clock < 6; ++clock) {
      job.push(clock, 0);
      EXPECT_TRUE(std::ranges::equal(job.row(0), job.row(1))) << "clock " << clock;
    }
    job.expect_lacks_what_was_left_out(0);
    EXPECT_NE(std::ranges::max(job.left), 0);
    job.pair.lose(0, -1);
    for (Clock clock = 6; clock < 9; ++clock) job.push(clock, 1);
    EXPECT_EQ(job.pair.shards[1]->look(0)->version, 9);
    job.expect_lacks_what_was_left_out(1);
  }
}

// Such a push is of a worker that leaves.
TEST(CodedCopies, APushOfTheWholeTakesAlongWhatMergesHaveLeftOut) {
  CodedPair job({.id = topk_id, .amount = 0.1f, .bits = 32, .feedback = true});
  for (Clock clock = 0; clock < 6; ++clock) job.push(clock, 0);
  job.push(6, 0, true);
  std::ranges::fill(job.left, 0);
  job.expect_lacks_what_was_left_out(0);
  EXPECT_TRUE(std::ranges::equal(job.row(0), job.row(1)));
}

}  // namespace
}  // namespace shoal::table::coded_copies_test
