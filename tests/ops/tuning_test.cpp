// Kernels of convolutions chosen by measured times: which are chosen, their text, and who shares
// them.
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "shoal/base/text.h"
#include "shoal/ops/tuning.h"
#include "shoal/proto/io.h"
#include "support/choices.h"
#include "support/expect.h"
#include "support/guarded_device.h"
#include "support/job.h"
#include "support/solver_rig.h"

namespace shoal::test::tuning_test {
namespace {

using ops::ConvDesc;
using ops::ConvKernel;
using ops::ConvPass;
using ops::ConvTuning;
using ops::Trial;

const char* const kNet = R"(
  layer { name: 'data' type: 'DummyData' top: 'x' top: 'label' dummy_data_param {
    shape { dim: 4 dim: 16 dim: 12 dim: 12 } shape { dim: 4 }
    data_filler { type: 'gaussian' } data_filler { value: 2 } } }
  layer { name: 'one' type: 'Convolution' bottom: 'x' top: 'y' convolution_param {
    num_output: 32 kernel_size: 3 pad: 1 weight_filler { type: 'msra' } } }
  layer { name: 'relu' type: 'ReLU' bottom: 'y' top: 'y' }
  layer { name: 'two' type: 'Convolution' bottom: 'y' top: 'z' convolution_param {
    num_output: 32 kernel_size: 3 pad: 1 weight_filler { type: 'msra' } } }
  layer { name: 'ip' type: 'InnerProduct' bottom: 'z' top: 'ip' inner_product_param {
    num_output: 5 weight_filler { type: 'xavier' } } }
  layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' })";

// Times in which one implementation is the fastest.
ConvTuning::Measure fastest(const std::string& impl) {
  return [impl](ConvKernel&, const ConvDesc&, const Trial& trial, Context&) {
    return trial.impl == impl ? 1.0 : 10.0;
  };
}
double not_measured(ConvKernel&, const ConvDesc&, const Trial& trial, Context&) {
  ADD_FAILURE() << "a kernel was measured: " << trial.impl;
  return 1;
}

struct TunedNet {
  explicit TunedNet(std::shared_ptr<ConvTuning> tuning, Phase phase = TRAIN)
      : context({.seed = 7, .tuning = std::move(tuning)}),
        net(net_of(kNet, phase), context, {.forward_only = phase == TEST}) {}
  ops::Choice choice(int layer) const { return net.layers()[layer]->choices().at(0); }
  Context context;
  Net net;
};
constexpr int kOne = 1, kTwo = 3;  // layers

// The choices for kNet, in which this implementation is the fastest.
std::string text_of(const std::string& impl) {
  const auto tuning = std::make_shared<ConvTuning>(fastest(impl));
  const TunedNet net(tuning);
  return tuning->text();
}

TEST(Tuning, TheFastestKernelIsChosen) {
  for (const char* impl : {"plain", "direct", "onednn"}) {
    if (impl == std::string("onednn") && !keeps_blocks()) continue;
    const auto tuning = std::make_shared<ConvTuning>(fastest(impl));
    const TunedNet tuned(tuning);
    EXPECT_EQ(tuned.choice(kOne).impl, impl);
    EXPECT_EQ(tuned.choice(kTwo).impl, impl);
    EXPECT_HAS(tuned.choice(kOne).how, "measured: ");
    EXPECT_HAS(tuned.choice(kOne).how, " ms, ");
    for (const ops::Refusal& refusal : tuned.choice(kOne).refused)
      EXPECT_EQ(refusal.why.find("asked for"), std::string::npos) << refusal.why;
    EXPECT_EQ(tuning->measured(), 2);
  }
}

TEST(Tuning, ALittleFasterIsNotEnough) {
  const TunedNet rule(nullptr);
  for (const auto& [ms, impl] : {std::pair{9.1, rule.choice(kTwo).impl}, {8.9, "plain"}}) {
    const auto measure = [least = ms](ConvKernel&, const ConvDesc&, const Trial& trial, Context&) {
      return trial.impl == std::string("plain") ? least : 10.0;
    };
    const TunedNet tuned(std::make_shared<ConvTuning>(measure));
    EXPECT_EQ(tuned.choice(kTwo).impl, impl) << ms;
  }
}

TEST(Tuning, OnlyThePassesOfTheNetAreMeasured) {
  std::vector<ConvPass> passes;
  const auto noting = [&](ConvKernel&, const ConvDesc& desc, const Trial& trial, Context&) {
    if (trial.impl == std::string("plain") && desc.channels == 16) passes.push_back(trial.pass);
    return 1.0;
  };
  const TunedNet trained(std::make_shared<ConvTuning>(noting));
  EXPECT_EQ(passes, (std::vector{ConvPass::kForward, ConvPass::kWeights}))
      << "the first layer has no gradient to its bottom";
  passes.clear();
  const TunedNet tested(std::make_shared<ConvTuning>(noting), TEST);
  EXPECT_EQ(passes, (std::vector{ConvPass::kForward}));
}

TEST(Tuning, EachPassGoesItsFastestWay) {
  const TunedNet rule(nullptr);
  if (!rule.choice(kTwo).needs.has_winograd) GTEST_SKIP() << "no Winograd's algorithm here";
  const auto measure = [](ConvKernel& kernel, const ConvDesc&, const Trial& trial, Context&) {
    if (trial.impl != std::string("onednn")) return 100.0;
    if (kernel.winograd() == ops::kNoPass) return 2.0;
    return trial.pass == ConvPass::kData ? 1.0 : 3.0;
  };
  const TunedNet tuned(std::make_shared<ConvTuning>(measure));
  EXPECT_HAS(tuned.choice(kTwo).how, "forward direct, to data winograd, to weights direct");
}

TEST(Tuning, AShapeIsMeasuredOnce) {
  const auto tuning = std::make_shared<ConvTuning>(fastest("direct"));
  const TunedNet first(tuning), second(tuning);
  EXPECT_EQ(tuning->measured(), 2);
}

TEST(Tuning, ALayerWithAnEngineIsLeftAlone) {
  const auto tuning = std::make_shared<ConvTuning>(not_measured);
  Context context({.tuning = tuning});
  const Net net(plain_net(net_of(kNet, TRAIN)), context);
  EXPECT_EQ(tuning->measured(), 0);
}

TEST(Tuning, ATextGivesTheSameBits) {
  for (const char* impl : {"plain", "direct", "onednn"}) {
    const auto first = std::make_shared<ConvTuning>(fastest(impl)),
               second = std::make_shared<ConvTuning>(not_measured);
    TunedNet one(first);
    second->add(first->text(), "a file");
    EXPECT_EQ(second->text(), first->text());
    TunedNet other(second);
    EXPECT_EQ(run_pass(one.net, true), run_pass(other.net, true)) << impl;
  }
}

TEST(Tuning, AnotherProcessorsChoicesAreKept) {
  std::string text = text_of("plain");
  const std::string own = ops::tuned_processor();
  for (std::size_t at = 0; (at = text.find(own, at)) != std::string::npos; ++at)
    text.replace(at, own.size(), "A 80486 x86-64-v1");
  const auto tuning = std::make_shared<ConvTuning>(fastest("direct"));
  tuning->add(text, "a file");
  const TunedNet tuned(tuning);
  EXPECT_EQ(tuned.choice(kOne).impl, "direct");
  EXPECT_EQ(tuning->measured(), 2);
  EXPECT_HAS(tuning->text(), "A 80486 x86-64-v1 | images 4 channels 16 outputs 32 ");
  EXPECT_HAS(tuning->text(), own + " | images 4 channels 16 outputs 32 ");
}

TEST(Tuning, AKernelThatIsNotHereGivesWayToTheRule) {
  std::string text = text_of("plain");
  for (std::size_t at = 0; (at = text.find("| plain |", at)) != std::string::npos; ++at)
    text.replace(at, 9, "| other |");
  const auto tuning = std::make_shared<ConvTuning>(not_measured);
  tuning->add(text, "a file");
  const LogLines log;
  const TunedNet tuned(tuning), rule(nullptr);
  EXPECT_EQ(tuned.choice(kOne).impl, rule.choice(kOne).impl);
  EXPECT_EQ(tuned.choice(kOne).how, rule.choice(kOne).how);
  EXPECT_HAS(join(log.lines, "\n"), "kernel 'other', chosen for images 4 channels 16");
  EXPECT_HAS(join(log.lines, "\n"), "results differ in their last bits");
}

TEST(Tuning, ADamagedTextSaysWhere) {
  const std::string good = "shoal kernels 1\n", line = "cpu | shape | plain | plain 1 ms\n";
  for (const auto& [text, words] : std::vector<std::pair<std::string, std::string>>{
           {"", "f:1: the file is empty"},
           {"shoal kernels 2\n", "f:1: the first line is 'shoal kernels 2'"},
           {good + line + "cpu | shape | plain\n", "f:3: a line has a processor, a shape"},
           {good + "cpu | shape | onednn forward | x\n", "f:2: 'onednn forward' is no kernel"},
           {good + "cpu | shape | onednn data=fft | x\n", "f:2: 'onednn data=fft' is no kernel"},
           {good + line + "cpu | sh", "f:3: a line has a processor"}}) {
    ConvTuning tuning;
    const std::string error = message_of([&] { tuning.add(text, "f"); });
    EXPECT_HAS(error, words);
  }
}

TEST(Tuning, IsForTheCpuAndNotDeterministic) {
  Context context({.deterministic = true, .tuning = std::make_shared<ConvTuning>(not_measured)});
  EXPECT_HAS(message_of([&] { const Net net(net_of(kNet, TRAIN), context); }),
             "deterministic: true allows no such choice");
  const GuardedDevice device;
  Context away({.device = &device, .tuning = std::make_shared<ConvTuning>(not_measured)});
  EXPECT_HAS(message_of([&] { const Net net(net_of(kNet, TRAIN), away); }),
             "--tune chooses among the CPU's convolutions");
}

TEST(Tuning, TheChiefsChoicesAreTheTeams) {
  const SolverParameter param = parse_solver(
      str("base_lr: 0.01 lr_policy: 'fixed' max_iter: 2 random_seed: 5 snapshot_after_train: false "
          "net_param { ",
          kNet, " }"),
      "test");
  const auto chief = std::make_shared<ConvTuning>(fastest("direct")),
             other = std::make_shared<ConvTuning>(not_measured);
  std::vector<std::string> impls(2);
  const JobResult result =
      train(param, {.workers = 2,
                    .stops = {2},
                    .before =
                        [&](int worker, Solver& solver) {
                          impls[static_cast<std::size_t>(worker)] =
                              solver.net().layers()[kOne]->choices().at(0).impl;
                        },
                    .tuning = {chief, other}});
  ASSERT_TRUE(result.ok()) << result.why();
  EXPECT_EQ(impls, (std::vector<std::string>{"direct", "direct"}));
  EXPECT_EQ(chief->text(), other->text());
}

}  // namespace
}  // namespace shoal::test::tuning_test
