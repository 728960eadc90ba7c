// A net whose backward pass overwrites gradients of params instead of adding to them: which they
// are, and that they are the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "shoal/net/net.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "support/devices.h"
#include "support/expect.h"

namespace shoal::test::overwritten_gradients_test {
namespace {

std::string dummy(const std::string& top, const std::string& shape,
                  const std::string& filler = "type: 'gaussian'") {
  return "layer { name: 'make_" + top + "' type: 'DummyData' top: '" + top +
         "' dummy_data_param { shape { " + shape + " } data_filler { " + filler + " } } }\n";
}
std::string conv(const std::string& name, const std::string& blobs, const std::string& more = "",
                 const std::string& type = "Convolution") {
  return "layer { name: '" + name + "' type: '" + type + "' " + blobs + more +
         " convolution_param { num_output: 4 kernel_size: 3 pad: 1 weight_filler { type: 'xavier' "
         "} } }\n";
}
std::string dense(const std::string& name, const std::string& bottom, const std::string& more) {
  return "layer { name: '" + name + "' type: 'InnerProduct' bottom: '" + bottom + "' top: '" +
         name + "' " + more +
         " inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }\n";
}
std::string loss(const std::string& bottom) {
  return "layer { name: 'loss_" + bottom + "' type: 'Reduction' bottom: '" + bottom +
         "' top: 'loss_" + bottom + "' loss_weight: 0.5 reduction_param { operation: SUMSQ } }\n";
}

// Layers of each kind: 'one', 'twice' and 'last' have gradients of weights that one call makes.
const std::string kNet =
    dummy("x", "dim: 6 dim: 4 dim: 5 dim: 7") + dummy("z", "dim: 6 dim: 4 dim: 5 dim: 7") +
    dummy("choice", "dim: 6 dim: 1", "type: 'constant' value: 1") +
    conv("one", "bottom: 'x' top: 'one'") +
    conv("twice", "bottom: 'one' top: 'twice'", " param { lr_mult: 2 }") +
    conv("two_bottoms", "bottom: 'twice' bottom: 'z' top: 'a' top: 'b'") +
    conv("up", "bottom: 'a' top: 'up'", "", "Deconvolution") +
    dense("shared", "up", "param { name: 'w' }") + dense("shares", "b", "param { name: 'w' }") +
    "layer { name: 'norm' type: 'BatchNorm' bottom: 'up' top: 'norm' }\n"
    "layer { name: 'scale' type: 'Scale' bottom: 'norm' top: 'scale' }\n" +
    dense("last", "scale", "") +
    "layer { name: 'some' type: 'Filter' bottom: 'last' bottom: 'choice' top: 'some' }\n" +
    dense("varies", "some", "") + loss("shared") + loss("shares") + loss("last") + loss("varies");

struct TestNet {
  explicit TestNet(const Device* device)
      : context({.device = device, .seed = 7}), net(parse(), context) {}
  static NetParameter parse() {
    NetParameter param = parse_net(kNet, "test.prototxt");
    param.mutable_state()->set_phase(TRAIN);
    return param;
  }
  std::string name_of(const NetParam& param) const {
    return net.layers()[static_cast<std::size_t>(param.layer)]->name() +
           (param.index == 0 ? "" : str(" ", param.index));
  }
  void pass() {
    net.clear_gradients();
    ASSERT_TRUE(net.forward().ok());
    ASSERT_TRUE(net.backward().ok());
  }
  Context context;
  Net net;
};

class OverwrittenGradients : public testing::TestWithParam<TestDevice> {};
INSTANTIATE_TEST_SUITE_P(Devices, OverwrittenGradients, testing::ValuesIn(test_devices()),
                         [](const auto& device) { return device.param.name; });

TEST_P(OverwrittenGradients, AreTheSameAsSumsWithZeros) {
  TestNet adds(GetParam().get()), overwrites(GetParam().get());
  std::vector<bool> all(adds.net.layers().size(), true);
  overwrites.net.overwrite_gradients(all);
  std::string which;
  for (const NetParam& param : overwrites.net.params()) {
    if (!param.overwritten) continue;
    which += overwrites.name_of(param) + ",";
    std::ranges::fill(param.blob->grad.host_mut(), std::numeric_limits<float>::quiet_NaN());
  }
  EXPECT_EQ(which, "one,twice,last,");
  for (int pass = 0; pass < 5; ++pass) {
    adds.pass();
    overwrites.pass();
    for (std::size_t i = 0; i < adds.net.params().size(); ++i) {
      const std::span<const float> got = overwrites.net.params()[i].blob->grad.host(),
                                   want = adds.net.params()[i].blob->grad.host();
      float most = 0;
      for (const float x : want) most = std::max(most, std::abs(x));
      for (std::size_t k = 0; k < want.size(); ++k)
        ASSERT_NEAR(got[k], want[k], 1e-6f * most)
            << overwrites.name_of(adds.net.params()[i]) << " in pass " << pass;
    }
  }
}

TEST_P(OverwrittenGradients, AreThoseOfTheLayersThatWereNamed) {
  TestNet test(GetParam().get());
  std::vector<bool> some(test.net.layers().size());
  for (std::size_t i = 0; i < some.size(); ++i) some[i] = test.net.layers()[i]->name() == "twice";
  test.net.overwrite_gradients(some);
  for (const NetParam& param : test.net.params())
    EXPECT_EQ(param.overwritten, test.name_of(param) == "twice") << test.name_of(param);
}

}  // namespace
}  // namespace shoal::test::overwritten_gradients_test
