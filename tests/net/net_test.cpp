// A net: what it refuses, its memory, its shared params, its gradients and hooks.
#include "shoal/net/net.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "support/expect.h"
#include "support/solver_rig.h"

namespace shoal::net_test {
namespace {

using test::message_of;

#define EXPECT_SAYS(build, words) \
  EXPECT_NE(message_of([&] { build; }).find(words), std::string::npos) << message_of([&] { build; })

NetParameter parse(const std::string& text, Phase phase = TRAIN) {
  NetParameter net = parse_net(text, "test.prototxt");
  net.mutable_state()->set_phase(phase);
  return net;
}

struct TestNet {
  explicit TestNet(const std::string& text, Phase phase = TRAIN, const NetOptions& options = {},
                   int threads = 1)
      : context({.threads = threads, .seed = 7}), net(parse(text, phase), context, options) {}
  Context context;
  Net net;
};

std::string dummy(const std::string& top, const std::string& dims,
                  const std::string& filler = "type: 'gaussian'") {
  std::string shape;
  for (std::size_t at = 0; at < dims.size();) {
    const std::size_t end = std::min(dims.find(' ', at), dims.size());
    shape += " dim: " + dims.substr(at, end - at);
    at = end + 1;
  }
  return "layer { name: 'make_" + top + "' type: 'DummyData' top: '" + top +
         "' dummy_data_param { shape {" + shape + " } data_filler { " + filler + " } } }\n";
}

std::string ip(const std::string& name, const std::string& bottom, const std::string& more = "",
               int outputs = 3) {
  return "layer { name: '" + name + "' type: 'InnerProduct' bottom: '" + bottom + "' top: '" +
         name + "' " + more + " inner_product_param { num_output: " + std::to_string(outputs) +
         " weight_filler { type: 'xavier' } } }\n";
}

std::string relu(const std::string& bottom, const std::string& top) {
  return "layer { name: 'relu_" + top + "' type: 'ReLU' bottom: '" + bottom + "' top: '" + top +
         "' }\n";
}

std::string euclid(const std::string& a, const std::string& b, const std::string& name = "loss") {
  return "layer { name: '" + name + "' type: 'EuclideanLoss' bottom: '" + a + "' bottom: '" + b +
         "' top: '" + name + "' }\n";
}

// A net with everything that sharing of memory could break: branches, in-place layers, views,
// several losses.
const std::string kBranches =
    dummy("x", "4 3 8 8") + dummy("t", "4 5") +
    "layer { name: 'c1' type: 'Convolution' bottom: 'x' top: 'c1' convolution_param { num_output: "
    "4 kernel_size: 3 pad: 1"
    " weight_filler { type: 'xavier' } } }\n" +
    relu("c1", "c1") +
    "layer { name: 'p1' type: 'Pooling' bottom: 'c1' top: 'p1' pooling_param { kernel_size: 2 "
    "stride: 2 } }\n"
    "layer { name: 'c2' type: 'Convolution' bottom: 'c1' top: 'c2' convolution_param { num_output: "
    "4 kernel_size: 2 stride: 2"
    " weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'sum' type: 'Eltwise' bottom: 'p1' bottom: 'c2' top: 'sum' }\n"
    "layer { name: 'cat' type: 'Concat' bottom: 'sum' bottom: 'c2' top: 'cat' }\n"
    "layer { name: 'flat' type: 'Flatten' bottom: 'cat' top: 'flat' }\n" +
    ip("ip", "flat", "", 5) + "layer { name: 'drop' type: 'Dropout' bottom: 'ip' top: 'ip' }\n" +
    euclid("ip", "t") + "layer { name: 'act' type: 'TanH' bottom: 'ip' top: 'act' }\n" +
    euclid("act", "t", "loss2");

// It would give the maker's top four axes.
TEST(NetTest, MvnInPlaceLeavesTheShape) {
  TestNet t(dummy("x", "4 3 2", "type: 'uniform' min: -1 max: 1") +
            "layer { name: 'cat' type: 'Concat' bottom: 'x' bottom: 'x' top: 'y' }\n"
            "layer { name: 'mvn' type: 'MVN' bottom: 'y' top: 'y' }\n" +
            dummy("t", "4 6 2") + euclid("y", "t"));
  for (int pass = 0; pass < 2; ++pass) ASSERT_TRUE(t.net.forward().ok() && t.net.backward().ok());
  EXPECT_EQ(t.net.blob("y")->shape(), (Shape{4, 6, 2}));
}

TEST(NetTest, WarnsOfParametersOfAnotherType) {
  const test::LogLines log;
  TestNet t(dummy("x", "2 3") +
            "layer { name: 'p' type: 'PReLU' bottom: 'x' top: 'y' prelu_param { channel_shared: "
            "true } relu_param { negative_slope: 0.1 } }\n"
            "layer { name: 's' type: 'Softmax' bottom: 'y' top: 'z' softmax_param { axis: 1 } }");
  EXPECT_TRUE(
      log.has("test.prototxt:2: layer 'p' .PReLU.: relu_param has no effect on a layer of "
              "this type"));
  EXPECT_EQ(std::ranges::count_if(log.lines,
                                  [](const std::string& line) {
                                    return line.find("no effect") != std::string::npos;
                                  }),
            1);
}

TEST(NetTest, NamesWhatIsWrongWithBlobs) {
  EXPECT_SAYS(TestNet(dummy("images", "2 3") + relu("imags", "y")),
              "test.prototxt:2: layer 'relu_y' (ReLU): bottom 'imags' is made by no layer");
  EXPECT_SAYS(TestNet(dummy("images", "2 3") + relu("imags", "y")), "did you mean 'images'");
  EXPECT_SAYS(TestNet("layer { name: 'd' type: 'DummyData' top: 'x' include { phase: TEST } "
                      "dummy_data_param { shape { dim: 1 } } }\n" +
                      relu("x", "y")),
              "; test.prototxt:1: layer 'd' (DummyData) makes it, but its rules leave it out of "
              "phase TRAIN, level 0, stages ''");
  EXPECT_SAYS(TestNet(dummy("x", "2 3") + dummy("x", "2 3")),
              "top 'x' is made by an earlier layer already");
  EXPECT_SAYS(TestNet(dummy("x", "2 3") + ip("x", "x")), "does not work in place");
  EXPECT_SAYS(
      TestNet(dummy("x", "2 3") + "layer { name: 'r' type: 'ReLU' bottom: 'x' top: 'a' top: 'b' }"),
      "has 2 tops; a ReLU layer makes exactly 1");
  EXPECT_SAYS(TestNet(dummy("x", "2 3") + "layer { name: 'r' type: 'Relu' bottom: 'x' top: 'a' }"),
              "unknown layer type 'Relu'; did you mean 'ReLU'");
  EXPECT_SAYS(TestNet(dummy("x", "2 3") + ip("y", "x", "loss_weight: 1 loss_weight: 2")),
              "loss_weight is given 2 times for 1 tops");
  EXPECT_SAYS(TestNet(dummy("x", "2 3") + ip("y", "x", "param {} param {} param {}")),
              "has 3 param {} for 2 learned blobs");
  EXPECT_SAYS(
      TestNet(dummy("x", "2 3") + ip("y", "x", "propagate_down: true propagate_down: true")),
      "propagate_down is given 2 times");
}

TEST(NetTest, OutputsComeInAlphabeticalOrder) {
  TestNet t(dummy("x", "2 3") + ip("zebra", "x") + ip("ant", "x"));
  ASSERT_EQ(t.net.outputs().size(), 2u);
  EXPECT_EQ(t.net.outputs()[0]->name, "ant");
  EXPECT_EQ(t.net.outputs()[1]->name, "zebra");
}

TEST(NetTest, SharingMemoryChangesNoBit) {
  TestNet shared(kBranches), apart(kBranches, TRAIN, {.share_memory = false});
  EXPECT_LT(shared.net.memory().blobs, apart.net.memory().blobs);
  for (int pass = 0; pass < 3; ++pass) {
    EXPECT_EQ(shared.net.forward().value(), apart.net.forward().value());
    ASSERT_TRUE(shared.net.backward().ok() && apart.net.backward().ok());
  }
  ASSERT_EQ(shared.net.params().size(), 6u);
  for (std::size_t i = 0; i < shared.net.params().size(); ++i) {
    const auto a = shared.net.params()[i].blob->grad.host(),
               b = apart.net.params()[i].blob->grad.host();
    EXPECT_TRUE(std::ranges::equal(a, b)) << "gradient of param " << i;
    EXPECT_TRUE(std::ranges::any_of(a, [](float g) { return g != 0; }))
        << "gradient of param " << i << " is all zero";
  }
}

TEST(NetTest, TheTestPhaseNeedsTwoBlobsOfAChain) {
  std::string chain = dummy("x0", "8 256", "type: 'constant' value: 1");
  for (int i = 0; i < 10; ++i)
    chain += "layer { name: 'l" + std::to_string(i) + "' type: 'Power' bottom: 'x" +
             std::to_string(i) + "' top: 'x" + std::to_string(i + 1) +
             "' power_param { shift: 1 } }\n";
  TestNet t(chain, TEST);
  EXPECT_EQ(t.net.memory().blobs_unshared, 11u * 8 * 256 * 4);
  EXPECT_LE(t.net.memory().blobs, 4u * 8 * 256 * 4)
      << "two for the chain, the constant and the output";
  ASSERT_TRUE(t.net.forward().ok());
  EXPECT_EQ(t.net.outputs()[0]->data.host()[5], 11);
  ASSERT_TRUE(t.net.forward().ok());
  EXPECT_EQ(t.net.outputs()[0]->data.host()[5], 11) << "a constant top survives a pass";
}

TEST(NetTest, KeptBlobsSurviveThePass) {
  TestNet shared(kBranches, TEST, {.keep = {"p1", "cat"}}),
      apart(kBranches, TEST, {.share_memory = false});
  ASSERT_TRUE(shared.net.forward().ok() && apart.net.forward().ok());
  for (const char* name : {"p1", "cat"})
    EXPECT_TRUE(
        std::ranges::equal(shared.net.blob(name)->data.host(), apart.net.blob(name)->data.host()))
        << name;
  EXPECT_SAYS(TestNet(kBranches, TEST, {.keep = {"nowhere"}}), "has no blob 'nowhere'");
}

TEST(NetTest, ParamsSharedByNameAddTheirGradients) {
  const std::string shared = "param { name: 'w' } param { name: 'b' }";
  TestNet t(dummy("x", "2 3") + dummy("t", "2 3") + ip("a", "x", shared) + ip("b", "a", shared) +
            euclid("b", "t"));
  EXPECT_EQ(t.net.params().size(), 2u);
  TestNet apart(dummy("x", "2 3") + dummy("t", "2 3") + ip("a", "x") + ip("b", "a") +
                euclid("b", "t"));
  ASSERT_EQ(apart.net.params().size(), 4u);
  for (int i = 0; i < 2; ++i)
    for (int layer = 0; layer < 2; ++layer)
      std::ranges::copy(t.net.params()[i].blob->data.host(),
                        apart.net.params()[2 * layer + i].blob->data.host_out().begin());
  EXPECT_EQ(t.net.forward().value(), apart.net.forward().value());
  ASSERT_TRUE(t.net.backward().ok() && apart.net.backward().ok());
  const auto sum = t.net.params()[0].blob->grad.host();
  const auto first = apart.net.params()[0].blob->grad.host(),
             second = apart.net.params()[2].blob->grad.host();
  for (std::size_t i = 0; i < sum.size(); ++i) EXPECT_NEAR(sum[i], first[i] + second[i], 1e-6);
}

TEST(NetTest, SharedParamsMustAgree) {
  const std::string data = dummy("x", "2 3");
  EXPECT_SAYS(
      TestNet(data + ip("a", "x", "param { name: 'w' }") + ip("b", "x", "param { name: 'w' }", 4)),
      "has shape 4 3 (12), but its owner, layer 'a'");
  EXPECT_SAYS(TestNet(data + ip("a", "x", "param { name: 'w' lr_mult: 1 }") +
                      ip("b", "x", "param { name: 'w' lr_mult: 2 }")),
              "has lr_mult 2, its owner, layer 'a', has 1");
  TestNet permissive(data + ip("a", "x", "param { name: 'w' }", 4) + dummy("y", "2 4") +
                     ip("b", "y", "param { name: 'w' share_mode: PERMISSIVE }", 3));
  EXPECT_EQ(permissive.net.params().size(), 3u);
}

TEST(NetTest, GradientsGoWhereALossNeedsThem) {
  const std::string frozen = "param { lr_mult: 0 } param { lr_mult: 0 }";
  TestNet t(dummy("x", "2 3") + dummy("t", "2 3") + ip("a", "x", frozen) + ip("b", "a") +
            euclid("b", "t") + ip("aside", "b"));
  const auto needs = [](const Net& net, const std::string& name) {
    for (std::size_t i = 0; i < net.layers().size(); ++i)
      if (net.layers()[i]->name() == name) return net.needs_backward(static_cast<int>(i));
    ADD_FAILURE() << "no layer " << name;
    return false;
  };
  EXPECT_FALSE(needs(t.net, "a")) << "nothing learns there";
  EXPECT_TRUE(needs(t.net, "b"));
  EXPECT_FALSE(needs(t.net, "aside")) << "no loss comes of it";
  ASSERT_TRUE(t.net.forward().ok() && t.net.backward().ok());
  EXPECT_FALSE(
      std::ranges::any_of(t.net.params()[0].blob->grad.host(), [](float g) { return g != 0; }));

  TestNet cut(dummy("x", "2 3") + dummy("t", "2 3") + ip("a", "x") +
              ip("b", "a", "propagate_down: false") + euclid("b", "t"));
  EXPECT_FALSE(needs(cut.net, "a")) << "propagate_down: false";
  TestNet forced("force_backward: true\n" + dummy("x", "2 3") + dummy("t", "2 3") +
                 ip("a", "x", frozen) + euclid("a", "t"));
  EXPECT_TRUE(needs(forced.net, "a"));
}

TEST(NetTest, ALabelThatIsLearnedIsRefused) {
  EXPECT_SAYS(
      TestNet(dummy("x", "2 3") + ip("scores", "x") + ip("label", "x", "", 1) +
              "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'scores' bottom: 'label' }"),
      "bottom 'label' needs a gradient");
}

TEST(NetTest, HooksSeeEveryLayerInOrder) {
  TestNet t(dummy("x", "2 3") + dummy("t", "2 3") + ip("a", "x") + euclid("a", "t"));
  std::string seen;
  t.net.before_forward([&](int i) { return seen += str("<", i), Status(); });
  t.net.after_forward([&](int i) { return seen += str(">", i), Status(); });
  t.net.after_backward(
      [&](std::span<const int> layers) { return seen += str("b", layers[0]), Status(); });
  ASSERT_TRUE(t.net.forward().ok() && t.net.backward().ok());
  EXPECT_EQ(seen, "<0>0<1>1<2>2<3>3b3b2b1b0");
  t.net.before_forward([](int i) {
    return i == 2 ? Status(Error{Code::kPeer, "row 7 never came"}) : Status();
  });
  const Result<float> loss = t.net.forward();
  ASSERT_FALSE(loss.ok());
  EXPECT_EQ(loss.error().message, "row 7 never came");
}

TEST(NetTest, WeightsGoByLayerNameAndShape) {
  const std::string data = dummy("x", "2 3");
  TestNet source(data + ip("a", "x") + ip("b", "a"));
  TestNet target(data + ip("a", "x") + ip("other", "a"));
  target.net.copy_weights(source.net.to_proto(false), "source.caffemodel");
  EXPECT_TRUE(std::ranges::equal(target.net.params()[0].blob->data.host(),
                                 source.net.params()[0].blob->data.host()));
  TestNet narrow(data + ip("a", "x", "", 5));
  const std::string message =
      message_of([&] { narrow.net.copy_weights(source.net.to_proto(false), "source.caffemodel"); });
  for (const char* word :
       {"test.prototxt:2", "5 3 (15)", "3 3 (9)", "source.caffemodel", "num_output"})
    EXPECT_NE(message.find(word), std::string::npos) << word << " in: " << message;
  TestNet bare(data +
               "layer { name: 'a' type: 'InnerProduct' bottom: 'x' top: 'a' inner_product_param { "
               "num_output: 3 bias_term: false } }");
  EXPECT_SAYS(bare.net.copy_weights(source.net.to_proto(false), "source.caffemodel"),
              "has 1 params, but layer 'a' in source.caffemodel holds 2");
}

TEST(NetTest, OldFourAxisShapesFit) {
  TestNet t(dummy("x", "2 3") + ip("a", "x"));
  NetParameter old = t.net.to_proto(false);
  for (LayerParameter& layer : *old.mutable_layer())
    for (BlobProto& blob : *layer.mutable_blobs()) {
      const bool matrix = blob.shape().dim_size() == 2;
      blob.set_num(1), blob.set_channels(1), blob.set_height(matrix ? 3 : 1), blob.set_width(3);
      blob.clear_shape();
      blob.set_data(0, 42);
    }
  t.net.copy_weights(old, "old.caffemodel");
  EXPECT_EQ(t.net.params()[0].blob->data.host()[0], 42);
}

TEST(NetTest, ATestNetLooksAtTheTrainNetsParams) {
  const std::string text = dummy("x", "2 3") + ip("a", "x");
  TestNet train(text), test(text, TEST);
  test.net.share_weights(train.net);
  train.net.params()[0].blob->data.host_mut()[0] = 17;
  EXPECT_EQ(test.net.params()[0].blob->data.host()[0], 17);
}

TEST(NetTest, FindsTheFirstBlobThatWentBad) {
  TestNet t(dummy("x", "2 3", "type: 'constant' value: 1e30") + dummy("t", "2 3") +
            "layer { name: 'square' type: 'Power' bottom: 'x' top: 'square' power_param { power: 2 "
            "} }\n" +
            ip("a", "square") + euclid("a", "t"));
  EXPECT_FALSE(std::isfinite(t.net.forward().value()));
  EXPECT_EQ(t.net.find_non_finite(),
            "test.prototxt:3: layer 'square' (Power): top 'square' is not finite");
  TestNet healthy(kBranches);
  ASSERT_TRUE(healthy.net.forward().ok() && healthy.net.backward().ok());
  EXPECT_EQ(healthy.net.find_non_finite(), "");
  healthy.net.params()[2].blob->data.host_mut()[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(healthy.net.find_non_finite().find("layer 'c2' (Convolution): param 0 is not finite"),
            std::string::npos);
}

TEST(NetTest, TheSearchForWhatWentBadLeavesNoTrace) {
  TestNet t(dummy("x", "2 2 3", "type: 'uniform' min: -1 max: 1") +
            dummy("cont", "2 2", "type: 'constant' value: 1") +
            "layer { name: 'norm' type: 'BatchNorm' bottom: 'x' top: 'norm' }"
            "layer { name: 'lstm' type: 'LSTM' bottom: 'norm' bottom: 'cont' top: 'h' "
            "recurrent_param { num_output: 2 weight_filler { type: 'xavier' } } }");
  const auto state = [&] {
    std::vector<std::vector<float>> all;
    for (const auto& layer : t.net.layers()) {
      const auto add = [&](const Tensor& x) { all.emplace_back(x.host().begin(), x.host().end()); };
      for (const auto& param : layer->params()) add(param->data);
      std::ranges::for_each(layer->carried(), add);
    }
    return all;
  };
  const auto at_first = state();
  ASSERT_TRUE(t.net.forward().ok());
  const auto before = state();
  EXPECT_NE(before, at_first);
  EXPECT_EQ(t.net.find_non_finite(), "");
  EXPECT_EQ(state(), before);
}

TEST(NetTest, ALabelOutOfRangeEndsThePassWithItsLayer) {
  TestNet t(
      dummy("x", "2 3") + dummy("label", "2", "type: 'constant' value: 3") + ip("a", "x") +
      "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'a' bottom: 'label' top: 'loss' }");
  const Result<float> loss = t.net.forward();
  ASSERT_FALSE(loss.ok());
  EXPECT_EQ(loss.error().code, Code::kData);
  EXPECT_NE(loss.error().message.find("test.prototxt:4: layer 'loss' (SoftmaxWithLoss)"),
            std::string::npos)
      << loss.error().message;
}

TEST(NetTest, FollowsAnInputOfAnotherShape) {
  TestNet t(
      "layer { name: 'in' type: 'Input' top: 'x' input_param { shape { dim: 2 dim: 3 } } }\n" +
          ip("a", "x") + relu("a", "b"),
      TEST);
  t.net.blob("x")->reshape(Shape{5, 3});
  t.net.reshape();
  std::ranges::fill(t.net.blob("x")->data.host_out(), 1.0f);
  ASSERT_TRUE(t.net.forward().ok());
  EXPECT_EQ(t.net.outputs()[0]->shape(), (Shape{5, 3}));
}

TEST(NetTest, FollowsAnInputOfAnotherShapeBeforeAFilter) {
  TestNet t(
      "layer { name: 'in' type: 'Input' top: 'x' top: 's' input_param { shape { dim: 3 dim: 2 } "
      "shape { dim: 3 } } }\n"
      "layer { name: 'f' type: 'Filter' bottom: 'x' bottom: 's' top: 'y' }\n" +
          relu("y", "z"),
      TEST);
  t.net.blob("x")->reshape({5, 2});
  t.net.blob("s")->reshape({5});
  t.net.reshape();
  std::ranges::fill(t.net.blob("s")->data.host_out(), 0.0f);
  for (const std::size_t item : {1, 4}) t.net.blob("s")->data.host_mut()[item] = 1;
  ASSERT_TRUE(t.net.forward().ok());
  EXPECT_EQ(t.net.outputs()[0]->shape(), (Shape{2, 2}));
}

TEST(NetTest, SizesThatCannotBeAreNamed) {
  EXPECT_SAYS(
      TestNet(dummy("x", "70000 70000")),
      "layer 'make_x' (DummyData): top 0: the shape 70000 70000 has more than 2147483647 elements");
  EXPECT_SAYS(TestNet(dummy("x", "2 0")), "top 'x' has no elements");
  EXPECT_SAYS(TestNet(dummy("x", "2 -3")), "has a negative size");
}

}  // namespace
}  // namespace shoal::net_test
