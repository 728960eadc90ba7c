// A test net's params: those of the train net, by the names of layers and of params.
#include <gtest/gtest.h>

#include <stdexcept>

#include "shoal/net/net.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/tensor/context.h"

namespace shoal::test_net_params_test {
namespace {

struct BuiltNet {
  BuiltNet(const std::string& layers, Phase phase) : net(parse(layers, phase), context) {}
  static NetParameter parse(const std::string& layers, Phase phase) {
    NetParameter net = parse_net(
        "layer { name: 'in' type: 'Input' top: 'x' input_param { shape { dim: 2 dim: 3 } } } " +
            layers,
        "n");
    net.mutable_state()->set_phase(phase);
    return net;
  }
  Context context{{}};
  Net net;
};

std::string product(const std::string& name, const std::string& params = "") {
  return str("layer { name: '", name, "' type: 'InnerProduct' bottom: 'x' top: '", name, "' ",
             params, " inner_product_param { num_output: 3 } } ");
}

TEST(TestNetParams, LayersOfATestNetAloneLookAtParamsOfTheirNames) {
  const std::string named = "param { name: 'w' } param { name: 'b' }";
  BuiltNet train(product("a", named) + product("c"), TRAIN);
  // 'b' has the names of 'a', and 'e' those of 'd', which has the layer name of an unnamed one.
  const std::string others = "param { name: 'v' } param { name: 'u' }";
  BuiltNet test(product("b", named) + product("e", others) + product("c", others) + product("f"),
                TEST);
  test.net.share_weights(train.net);
  const auto first = [](BuiltNet& t, const std::string& name) -> Tensor& {
    for (const auto& layer : t.net.layers())
      if (layer->name() == name) return layer->params()[0]->data;
    throw std::out_of_range(name);
  };
  first(train, "a").host_mut()[0] = 17;
  first(train, "c").host_mut()[0] = 18;
  EXPECT_EQ(first(test, "b").host()[0], 17);
  EXPECT_EQ(first(test, "c").host()[0], 18);
  EXPECT_EQ(first(test, "e").host()[0], 18);
  EXPECT_FALSE(first(test, "f").shares_with(first(train, "a")));
}

}  // namespace
}  // namespace shoal::test_net_params_test
