// The numbers that a shard computes: update rules, means, clips, against ops::update to the bit or
// formulas in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "shoal/base/random.h"
#include "shoal/ops/update.h"
#include "support/shard_rig.h"

namespace shoal::table::shard_numbers_test {
namespace {

using test::plan_of;
using test::push_of;
using test::ShardRig;

constexpr optim::Rule kEveryRule[] = {optim::Rule::kSgd,      optim::Rule::kNesterov,
                                      optim::Rule::kAdaGrad,  optim::Rule::kRmsProp,
                                      optim::Rule::kAdaDelta, optim::Rule::kAdam};

optim::RuleOptions options_of(optim::Rule rule) {
  optim::RuleOptions options;
  options.rule = rule;
  options.delta = 1e-4f;
  if (rule != optim::Rule::kAdaGrad && rule != optim::Rule::kRmsProp) options.momentum = 0.9f;
  return options;
}

std::vector<float> random_numbers(Random& random, std::size_t n, float most = 1) {
  std::vector<float> numbers(n);
  for (float& x : numbers) x = random.uniform(-most, most);
  return numbers;
}

// One worker's param of kCount numbers, cut into rows, against ops::update on the whole: bit for
// bit, whatever the cut, with the rate and the iteration of each contribution.
TEST(ShardNumbers, OneWorkersRowsAreTheLocalSolversToTheBit) {
  constexpr std::size_t kCount = 10007;
  constexpr Clock kStart = 7;
  Context ctx(Context::Options{});
  for (const optim::Rule rule : kEveryRule)
    for (const optim::Regularization kind :
         {optim::Regularization::kL2, optim::Regularization::kL1})
      for (const std::vector<std::uint32_t>& cut :
           {std::vector<std::uint32_t>{10007}, {5003, 5004}, {1, 2048, 7, 4951, 3000}}) {
        SCOPED_TRACE(str(optim::name_of(rule), kind == optim::Regularization::kL1 ? " L1 " : " L2 ",
                         cut.size(), " rows"));
        Plan plan = plan_of("bsp", 1, cut);
        plan.rule = options_of(rule);
        plan.regularization = kind;
        plan.weight_decay = 0.05f;
        plan.iter_size = 3;
        plan.start = kStart;
        for (Row& row : plan.rows.edit()) row.lr_mult = 2, row.decay_mult = 0.5f;
        Random random(11, 3);
        Tensor w(Shape{kCount}), g(Shape{kCount}), h(Shape{kCount}), h2(Shape{kCount});
        Tensor* histories[] = {&h, &h2};
        ShardRig rig(plan, 0.25f);
        for (float& x : w.host_mut()) x = 0.25f;
        for (Clock clock = kStart; clock < kStart + 5; ++clock) {
          const float rate = 0.1f / static_cast<float>(clock);
          for (float& x : g.host_mut()) x = random.uniform(-3, 3);
          std::size_t offset = 0;
          for (RowId row = 0; row < cut.size(); ++row) {
            rig.give(0, push_of(row, clock, g.host().subspan(offset, cut[row]), rate));
            offset += cut[row];
          }
          const optim::StepInputs inputs{
              clock, rate, 2, 0.05f, 0.5f, kind, static_cast<float>(1.0 / 3)};
          ops::ParamUpdate update{optim::make_step(plan.rule, inputs),
                                  &w,
                                  &g,
                                  {std::begin(histories), std::end(histories)}};
          update.histories.resize(static_cast<std::size_t>(optim::histories(rule)));
          ops::update(ctx, {&update, 1});
        }
        std::size_t offset = 0;
        for (RowId row = 0; row < cut.size(); ++row)
          for (std::size_t part = 0; part <= static_cast<std::size_t>(optim::histories(rule));
               ++part) {
            const Tensor& whole = part == 0 ? w : part == 1 ? h : h2;
            const std::vector<float> numbers = rig.numbers(row, static_cast<Part>(part));
            const auto expected = whole.host().subspan(offset, cut[row]);
            for (std::size_t i = 0; i < numbers.size(); ++i)
              ASSERT_EQ(numbers[i], expected[i])
                  << "row " << row << " part " << part << " element " << i;
            if (part == static_cast<std::size_t>(optim::histories(rule))) offset += cut[row];
          }
      }
}

// The only worker's row is where it reads it: updated there, by a crew and to the bit, and the
// gradient is cleared by who takes it.
TEST(ShardNumbers, ARowAtHomeIsUpdatedWhereItIsRead) {
  constexpr std::size_t kCount = 30011;
  for (const optim::Rule rule : kEveryRule) {
    SCOPED_TRACE(optim::name_of(rule));
    Plan plan = plan_of("bsp", 1, {kCount});
    plan.rule = options_of(rule);
    Random random(17, 2);
    std::vector<float> home = random_numbers(random, kCount), gradient(kCount);
    Shard shard(0), other(0);
    Outbox out;
    ASSERT_TRUE(
        shard.handle(0, PlanMessage{plan, [&](RowId) { return std::span(home); }}, out).ok());
    ASSERT_TRUE(other.handle(0, PlanMessage{plan}, out).ok());
    for (Shard* one : {&shard, &other})
      ASSERT_TRUE(one->handle(0, Init{0, Part::kWeights, as_payload({home, nullptr})}, out).ok());
    std::size_t shared = 0;
    shard.share_out([&](std::size_t pieces, const std::function<void(std::size_t)>& piece) {
      for (std::size_t i = pieces; i-- > 0; ++shared) piece(i);
    });
    for (Clock clock = 0; clock < 4; ++clock) {
      gradient = random_numbers(random, kCount);
      out.clear();
      Push push = push_of(0, clock, gradient, 0.1f);
      ASSERT_TRUE(other.handle(0, push, out).ok());
      push.finite = true;
      push.clear_after = gradient;
      ASSERT_TRUE(shard.handle(0, push, out).ok());
      ASSERT_EQ(out.size(), 2u);
      const auto elsewhere = std::get<RowMessage>(out[0].message).payload.floats(),
                 here = std::get<RowMessage>(out[1].message).payload.floats();
      EXPECT_EQ(here.data(), home.data());
      ASSERT_TRUE(std::ranges::equal(home, elsewhere)) << "clock " << clock;
      EXPECT_EQ(std::ranges::count(gradient, 0.0f), static_cast<std::ptrdiff_t>(kCount))
          << "spent, and not cleared";
    }
    EXPECT_GE(shared, 4u * 2) << "the crew had nothing to do";
  }
}

// A server looks after what it was told to also where it drops a push; and where others
// read a row, it is nobody's home.
TEST(ShardNumbers, ARowThatOthersReadIsNotAtHome) {
  const Plan plan = plan_of("bsp", 2, {2});
  std::vector<float> home = {1, 2};
  Shard shard(0);
  Outbox out;
  ASSERT_TRUE(shard.handle(0, PlanMessage{plan, [&](RowId) { return std::span(home); }}, out).ok());
  ASSERT_TRUE(shard.handle(0, Init{0, Part::kWeights, as_payload({home, nullptr})}, out).ok());
  for (int worker = 0; worker < 2; ++worker)
    ASSERT_TRUE(shard.handle(worker, push_of(0, 0, 1, 2), out).ok());
  EXPECT_EQ(home, (std::vector<float>{1, 2}));
  EXPECT_EQ(shard.look(0)->payload.floats()[0], 0);
}

// Three workers' weighted mean, worked in double.
TEST(ShardNumbers, BspStepsOnTheMeanOfTheWorkers) {
  constexpr std::size_t kCount = 4099;
  const float weights[] = {1, 3, 0.5f};
  Plan plan = plan_of("bsp", 3, {kCount});
  plan.rule.momentum = 0.9f;
  plan.weight_decay = 0.1f;
  ShardRig rig(plan, 1);
  Random random(5, 0);
  std::vector<double> w(kCount, 1), h(kCount);
  for (Clock clock = 0; clock < 4; ++clock) {
    std::vector<std::vector<float>> gradients;
    for (int worker = 0; worker < 3; ++worker) gradients.push_back(random_numbers(random, kCount));
    for (const int worker : {2, 0, 1}) {
      Push push = push_of(0, clock, gradients[static_cast<std::size_t>(worker)], 0.1f);
      push.weight = weights[worker];
      rig.give(worker, push);
    }
    for (std::size_t i = 0; i < kCount; ++i) {
      const double mean =
          (gradients[0][i] * 1.0 + gradients[1][i] * 3.0 + gradients[2][i] * 0.5) / 4.5;
      h[i] = 0.9 * h[i] + 0.1 * (mean + 0.1 * w[i]);
      w[i] -= h[i];
    }
  }
  const std::vector<float> numbers = rig.numbers(0);
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_NEAR(numbers[i], w[i], 3e-6) << i;
}

TEST(ShardNumbers, HistoriesArePlantedAndRead) {
  Plan plan = plan_of("bsp", 1, {2, 2});
  plan.rule.momentum = 0.5f;
  Shard shard(0);
  Outbox out;
  const std::vector<float> zeros(2), history = {4, 8};
  const Message messages[] = {PlanMessage{plan},
                              Init{0, Part::kHistory, as_payload({history, nullptr})},
                              Init{1, Part::kHistory, {}},
                              Init{0, Part::kWeights, as_payload({zeros, nullptr})},
                              Init{1, Part::kWeights, as_payload({zeros, nullptr})},
                              push_of(0, 0, 1, 2),
                              Get{0, 0, Part::kHistory}};
  for (const Message& message : messages) ASSERT_TRUE(shard.handle(0, message, out).ok());
  ASSERT_EQ(out.size(), 3u);
  EXPECT_EQ(std::get<Ready>(out[0].message).rows, 2u);
  const auto& weights = std::get<RowMessage>(out[1].message);
  const auto& answer = std::get<RowMessage>(out[2].message);
  EXPECT_EQ(answer.part, Part::kHistory);
  EXPECT_TRUE(std::ranges::equal(weights.payload.floats(), std::vector<float>{-3, -5}));
  EXPECT_TRUE(std::ranges::equal(answer.payload.floats(), std::vector<float>{3, 5}));
}

TEST(ShardNumbers, AnAnswerTakenEarlierNeverChanges) {
  ShardRig rig(plan_of("async", 2, {3}), 10);
  std::vector<Outbox> kept;
  for (Clock clock = 0; clock < 100; ++clock) {
    for (int worker = 0; worker < 2; ++worker) {
      rig.push(worker, clock, 1);
      kept.push_back(std::exchange(rig.out(), {}));
      if (clock % 3 == 0) kept.erase(kept.begin());  // so that some buffers are free again
    }
  }
  for (const Outbox& outbox : kept) {
    ASSERT_EQ(outbox.size(), 1u);
    const auto& row = std::get<RowMessage>(outbox[0].message);
    for (const float x : row.payload.floats())
      ASSERT_EQ(x, 10 - 0.5f * static_cast<float>(row.version));
  }
  const std::size_t most = rig.shard().bytes_held();
  kept.clear();
  EXPECT_LE(most, (2 + 32) * 3 * sizeof(float));
}

// ---- a clip of the norm ----

// Two shards with two rows each of one plan, against a computation in double.
TEST(ShardNumbers, TheNormOfAllRowsIsClipped) {
  const std::vector<std::uint32_t> lengths = {100, 3000, 1, 2100};
  Plan plan = plan_of("bsp", 2, lengths);
  plan.servers = 2;
  plan.iter_size = 2;
  plan.clip = 5;
  plan.rows.edit()[1].server = plan.rows.edit()[3].server = 1;
  ShardRig rigs[] = {ShardRig(plan, 1, 0), ShardRig(plan, 1, 1)};
  Random random(17, 0);
  std::vector<std::vector<double>> w;
  for (const std::uint32_t length : lengths) w.emplace_back(length, 1.0);
  for (Clock clock = 0; clock < 4; ++clock) {
    const float size = clock == 2 ? 0.001f : 1;  // once the norm is below the limit
    std::vector<std::vector<float>> gradients[2];
    double squares[2] = {};
    for (int worker = 0; worker < 2; ++worker)
      for (RowId row = 0; row < lengths.size(); ++row) {
        gradients[worker].push_back(random_numbers(random, lengths[row], size));
        ShardRig& rig = rigs[plan.rows[row].server];
        rig.give(worker, push_of(row, clock, gradients[worker][row], 0.1f));
        for (const Outgoing& one : std::exchange(rig.out(), {})) {
          ASSERT_EQ(one.to, kCoordinator) << "a row was answered before the norm of all was known";
          const auto& norm = std::get<Norm>(one.message);
          EXPECT_EQ(norm.clock, clock);
          EXPECT_EQ(norm.server, plan.rows[row].server);
          squares[norm.server] = norm.squares;
        }
      }
    const auto mean = [&](RowId row, std::size_t i) {
      return (double{gradients[0][row][i]} + gradients[1][row][i]) / 2;
    };
    double expected = 0;
    for (RowId row = 0; row < lengths.size(); ++row)
      for (std::size_t i = 0; i < lengths[row]; ++i) expected += std::pow(mean(row, i), 2);
    EXPECT_NEAR(squares[0] + squares[1], expected, 1e-6 * expected);
    const double norm = std::sqrt(expected), scale = (norm > 5 ? 5 / norm : 1) / 2;
    EXPECT_EQ(norm > 5, clock != 2);
    for (RowId row = 0; row < lengths.size(); ++row)
      for (std::size_t i = 0; i < lengths[row]; ++i) w[row][i] -= 0.1 * scale * mean(row, i);
    for (ShardRig& rig : rigs) {
      rig.give(-1, NormTotal{clock, squares[0] + squares[1]});
      EXPECT_EQ(rig.out().size(), 4u) << "two rows, two workers";
      rig.out().clear();
      rig.give(-1, NormTotal{clock, 1e9});  // said twice
      EXPECT_TRUE(rig.out().empty());
    }
  }
  for (RowId row = 0; row < lengths.size(); ++row) {
    const std::vector<float> numbers = rigs[plan.rows[row].server].numbers(row);
    for (std::size_t i = 0; i < lengths[row]; ++i)
      ASSERT_NEAR(numbers[i], w[row][i], 2e-6) << "row " << row << " element " << i;
  }
}

// Each update of equal gradients moves the weights by the rate, whichever worker it comes from.
TEST(ShardNumbers, AdamCountsTheUpdatesOfTheRow) {
  Plan plan = plan_of("async factor=1", 4);
  plan.rule = options_of(optim::Rule::kAdam);
  plan.rule.delta = 1e-8f;
  ShardRig rig(plan);
  float before = 0;
  for (Clock clock = 0; clock < 50; ++clock)
    for (int worker = 0; worker < 4; ++worker) {
      rig.push_at(0.001f, worker, clock, 1);
      const float now = rig.numbers(0)[0];
      ASSERT_NEAR(before - now, 0.001f, 2e-6f) << "worker " << worker << ", clock " << clock;
      before = now;
    }
}

}  // namespace
}  // namespace shoal::table::shard_numbers_test
