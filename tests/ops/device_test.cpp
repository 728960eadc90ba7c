// Tests of tensors with a home elsewhere than on the host, and of the guarded device itself.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <numeric>

#include "shoal/net/net.h"
#include "shoal/ops/update.h"
#include "shoal/ops/vector.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/tensor/context.h"
#include "support/guarded_device.h"
#include "support/library_device.h"

namespace shoal::test::device_test {
namespace {

using Numbers = std::vector<float>;

Numbers numbers_of(const Tensor& tensor) {
  const std::span<const float> host = tensor.host();
  return {host.begin(), host.end()};
}

Tensor counting(std::int64_t count) {
  Tensor tensor(Shape{count});
  std::iota(tensor.host_out().begin(), tensor.host_out().end(), 1.0f);
  return tensor;
}

TEST(Devices, AnOpSeesWhatTheHostWroteAndTheHostWhatTheOpWrote) {
  const GuardedDevice device;
  Context ctx({.device = &device});
  Tensor x = counting(4), y(Shape{4});
  ops::copy(ctx, x, y);
  ops::axpy(ctx, 10, x, y);
  EXPECT_EQ(numbers_of(y), (Numbers{11, 22, 33, 44}));
  x.host_mut()[0] = 100;
  ops::add(ctx, x, y, y);
  EXPECT_EQ(numbers_of(y), (Numbers{111, 24, 36, 48}));
  const Tensor* const one[] = {&y};
  EXPECT_EQ(ops::asum(ctx, one), 219);
}

TEST(Devices, ACopyIsMadeOnlyWhereTheOtherOneIsStale) {
  const GuardedDevice device;
  Context ctx({.device = &device});
  Tensor x = counting(4), y(Shape{4});
  const Conversions& made = ctx.stream()->conversions;
  ops::copy(ctx, x, y);
  ops::copy(ctx, x, y);
  EXPECT_EQ(made.downloads, 0);
  const std::int64_t uploads = made.uploads;
  numbers_of(x);
  numbers_of(y);
  numbers_of(y);
  EXPECT_EQ(made, (Conversions{uploads, 1, 0})) << "x is here still, y comes once";
  ops::scale(ctx, 2, y);
  EXPECT_EQ(made.uploads, uploads) << "reading on the host leaves the device's copy current";
}

TEST(Devices, SeveralDownloadsAreOneWait) {
  const GuardedDevice device;
  Context ctx({.device = &device});
  Tensor x = counting(4), y = counting(4);
  ops::scale(ctx, 2, x);
  ops::scale(ctx, 3, y);
  const std::uint64_t waits = ctx.stream()->waits();
  for (Tensor* const one : {&x, &y, &x}) one->begin_download();
  EXPECT_EQ(ctx.stream()->waits(), waits);
  EXPECT_EQ(numbers_of(y), (Numbers{3, 6, 9, 12}));
  EXPECT_EQ(numbers_of(x), (Numbers{2, 4, 6, 8}));
  EXPECT_EQ(ctx.stream()->waits(), waits + 1);
  EXPECT_EQ(ctx.stream()->conversions.downloads, 2);
}

// The device is late, by chance: each in some of the rounds.
TEST(Devices, WhatIsWrittenDuringADownloadCounts) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const GuardedDevice device(seed, 1);
    Context ctx({.device = &device});
    Tensor x = counting(4);
    ops::scale(ctx, 2, x);
    x.begin_download();
    ops::scale(ctx, 2, x);
    EXPECT_EQ(numbers_of(x), (Numbers{4, 8, 12, 16})) << "by the device";
    ops::scale(ctx, 2, x);
    x.begin_download();
    std::ranges::fill(x.host_out(), 5.0f);
    ctx.stream()->synchronize();
    EXPECT_EQ(numbers_of(x), (Numbers{5, 5, 5, 5})) << "by the host";
    ops::scale(ctx, 2, x);
    x.begin_download();
    x.pin(device);
    EXPECT_EQ(numbers_of(x), (Numbers{10, 10, 10, 10}));
  }
}

TEST(Devices, TheCpuHasOneCopyAndConvertsNothing) {
  Context ctx({.threads = 1});
  Tensor x = counting(4);
  const float* const bytes = x.in();
  ops::scale(ctx, 2, x);
  EXPECT_EQ(x.in(), bytes);
  EXPECT_EQ(reinterpret_cast<const float*>(x.read(ctx)), bytes);
  EXPECT_EQ(ctx.stream()->conversions, Conversions{});
}

TEST(Devices, AVersionGrowsWithEachWriteAndWithNoRead) {
  const GuardedDevice device;
  Context ctx({.device = &device});
  Tensor x = counting(4), y(Shape{4});
  const std::uint64_t first = x.storage()->version();
  ops::copy(ctx, x, y);
  numbers_of(x);
  EXPECT_EQ(x.storage()->version(), first);
  ops::scale(ctx, 2, x);
  EXPECT_GT(x.storage()->version(), first);
}

TEST(Devices, TheHostDiesThatTouchesDeviceMemory) {
  const GuardedDevice device;
  Context ctx({.device = &device});
  Tensor x = counting(4);
  ops::scale(ctx, 2, x);
  const float* const there = reinterpret_cast<const float*>(x.read(ctx));
  ctx.stream()->synchronize();
  const auto touch = [&] {
    std::signal(SIGSEGV, SIG_DFL);  // a sanitizer's would end it otherwise
    std::_Exit(there[0] == 2 ? 0 : 1);
  };
  EXPECT_EXIT(touch(), testing::KilledBySignal(SIGSEGV), "");
}

// Returns the host's reading of a device without synchronisation: one of a few passes finds it.
TEST(Devices, AMissingSynchronisationIsFound) {
  bool found = false;
  for (std::uint64_t seed = 1; seed <= 20 && !found; ++seed) {
    const GuardedDevice broken(seed, 1, false);
    Context ctx({.device = &broken});
    Tensor x = counting(4), y(Shape{4});
    ops::copy(ctx, x, y);
    found = numbers_of(y) != Numbers{1, 2, 3, 4};
  }
  EXPECT_TRUE(found);
}

TEST(Devices, AnUploadIsDoneBeforeTheHostWritesAgain) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const GuardedDevice device(seed);
    Context ctx({.device = &device});
    Tensor x = counting(4), sum(Shape{4});
    for (int round = 0; round < 5; ++round) {
      ops::add(ctx, x, sum, sum);
      for (float& number : x.host_mut()) number += 1;
    }
    EXPECT_EQ(numbers_of(sum), (Numbers{15, 20, 25, 30})) << "seed " << seed;
  }
}

// A layout that keeps the numbers in reverse, with one number of padding in front.
class Reversed final : public Layout {
 public:
  bool equals(const Layout& other) const override {
    return dynamic_cast<const Reversed*>(&other) != nullptr;
  }
  std::size_t bytes(const Shape& shape) const override {
    return static_cast<std::size_t>(shape.count() + 1) * sizeof(float);
  }
  void pack(const Shape& shape, const float* plain, std::byte* packed) const override {
    for (std::int64_t i = 0; i < shape.count(); ++i)
      std::memcpy(packed + (shape.count() - i) * sizeof(float), plain + i, sizeof(float));
  }
  void unpack(const Shape& shape, const std::byte* packed, float* plain) const override {
    for (std::int64_t i = 0; i < shape.count(); ++i)
      std::memcpy(plain + i, packed + (shape.count() - i) * sizeof(float), sizeof(float));
  }
};

TEST(Layouts, ATensorIsConvertedWhereItIsReadOtherwise) {
  Context ctx({.threads = 1});
  const LayoutPtr reversed = std::make_shared<Reversed>(), alike = std::make_shared<Reversed>();
  Tensor x = counting(3);
  const float* packed = reinterpret_cast<const float*>(x.read(ctx, reversed));
  EXPECT_EQ((Numbers{packed[1], packed[2], packed[3]}), (Numbers{3, 2, 1}));
  EXPECT_EQ(x.read(ctx, alike), reinterpret_cast<const std::byte*>(packed)) << "an equal layout";
  EXPECT_EQ(ctx.stream()->conversions.reorders, 1);

  reinterpret_cast<float*>(x.mut(ctx, reversed))[1] = 30;
  EXPECT_TRUE(same_layout(x.layout(), reversed));
  EXPECT_EQ(numbers_of(x), (Numbers{1, 2, 30}));
  EXPECT_EQ(ctx.stream()->conversions.reorders, 2);
  ops::scale(ctx, 2, x);  // a kernel that knows the plain layout alone
  packed = reinterpret_cast<const float*>(x.read(ctx, reversed));
  EXPECT_EQ(packed[1], 60);
  EXPECT_EQ(ctx.stream()->conversions.reorders, 3);
}

// ---- whole nets ----

constexpr const char* kNet = R"(
layer { name: "data" type: "DummyData" top: "x" top: "label"
        dummy_data_param { shape { dim: 4 dim: 3 dim: 8 dim: 8 } shape { dim: 4 }
                           data_filler { type: "gaussian" } data_filler { type: "constant" value: 1 } } }
layer { name: "conv" type: "Convolution" bottom: "x" top: "conv" engine: "caffe"  # all devices have these kernels
        convolution_param { num_output: 16 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "bn" }
layer { name: "relu" type: "ReLU" bottom: "bn" top: "bn" }
layer { name: "pool" type: "Pooling" bottom: "bn" top: "pool" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "drop" type: "Dropout" bottom: "pool" top: "pool" }
layer { name: "left" type: "InnerProduct" bottom: "pool" top: "left"
        inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "right" type: "InnerProduct" bottom: "pool" top: "right"
        inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "sum" type: "Eltwise" bottom: "left" bottom: "right" top: "sum" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "sum" bottom: "label" top: "loss" }
)";

// The losses and then all params of five iterations with momentum.
std::vector<Numbers> trained(const Device* device, bool share_memory,
                             const char* definition = kNet) {
  Context ctx({.device = device, .threads = 2, .seed = 3});
  NetParameter param = parse_net(definition, "test.prototxt");
  param.mutable_state()->set_phase(TRAIN);
  Net net(param, ctx, {.share_memory = share_memory});
  std::vector<Numbers> seen(1);
  std::vector<Tensor> histories;
  for (const NetParam& one : net.params()) histories.emplace_back(one.blob->shape());
  const optim::Step step{.rate = 0.1f, .momentum = 0.9f};
  for (int iteration = 0; iteration < 5; ++iteration) {
    net.clear_gradients();
    const Result<float> loss = net.forward();
    seen[0].push_back(loss.value());
    EXPECT_TRUE(net.backward().ok());
    std::vector<ops::ParamUpdate> updates;
    for (std::size_t i = 0; i < net.params().size(); ++i) {
      Blob& blob = *net.params()[i].blob;
      updates.push_back({step, &blob.data, &blob.grad, {&histories[i]}, true});
    }
    ops::update(ctx, updates);
  }
  for (const NetParam& one : net.params()) seen.push_back(numbers_of(one.blob->data));
  return seen;
}

TEST(Devices, ANetTrainsToTheSameBits) {
  const std::vector<Numbers> cpu = trained(nullptr, true);
  EXPECT_NE(cpu[0].front(), cpu[0].back());
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const GuardedDevice device(seed, 2);
    EXPECT_EQ(trained(&device, true), cpu) << "seed " << seed;
    EXPECT_EQ(trained(&device, false), cpu) << "without a plan, seed " << seed;
  }
}

// A steady iteration moves the input once, and the loss.
TEST(Devices, ASteadyIterationConvertsAtTheEdgesAlone) {
  const GuardedDevice device;
  Context ctx({.device = &device, .seed = 3});
  NetParameter param = parse_net(kNet, "test.prototxt");
  param.mutable_state()->set_phase(TRAIN);
  Net net(param, ctx);
  const auto pass = [&] {
    const Conversions before = ctx.stream()->conversions;
    EXPECT_TRUE(net.forward().ok() && net.backward().ok());
    const Conversions& after = ctx.stream()->conversions;
    return Conversions{after.uploads - before.uploads, after.downloads - before.downloads,
                       after.reorders - before.reorders};
  };
  pass();
  const Conversions steady = pass();
  EXPECT_EQ(pass(), steady);
  EXPECT_LE(steady.uploads, 3) << "x, the label's constant, the loss";
  EXPECT_LE(steady.downloads, 3) << "the loss, its weight, a scale of BatchNorm";
}

// ---- a kernel library with a layout of its own ----

constexpr const char* kImages = R"(
layer { name: "data" type: "DummyData" top: "x" top: "label"
        dummy_data_param { shape { dim: 4 dim: 3 dim: 8 dim: 8 } shape { dim: 4 }
                           data_filler { type: "gaussian" }
                           data_filler { type: "constant" value: 1 } } }
layer { name: "conv1" type: "Convolution" bottom: "x" top: "conv1"
        convolution_param { num_output: 6 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1"
        pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "conv2" type: "Convolution" bottom: "pool1" top: "conv2"
        convolution_param { num_output: 5 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "tanh2" type: "TanH" bottom: "conv2" top: "conv2" }
layer { name: "ip" type: "InnerProduct" bottom: "conv2" top: "ip"
        inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
)";

TEST(Layouts, ANetTrainsInALibrarysLayout) {
  const std::vector<Numbers> plain = trained(nullptr, true, kImages);
  const LibraryDevice device;
  const std::vector<Numbers> packed = trained(&device, true, kImages);
  ASSERT_EQ(packed.size(), plain.size());
  for (std::size_t i = 0; i < plain.size(); ++i)
    for (std::size_t k = 0; k < plain[i].size(); ++k)
      EXPECT_NEAR(packed[i][k], plain[i][k], 2e-5) << "the losses, then params: " << i;
  EXPECT_EQ(device.packed_weights, 5 * 4) << "two weights and two biases, once an iteration";
  EXPECT_EQ(trained(&device, false, kImages), packed) << "without a plan";
}

TEST(Layouts, ANetStaysInALibrarysLayoutFromLayerToLayer) {
  const LibraryDevice device;
  Context ctx({.device = &device, .seed = 3}), on_cpu({.seed = 3});
  NetParameter param = parse_net(kImages, "test.prototxt");
  param.mutable_state()->set_phase(TRAIN);
  Net net(param, ctx), plain(param, on_cpu);
  EXPECT_GT(net.memory().blobs_unshared, plain.memory().blobs_unshared) << "padding is planned";
  for (int pass = 0; pass < 3; ++pass) {
    const Conversions before = ctx.stream()->conversions;
    EXPECT_TRUE(net.forward().ok() && net.backward().ok());
    const std::int64_t reorders = ctx.stream()->conversions.reorders - before.reorders;
    EXPECT_EQ(reorders, 3) << "the input, what ip reads, and its gradient";
  }
}

// Kernels work in the plan's memory; without a plan, in what the context had before the first pass.
TEST(Layouts, WorkspaceIsThereBeforeTheFirstPass) {
  NetParameter param = parse_net(kImages, "test.prototxt");
  param.mutable_state()->set_phase(TRAIN);
  std::size_t own[2];
  for (const bool share : {false, true}) {
    Context ctx({.threads = 2, .seed = 3});
    Net net(param, ctx, {.share_memory = share});
    own[share] = ctx.scratch(0).size();
    EXPECT_TRUE(net.forward().ok() && net.backward().ok());
    EXPECT_EQ(ctx.scratch(0).size(), own[share]);
  }
  EXPECT_GT(own[false], 0u);
  EXPECT_EQ(own[true], 0u);
}

}  // namespace
}  // namespace shoal::test::device_test
