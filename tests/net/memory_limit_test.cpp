// A limit on the memory of a net: convolutions do without Winograd's algorithm where that is
// needed.
#include <gtest/gtest.h>

#include "shoal/base/text.h"
#include "shoal/ops/op.h"
#include "support/choices.h"
#include "support/expect.h"
#include "support/solver_rig.h"

namespace shoal::test::memory_limit_test {
namespace {

// Winograd's algorithm takes more memory in layer 'large' than in layer 'small'.
const char* const kNet = R"(
  layer { name: 'data' type: 'DummyData' top: 'x' top: 'label' dummy_data_param {
    shape { dim: 2 dim: 64 dim: 8 dim: 8 } shape { dim: 2 }
    data_filler { type: 'gaussian' } data_filler { value: 2 } } }
  layer { name: 'small' type: 'Convolution' bottom: 'x' top: 'y' convolution_param {
    num_output: 64 kernel_size: 3 pad: 1 weight_filler { type: 'msra' } } }
  layer { name: 'large' type: 'Convolution' bottom: 'y' top: 'z' convolution_param {
    num_output: 256 kernel_size: 3 pad: 1 weight_filler { type: 'msra' } } }
  layer { name: 'ip' type: 'InnerProduct' bottom: 'z' top: 'ip' inner_product_param {
    num_output: 5 weight_filler { type: 'xavier' } } }
  layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' })";
constexpr int kSmall = 1, kLarge = 2;  // layers

struct LimitedNet : ChosenNet {
  explicit LimitedNet(std::size_t limit, const Choice& choice = kAuto)
      : ChosenNet(net_of(kNet, TRAIN), choice, 1, {.memory_limit = limit}) {}
  std::size_t bytes() const { return net.memory().blobs + net.memory().kept; }
  bool has_winograd(int layer) const {
    return net.layers()[static_cast<std::size_t>(layer)]->choices().at(0).needs.has_winograd;
  }
};

bool has_winograd() { return LimitedNet(0).has_winograd(kLarge); }

TEST(MemoryLimit, ANetThatFitsIsTheSame) {
  LimitedNet free(0), limited(free.bytes());
  EXPECT_EQ(limited.has_winograd(kLarge), free.has_winograd(kLarge));
  EXPECT_EQ(run_pass(limited.net, true), run_pass(free.net, true));
}

TEST(MemoryLimit, ANetThatFitsWithoutWinogradAloneIsADirectOne) {
  if (!has_winograd()) GTEST_SKIP() << "no Winograd's algorithm here";
  LimitedNet free(0), direct(0, kDirect);
  ASSERT_LT(direct.bytes(), free.bytes());
  const LogLines log;
  LimitedNet limited(direct.bytes());
  EXPECT_LE(limited.bytes(), direct.bytes());
  EXPECT_EQ(run_pass(limited.net, true), run_pass(direct.net, true));
  EXPECT_TRUE(
      log.has(".*memory_limit .* MB leaves Winograd's algorithm out of large.*: .* MB of "
              "blobs and scratch become .*"))
      << join(log.lines, "\n");
}

TEST(MemoryLimit, WhatTakesMostIsLeftOutFirst) {
  if (!has_winograd()) GTEST_SKIP() << "no Winograd's algorithm here";
  const LimitedNet free(0), limited(free.bytes() - 1);
  EXPECT_TRUE(limited.has_winograd(kSmall));
  EXPECT_FALSE(limited.has_winograd(kLarge));
  EXPECT_LT(limited.bytes(), free.bytes());
}

TEST(MemoryLimit, ANetThatFitsInNoWaySaysWhatItTakes) {
  const LimitedNet direct(0, kDirect);
  const std::string error = message_of([&] { LimitedNet(direct.bytes() - 1); });
  EXPECT_HAS(error, "blobs and scratch take ");
  EXPECT_HAS(error, " MB, more than memory_limit: ");
  EXPECT_EQ(error.find("even without Winograd's algorithm") != std::string::npos, has_winograd());
  EXPECT_HAS(error, "The largest: ");
  EXPECT_HAS(error, "blob '");
  EXPECT_HAS(error, "iter_size");
}

TEST(MemoryLimit, HoldsForATestNetAndALargerInput) {
  const NetParameter param = net_of(
      "layer { name: 'x' type: 'Input' top: 'x' input_param { shape { dim: 1 dim: 16 dim: 8 dim: 8 "
      "} } } layer { name: 'c' type: 'Convolution' bottom: 'x' top: 'c' convolution_param { "
      "num_output: 16 kernel_size: 3 pad: 1 } }",
      TEST);
  Context context({});
  Net net(param, context, {.forward_only = true, .memory_limit = 1 << 20});
  net.blob("x")->reshape(Shape{1, 16, 512, 512});
  EXPECT_HAS(message_of([&] { net.reshape(); }), "more than memory_limit: 1.04858");
}

}  // namespace
}  // namespace shoal::test::memory_limit_test
