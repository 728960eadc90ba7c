// Training with codecs: how near it comes to float32, that all workers keep the same params, what
// is left out survives a snapshot, and what makes no sense is refused.
#include <gtest/gtest.h>

#include <filesystem>

#include "shoal/base/file.h"
#include "shoal/parallel/exchange/codec_choice.h"
#include "shoal/solver/snapshot.h"
#include "support/exchange_job.h"
#include "support/expect.h"

namespace shoal::test::codec_training_test {
namespace {

constexpr const char* kSgd = "type: 'SGD' base_lr: 0.01 momentum: 0.9 ";

class CodecTraining : public ExchangeJob {
 protected:
  static JobResult trained(const std::string& codec, const std::string& scheme = "bsp",
                           const std::string& more = kSgd) {
    const std::string words = codec.empty() ? "" : str(" codec { min_count: 1 ", codec, " }");
    return test::train(job(2, more + words), {.workers = 2, .servers = 2, .scheme = scheme});
  }
  static void expect_near(const JobResult& result, const JobResult& whole, double far) {
    ASSERT_TRUE(result.ok()) << result.why();
    ASSERT_TRUE(whole.ok()) << whole.why();
    EXPECT_LT(distance(result.at(0), whole.at(0)), far);
    EXPECT_NE(result.at(0), whole.at(0)) << "coded numbers are not those of float32";
    EXPECT_EQ(result.weights[0], result.weights[1]) << "all workers have the same params";
  }
};

TEST_F(CodecTraining, SixteenAndEightBitsComeNear) {
  const JobResult whole = trained("");
  expect_near(trained("push: 'fp16'"), whole, 1e-3);
  expect_near(trained("push: 'fp16' pull: 'bf16'"), whole, 1e-2);
  expect_near(trained("push: 'int8:feedback' pull: 'int8:feedback'"), whole, 3e-2);
  expect_near(trained("push: 'int8:stochastic:feedback'"), whole, 3e-2);
}

TEST_F(CodecTraining, FewNumbersComeNearWithFeedback) {
  const JobResult whole = trained("");
  for (const char* codec : {"topk:0.25", "topk:0.25:8", "topk:0.25:2", "onebit", "twobit:0.05"}) {
    SCOPED_TRACE(codec);
    expect_near(trained(str("push: '", codec, "'")), whole, 0.3);
    expect_near(trained(str("push: '", codec, "' pull: '", codec, "'")), whole, 0.3);
  }
}

TEST_F(CodecTraining, DeltasOfLocalStepsGoBothWays) {
  const std::string scheme = "local_steps local_steps=3";
  const JobResult whole = trained("", scheme);
  expect_near(trained("push: 'topk:0.25:8' pull: 'topk:0.25:8'", scheme), whole, 0.3);
  expect_near(trained("push: 'fp16' pull: 'fp16'", scheme), whole, 1e-2);
}

// The sums and factors that workers send each other are rounded where they are made, so that all
// have the same bits.
TEST_F(CodecTraining, SumsAndFactorsTravelInSixteenBits) {
  const JobResult whole = trained("");
  for (const char* way : {"TREE", "RING", "HALVING_DOUBLING", "DIRECT", "FACTORS"}) {
    SCOPED_TRACE(way);
    expect_near(trained("push: 'bf16'", "bsp", str(kSgd, "exchange { way: ", way, " } ")), whole,
                2e-2);
  }
}

TEST_F(CodecTraining, MatricesAreSummedAsFactorsOfLowRank) {
  const JobResult whole = trained("");
  for (const char* way : {"TREE", "RING", "HALVING_DOUBLING", "DIRECT"}) {
    SCOPED_TRACE(way);
    const std::string exchange = str(kSgd, "exchange { way: ", way, " } ");
    expect_near(trained("push: 'lowrank:2:warm_up=1'", "bsp", exchange), whole, 0.3);
    EXPECT_LT(distance(trained("push: 'lowrank:2:warm_up=60'", "bsp", exchange).at(0), whole.at(0)),
              1e-6)
        << "it has not begun";
  }
}

TEST_F(CodecTraining, MomentumIsCorrectedAtTheWorker) {
  const JobResult whole = trained("");
  expect_near(trained("push: 'topk:0.5:momentum=0.9:warm_up=10'", "bsp",
                      "type: 'SGD' base_lr: 0.01 momentum: 0 "),
              whole, 0.3);
}

TEST_F(CodecTraining, WhatMakesNoSenseIsRefused) {
  const Refusal refusals[] = {
      {"codec { push: 'gzip' }", "codec 'gzip': there is none of this name; there are float32"},
      {"codec { push: 'topk:0.6' }", "its amount is 0.6; above 0 up to 0.5 is allowed"},
      {"codec { push: 'topk:0.1:7' }", "its values have 7 bits; 2, 8 and 32 are allowed"},
      {"codec { layer { name: 'nowhere' push: 'fp16' } }", "the net has no layer 'nowhere'"},
      {"codec { push: 'topk' }", "pushes weights, and what is left out", "elastic"},
      {"codec { pull: 'topk' }", "workers read versions of their own", "async"},
      {"codec { push: 'topk' }", "delay compensation takes squares", "dc_asgd"},
      {"exchange { way: RING } codec { push: 'int8' }", "where workers hand on what they get"},
      {"codec { push: 'lowrank:2' } exchange { way: TABLE }", "takes whole matrices"},
      {"codec { push: 'topk:momentum=0.9' }", "let the solver be SGD with momentum: 0, not 0.9"},
  };
  for (const Refusal& one : refusals) expect(one);
}

TEST_F(CodecTraining, WhatIsLeftOutIsInASnapshot) {
  const std::string prefix = fresh_directory("codec_snapshot") + "/s";
  const std::string words =
      str(kSgd, "snapshot_prefix: '", prefix, "' codec { min_count: 1 push: 'topk:0.1:8' }");
  JobShape shape{.workers = 2, .servers = 2, .stops = {10}};
  shape.after = [](int, Solver& solver) { EXPECT_TRUE(solver.snapshot().ok()); };
  const JobResult first = test::train(job(2, words), shape);
  ASSERT_TRUE(first.ok()) << first.why();
  for (const char* worker : {"0", "1"})
    EXPECT_TRUE(file_exists(str(prefix, "_iter_10.worker", worker)));
  shape.after = nullptr;
  shape.stops = {20};
  const JobResult whole = test::train(job(2, words), shape);
  const auto resumed = [&] {
    JobShape rest = shape;
    rest.before = [&](int, Solver& solver) { solver.restore(state_path(str(prefix, "_iter_10"))); };
    return test::train(job(2, words), rest);
  };
  EXPECT_EQ(resumed().at(0), whole.at(0));
  std::filesystem::remove(str(prefix, "_iter_10.worker1"));
  EXPECT_NE(resumed().at(0), whole.at(0)) << "what worker 1 had left out is lost";
}

TEST_F(CodecTraining, AutoTakesWhatSavesTime) {
  const SolverParameter param =
      job(2, str(kSgd, "codec { push: 'AUTO' pull: 'AUTO' within: SPARSE min_count: 1 }"));
  Context context(Context::Options{});
  const Net net(param.net_param(), context);
  const auto scheme = or_throw(table::make_scheme("bsp"));
  const auto chosen = [&](double bandwidth, const char* within, const char* words = "bsp") {
    SolverParameter asked = param;
    CodecParameter::Class found{};
    EXPECT_TRUE(CodecParameter::Class_Parse(within, &found));
    asked.mutable_codec()->set_within(found);
    const auto of = or_throw(table::make_scheme(words));
    const auto codecs =
        parallel::choose_codecs(net, asked, "job", *of, 2,
                                {.bandwidth = bandwidth, .codecs = std::vector<double>(4, 1e-9)});
    const std::size_t conv = 1;
    EXPECT_EQ(net.layers()[conv]->name(), "conv");
    return str(words_of(codecs[conv].push), ' ', words_of(codecs[conv].pull));
  };
  EXPECT_EQ(chosen(12.5e6, "SPARSE"), "topk:0.05:8 topk:0.05:8");
  EXPECT_EQ(chosen(12.5e6, "EIGHTH"), "int8:feedback int8:feedback");
  EXPECT_EQ(chosen(12.5e6, "HALF"), "fp16 bf16");
  EXPECT_EQ(chosen(12.5e6, "EXACT"), "float32 float32");
  EXPECT_EQ(chosen(0, "SPARSE"), "float32 float32") << "the rate is unknown";
  EXPECT_EQ(chosen(1e11, "SPARSE"), "float32 float32") << "encoding would take longer";
  EXPECT_EQ(chosen(12.5e6, "SPARSE", "async"), "topk:0.05:8 bf16");
}

}  // namespace
}  // namespace shoal::test::codec_training_test
