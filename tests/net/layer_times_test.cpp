// The times of layers by the clock of their device.
#include "shoal/net/layer_times.h"

#include <gtest/gtest.h>

#include <chrono>

#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "support/devices.h"
#include "support/expect.h"
#include "support/solver_rig.h"

namespace shoal::test::layer_times_test {
namespace {

constexpr const char* kNet =
    "layer { name: 'data' type: 'DummyData' top: 'data' dummy_data_param { shape { dim: 64 dim: 80 "
    "} data_filler { type: 'uniform' } } } "
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' inner_product_param { "
    "num_output: 100 weight_filler { type: 'xavier' } } } "
    "layer { name: 'loss' type: 'Reduction' bottom: 'ip' top: 'loss' loss_weight: 1 }";

class LayerTimesOn : public testing::TestWithParam<TestDevice> {};

TEST_P(LayerTimesOn, AddUpToNoMoreThanThePasses) {
  Context context({.device = GetParam().get()});
  Net net(parse_net(kNet, "times.prototxt"), context);
  LayerTimes times(net);
  const auto pass = [&](bool backward) {
    ASSERT_TRUE(net.forward().ok());
    if (backward) {
      ASSERT_OK(net.backward());
    }
    times.add();
  };
  const auto total = [&] {
    LayerTimes::Seconds sum;
    for (const LayerTimes::Seconds& layer : times.layers()) {
      EXPECT_GE(layer.forward, 0);
      EXPECT_GE(layer.backward, 0);
      sum.forward += layer.forward;
      sum.backward += layer.backward;
    }
    return sum;
  };
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 3; ++i) pass(true);
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
  const LayerTimes::Seconds all = total();
  EXPECT_GT(times.layers()[1].forward, 0);
  EXPECT_GT(times.layers()[1].backward, 0);
  EXPECT_EQ(times.layers()[0].backward, 0) << "it has none";
  EXPECT_LE(all.forward + all.backward, passed.count() * 1.001);
  times.clear();
  pass(false);
  EXPECT_GT(total().forward, 0);
  EXPECT_EQ(total().backward, 0);
  times.clear();
  times.stop();
  pass(true);
  EXPECT_EQ(total().forward, 0) << "the net has no hooks any more";
}

INSTANTIATE_TEST_SUITE_P(Devices, LayerTimesOn, testing::ValuesIn(test_devices()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace shoal::test::layer_times_test
