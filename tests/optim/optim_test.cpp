// Update rules against formulas worked in double, and learning rates against those that Caffe
// logged.
#include "shoal/optim/rule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "shoal/base/random.h"
#include "shoal/ops/update.h"
#include "shoal/optim/rate.h"

namespace shoal::optim_test {
namespace {

using optim::Policy;
using optim::Regularization;
using optim::Rule;

constexpr Rule kEveryRule[] = {Rule::kSgd,     Rule::kNesterov, Rule::kAdaGrad,
                               Rule::kRmsProp, Rule::kAdaDelta, Rule::kAdam};

optim::RuleOptions options_of(Rule rule) {
  optim::RuleOptions options;
  options.rule = rule;
  options.delta = 1e-4f;
  if (rule != Rule::kAdaGrad && rule != Rule::kRmsProp) options.momentum = 0.9f;
  return options;
}

// One element's update, from the papers' formulas, in double.
struct Oracle {
  double w = 0, h = 0, h2 = 0;

  void step(const optim::RuleOptions& o, const optim::StepInputs& in, double g) {
    const double rate = double{in.rate} * in.lr_mult, mu = o.momentum, rho = o.rms_decay,
                 delta = o.delta, b2 = o.momentum2;
    const double lambda = double{in.weight_decay} * in.decay_mult;
    g *= in.gradient_scale;
    g += in.regularization == Regularization::kL2 ? lambda * w : lambda * ((w > 0) - (w < 0));
    const double before = h, t = static_cast<double>(in.iteration) + 1;
    switch (o.rule) {
      case Rule::kSgd: h = mu * h + rate * g, w -= h; break;
      case Rule::kNesterov: h = mu * h + rate * g, w -= (1 + mu) * h - mu * before; break;
      case Rule::kAdaGrad: h += g * g, w -= rate * g / (std::sqrt(h) + delta); break;
      case Rule::kRmsProp:
        h = rho * h + (1 - rho) * g * g, w -= rate * g / (std::sqrt(h) + delta);
        break;
      case Rule::kAdaDelta: {
        h = mu * h + (1 - mu) * g * g;
        const double u = g * std::sqrt((h2 + delta) / (h + delta));
        h2 = mu * h2 + (1 - mu) * u * u;
        w -= rate * u;
        break;
      }
      case Rule::kAdam:
        h = mu * h + (1 - mu) * g, h2 = b2 * h2 + (1 - b2) * g * g;
        w -= rate * std::sqrt(1 - std::pow(b2, t)) / (1 - std::pow(mu, t)) * h /
             (std::sqrt(h2) + delta);
        break;
    }
  }
};

struct Param {
  Tensor w, g, h, h2;
  explicit Param(std::int64_t n) : w(Shape{n}), g(Shape{n}), h(Shape{n}), h2(Shape{n}) {}
  void update(Context& ctx, const optim::RuleOptions& o, const optim::StepInputs& in,
              bool clears = false) {
    ops::ParamUpdate update{optim::make_step(o, in), &w, &g, {&h, &h2}, clears};
    update.histories.resize(static_cast<std::size_t>(optim::histories(o.rule)));
    ops::update(ctx, {&update, 1});
  }
};

TEST(Optim, EveryRuleAgreesWithItsFormulaInDouble) {
  constexpr std::int64_t kCount = 257;
  Context ctx(Context::Options{});
  for (const Rule rule : kEveryRule)
    for (const Regularization kind : {Regularization::kL2, Regularization::kL1}) {
      SCOPED_TRACE(str(optim::name_of(rule), kind == Regularization::kL1 ? " L1" : " L2"));
      const optim::RuleOptions options = options_of(rule);
      Param run(kCount);
      std::vector<Oracle> oracle(kCount);
      Random random(7, optim::histories(rule));
      for (std::int64_t i = 0; i < kCount; ++i)
        oracle[static_cast<std::size_t>(i)].w = run.w.mut()[i] = random.uniform(-1, 1);
      for (int t = 0; t < 5; ++t) {
        const optim::StepInputs in{t, 0.02f, 2, 0.05f, 0.5f, kind, 0.25f};
        for (std::int64_t i = 0; i < kCount; ++i) {
          run.g.mut()[i] = random.uniform(-3, 3);
          oracle[static_cast<std::size_t>(i)].step(options, in, run.g.in()[i]);
        }
        run.update(ctx, options, in);
      }
      for (std::int64_t i = 0; i < kCount; ++i) {
        const Oracle& expected = oracle[static_cast<std::size_t>(i)];
        ASSERT_NEAR(run.w.in()[i], expected.w, 2e-6) << "element " << i;
        ASSERT_NEAR(run.h.in()[i], expected.h, 2e-6 * std::max(1.0, std::fabs(expected.h)))
            << "element " << i;
      }
    }
}

// w = 1, g = 2, L2 with decay 0.5: the rule sees 2.5. Rate 0.1.
TEST(Optim, OneStepWorkedByHand) {
  const struct {
    Rule rule;
    double w, h, h2;
  } cases[] = {
      {Rule::kSgd, 1 - 0.25, 0.25, 0},
      {Rule::kNesterov, 1 - 1.9 * 0.25, 0.25, 0},
      {Rule::kAdaGrad, 1 - 0.1, 6.25, 0},
      // 2.5 / sqrt(0.0625) = 10
      {Rule::kRmsProp, 1 - 1.0, 0.0625, 0},
      {Rule::kAdaDelta, 1 - 0.1 * 2.5 * std::sqrt(1e-4 / 0.6251), 0.625,
       0.1 * 6.25 * 1e-4 / 0.6251},
      // The first corrected step is rate * sign(g).
      {Rule::kAdam, 1 - 0.1, 0.25, 0.00625},
  };
  Context ctx(Context::Options{});
  for (const auto& c : cases) {
    SCOPED_TRACE(optim::name_of(c.rule));
    optim::RuleOptions options = options_of(c.rule);
    if (c.rule != Rule::kAdaDelta) options.delta = 0;
    Param run(1);
    run.w.mut()[0] = 1;
    run.g.mut()[0] = 2;
    run.update(ctx, options, {0, 0.1f, 1, 0.5f, 1, Regularization::kL2, 1});
    EXPECT_NEAR(run.w.in()[0], c.w, 1e-6);
    EXPECT_NEAR(run.h.in()[0], c.h, 1e-6);
    EXPECT_NEAR(run.h2.in()[0], c.h2, 1e-6);
  }
}

TEST(Optim, L1PullsTowardsZeroAndLeavesZeroAlone) {
  Context ctx(Context::Options{});
  Param run(3);
  run.w.mut()[0] = 2, run.w.mut()[1] = -2, run.w.mut()[2] = 0;
  run.update(ctx, {}, {0, 1, 1, 0.5f, 1, Regularization::kL1, 1});
  EXPECT_FLOAT_EQ(run.w.in()[0], 1.5f);
  EXPECT_FLOAT_EQ(run.w.in()[1], -1.5f);
  EXPECT_EQ(run.w.in()[2], 0);
}

TEST(Optim, ThreadsChangeNoBitAndClearingIsDoneAfterUse) {
  constexpr std::int64_t kCount = 100003;
  for (const Rule rule : kEveryRule) {
    SCOPED_TRACE(optim::name_of(rule));
    std::vector<std::vector<float>> results;
    for (const int threads : {1, 2, 3}) {
      Context ctx(Context::Options{.threads = threads});
      Param run(kCount);
      Random random(3, 1);
      for (float& x : run.w.host_mut()) x = random.uniform(-1, 1);
      for (float& x : run.g.host_mut()) x = random.uniform(-1, 1);
      run.update(ctx, options_of(rule), {4, 0.1f, 1, 0.01f, 1, Regularization::kL2, 1}, true);
      for (const float x : run.g.host()) ASSERT_EQ(x, 0);
      results.emplace_back(run.w.host().begin(), run.w.host().end());
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
  }
}

TEST(Optim, OptionsOutOfRangeAreNamed) {
  const auto wrong = [](Rule rule, auto change) {
    optim::RuleOptions options = options_of(rule);
    EXPECT_EQ(optim::validate(options), "");
    change(options);
    return optim::validate(options);
  };
  EXPECT_EQ(wrong(Rule::kAdaGrad, [](auto& o) { o.momentum = 0.5f; }),
            "momentum is 0.5, and AdaGrad has none: leave it out");
  EXPECT_EQ(wrong(Rule::kRmsProp, [](auto& o) { o.momentum = 0.5f; }),
            "momentum is 0.5, and RMSProp has none: leave it out");
  EXPECT_EQ(wrong(Rule::kRmsProp, [](auto& o) { o.rms_decay = 1; }),
            "rms_decay is 1; it must be in [0, 1)");
  EXPECT_EQ(wrong(Rule::kAdam, [](auto& o) { o.momentum = 1; }),
            "momentum is 1; for Adam it must be in [0, 1)");
  EXPECT_EQ(wrong(Rule::kAdam, [](auto& o) { o.momentum2 = -1; }),
            "momentum2 is -1; it must be in [0, 1)");
  EXPECT_EQ(wrong(Rule::kSgd, [](auto& o) { o.momentum = -1; }),
            "momentum is -1; it must not be negative");
  EXPECT_EQ(wrong(Rule::kAdaDelta, [](auto& o) { o.delta = -1; }),
            "delta is -1; it must not be negative");
}

TEST(Optim, RulesAreFoundByName) {
  for (const Rule rule : kEveryRule) EXPECT_EQ(optim::rule_named(optim::name_of(rule)), rule);
  EXPECT_EQ(optim::rule_named("ADAGRAD"), Rule::kAdaGrad);
  EXPECT_FALSE(optim::rule_named("Lion"));
}

optim::RateOptions read_options(const std::string& name, const nlohmann::json& entry) {
  optim::RateOptions options;
  options.policy = optim::policy_named(name).value();
  options.base = entry.value("base_lr", 0.0f);
  options.gamma = entry.value("gamma", 0.0f);
  options.power = entry.value("power", 0.0f);
  options.stepsize = static_cast<std::int64_t>(entry.value("stepsize", 0.0));
  options.max_iter = static_cast<std::int64_t>(entry.value("max_iter", 0.0));
  options.stepvalues = entry["stepvalue"].get<std::vector<std::int64_t>>();
  return options;
}

TEST(Optim, EveryPolicyGivesTheRatesThatCaffeLogged) {
  std::ifstream file("tests/golden/learning_rates.json");
  ASSERT_TRUE(file.good()) << "tests run in the root of the repository";
  const auto golden = nlohmann::json::parse(file);
  ASSERT_EQ(golden.size() + 1, optim::policy_names().size());  // Caffe has no plateau
  for (const auto& [name, entry] : golden.items()) {
    SCOPED_TRACE(name);
    const optim::RateOptions options = read_options(name, entry);
    ASSERT_EQ(optim::validate(options), "");
    std::int64_t steps = 0;
    for (std::size_t i = 0; i < entry["rates"].size(); ++i) {
      steps = optim::steps_taken(options, static_cast<std::int64_t>(i), steps);
      EXPECT_FLOAT_EQ(optim::rate_at(options, static_cast<std::int64_t>(i), steps),
                      entry["rates"][i].get<float>())
          << "iteration " << i;
    }
  }
}

TEST(Optim, MultistepTakesOneStepAnIterationHoweverFarBehind) {
  optim::RateOptions options{
      .policy = Policy::kMultistep, .base = 1, .gamma = 0.5f, .stepvalues = {10, 20, 30}};
  EXPECT_EQ(optim::steps_taken(options, 9, 0), 0);
  EXPECT_EQ(optim::steps_taken(options, 100, 0), 1);
  EXPECT_EQ(optim::steps_taken(options, 101, 1), 2);
  EXPECT_EQ(optim::steps_taken(options, 102, 2), 3);
  EXPECT_EQ(optim::steps_taken(options, 103, 3), 3);
}

// The rate falls when the loss has not been below its least for the window of its step; then the
// next window begins, and behind the last the rate stays.
TEST(Optim, PlateauFallsWhereTheLossDoesNot) {
  const optim::RateOptions options{
      .policy = Policy::kPlateau, .base = 1, .gamma = 0.5f, .windows = {2, 3}};
  optim::Plateau plateau;
  std::int64_t steps = 0;
  std::vector<float> rates;
  const float losses[] = {5, 4, 4, 4, 3, 3, 3, 3, 3, 3, 3, 3};
  for (std::int64_t i = 0; i < std::ssize(losses); ++i) {
    steps = plateau.steps(options, i, losses[i], steps);
    rates.push_back(optim::rate_at(options, i, steps));
  }
  EXPECT_EQ(rates, (std::vector<float>{1, 1, 1, 0.5f, 0.5f, 0.5f, 0.5f, 0.25f, 0.25f, 0.25f, 0.25f,
                                       0.25f}));
  EXPECT_EQ(plateau.least, 3);
  EXPECT_EQ(optim::validate({.policy = Policy::kPlateau, .base = 1, .windows = {4, 0}}),
            "plateau_winsize is 0; it must be 1 or more");
}

TEST(Optim, PolyIsZeroFromItsEndOn) {
  const optim::RateOptions options{
      .policy = Policy::kPoly, .base = 1, .power = 0.5f, .max_iter = 10};
  EXPECT_GT(optim::rate_at(options, 9, 0), 0);
  EXPECT_EQ(optim::rate_at(options, 10, 0), 0);
  EXPECT_EQ(optim::rate_at(options, 11, 0), 0);
}

TEST(Optim, ARateThatIsScaledRisesEvenlyInItsWarmUp) {
  const optim::RateScaling scaling{.factor = 5, .warmup = 4};
  for (const auto& [iteration, rate] :
       std::vector<std::pair<int, float>>{{0, 2}, {1, 3}, {2, 4}, {3, 5}, {4, 5}, {100, 5}})
    EXPECT_FLOAT_EQ(rate, optim::scaled(1, scaling, iteration)) << iteration;
  EXPECT_EQ(0.25f, optim::scaled(0.25f, {}, 0));
}

TEST(Optim, PoliciesThatMakeNoSenseAreNamed) {
  EXPECT_EQ(optim::validate({.policy = Policy::kStep, .base = 1, .gamma = 0.1f}),
            "stepsize is 0; lr_policy \"step\" needs one of 1 or more");
  EXPECT_EQ(optim::validate({.policy = Policy::kPoly, .base = 1}),
            "max_iter is 0; lr_policy \"poly\" needs one of 1 or more");
  EXPECT_EQ(
      optim::validate({.policy = Policy::kSigmoid, .base = 1, .gamma = -0.5f, .stepsize = 10}),
      "gamma is -0.5; for lr_policy \"sigmoid\" it must not be negative");
  EXPECT_EQ(optim::validate(
                {.policy = Policy::kMultistep, .base = 1, .gamma = 0.1f, .stepvalues = {20, 10}}),
            "the stepvalues must rise");
  EXPECT_EQ(optim::validate({.policy = Policy::kFixed, .base = -1}),
            "base_lr is -1; it must not be negative");
  EXPECT_FALSE(optim::policy_named("cosine"));
}

}  // namespace
}  // namespace shoal::optim_test
