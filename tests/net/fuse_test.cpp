// Tests of fused layers: which pairs are found, that they change no bit, and that a user sees the
// same blobs.
#include "shoal/net/fuse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "shoal/net/graph.h"
#include "shoal/net/net.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"

namespace shoal::fuse_test {
namespace {

NetParameter parse(const std::string& text, Phase phase = TRAIN) {
  NetParameter net = parse_net(text, "test.prototxt");
  net.mutable_state()->set_phase(phase);
  return net;
}

std::string data(const std::string& shape) {
  return "layer { name: 'data' type: 'DummyData' top: 'x' dummy_data_param { shape {" + shape +
         "} data_filler { type: 'gaussian' } } }\n";
}

std::string conv(const std::string& more = "num_output: 12 kernel_size: 3 pad: 1") {
  return "layer { name: 'c' type: 'Convolution' bottom: 'x' top: 'c' convolution_param { " + more +
         " weight_filler { type: 'xavier' } bias_filler { type: 'uniform' min: -1 } } }\n";
}

std::string relu(const std::string& top = "c", const std::string& slope = "0") {
  return "layer { name: 'r' type: 'ReLU' bottom: 'c' top: '" + top +
         "' relu_param { negative_slope: " + slope + " } }\n";
}

std::string loss(const std::string& bottom = "c") {
  return "layer { name: 'sum' type: 'Reduction' bottom: '" + bottom +
         "' top: 'sum' loss_weight: 0.5 reduction_param { operation: SUMSQ } }\n";
}

// Returns the fusions of a net that trains: its convolutions take ReLUs alone.
std::vector<Fusion> fusions(const std::string& layers) {
  const NetParameter net = insert_splits(parse(data("dim: 2 dim: 3 dim: 9 dim: 9") + layers));
  return find_fusions(net, [&](const Fusion& fusion) {
    return net.layer(fusion.maker).type() != "Convolution" ||
           net.layer(fusion.follower).type() == "ReLU";
  });
}

TEST(FuseTest, FindsAReluThatWorksInPlaceOnAConvolution) {
  EXPECT_EQ(fusions(conv() + relu()), (std::vector<Fusion>{{.maker = 1, .follower = 2}}));
}

// Batch normalization with what follows it in place; its own top is `top`.
std::string norm(const std::string& top = "c", const std::string& more = "") {
  return "layer { name: 'n' type: 'BatchNorm' bottom: 'c' top: '" + top +
         "' batch_norm_param { moving_average_fraction: 0.5 " + more + " } }\n";
}
std::string scale(const std::string& blob = "c", const std::string& more = "bias_term: true") {
  return "layer { name: 's' type: 'Scale' bottom: '" + blob + "' top: '" + blob +
         "' scale_param { filler { type: 'uniform' min: -1 max: 2 } bias_filler { type: 'uniform' "
         "min: -1 } " +
         more + " } }\n";
}
std::string relu_in(const std::string& blob, const std::string& slope = "0") {
  return "layer { name: 'r' type: 'ReLU' bottom: '" + blob + "' top: '" + blob +
         "' relu_param { negative_slope: " + slope + " } }\n";
}

TEST(FuseTest, FindsWhatFollowsBatchNormalization) {
  const std::vector<Fusion> both = {{.maker = 2, .follower = 3}, {.maker = 2, .follower = 4}};
  EXPECT_EQ(fusions(conv() + norm() + scale() + relu()), both);
  EXPECT_EQ(fusions(conv() + norm("n") + scale("n") + relu_in("n")), both);
  EXPECT_EQ(fusions(conv() + norm() + relu()), (std::vector<Fusion>{both[0]}));
  EXPECT_TRUE(fusions(conv() + norm() +
                      "layer { name: 'd' type: 'Dropout' bottom: 'c' top: 'c' }\n" + scale())
                  .empty());
}

// A shortcut beside a convolution, and a ReLU on what the layer makes of both.
std::string residual(const std::string& more = "", const std::string& slope = "0") {
  return "layer { name: 'd' type: 'Convolution' bottom: 'x' top: 'd' convolution_param { "
         "num_output: 12 kernel_size: 1 weight_filler { type: 'xavier' } } }\n"
         "layer { name: 'both' type: 'Eltwise' bottom: 'c' bottom: 'd' top: 'both' eltwise_param "
         "{ " +
         more + " } }\n" + relu_in("both", slope);
}

TEST(FuseTest, FindsAReluOnASum) {
  // The blob x is split.
  EXPECT_EQ(fusions(conv() + residual()), (std::vector<Fusion>{{.maker = 4, .follower = 5}}));
}

TEST(FuseTest, LeavesABlobThatTheUserNamed) { EXPECT_TRUE(fusions(conv() + relu("r")).empty()); }

TEST(FuseTest, LeavesAResultThatAnotherLayerTakes) {
  EXPECT_TRUE(fusions(conv() + relu("r") + loss("c")).empty());
}

TEST(FuseTest, LeavesLayersThatDoNotMeet) {
  EXPECT_TRUE(
      fusions(conv() + "layer { name: 'd' type: 'Dropout' bottom: 'c' top: 'c' }\n" + relu())
          .empty())
      << "a layer stands between them";
  EXPECT_TRUE(
      fusions("layer { name: 's' type: 'Sigmoid' bottom: 'x' top: 'c' }\n" + relu()).empty());
}

// A net with its context.
struct TestNet {
  TestNet(const std::string& text, Phase phase, const NetOptions& options, int threads)
      : context({.threads = threads, .seed = 7}), net(parse(text, phase), context, options) {}
  Context context;
  Net net;
};

const Layer* fused_into(const Net& net, const std::string& layer) {
  for (std::size_t i = 0; i < net.layers().size(); ++i)
    if (net.layers()[i]->name() == layer) return net.fused_into(static_cast<int>(i));
  return nullptr;
}

std::vector<float> numbers(const Tensor& tensor) {
  return {tensor.host().begin(), tensor.host().end()};
}

struct FusedCase {
  const char *name, *shape, *conv, *slope;
};

class FusedConvolution : public testing::TestWithParam<FusedCase> {};

TEST_P(FusedConvolution, ChangesNoBit) {
  const FusedCase& c = GetParam();
  const std::string text = data(c.shape) + conv(c.conv) + relu("c", c.slope) + loss();
  for (const int threads : {1, 2})
    for (const Phase phase : {TRAIN, TEST}) {
      TestNet fused(text, phase, {}, threads), apart(text, phase, {.fuse = false}, threads);
      ASSERT_NE(fused_into(fused.net, "r"), nullptr);
      EXPECT_EQ(fused_into(fused.net, "r")->name(), "c");
      EXPECT_EQ(fused_into(apart.net, "r"), nullptr);
      EXPECT_EQ(fused.net.memory().blobs_unshared, apart.net.memory().blobs_unshared);
      for (TestNet* t : {&fused, &apart}) {
        ASSERT_NE(t->net.blob("c"), nullptr);
        EXPECT_EQ(t->net.blob_names(), (std::vector<std::string>{"x", "c", "sum"}));
      }
      EXPECT_EQ(fused.net.forward().value(), apart.net.forward().value());
      ASSERT_TRUE(fused.net.backward().ok() && apart.net.backward().ok());
      for (std::size_t i = 0; i < fused.net.params().size(); ++i)
        EXPECT_EQ(numbers(fused.net.params()[i].blob->grad),
                  numbers(apart.net.params()[i].blob->grad))
            << "gradient of param " << i;
      EXPECT_EQ(fused.net.find_non_finite(), "");
    }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, FusedConvolution,
    testing::Values(FusedCase{"direct", "dim: 3 dim: 8 dim: 13 dim: 13",
                              "num_output: 20 kernel_size: 3 pad: 1", "0"},
                    FusedCase{"direct_leaky_groups", "dim: 1 dim: 16 dim: 14 dim: 11",
                              "num_output: 36 kernel_size: 5 stride: 2 pad: 2 group: 2", "0.1"},
                    FusedCase{"plain_few_outputs", "dim: 2 dim: 3 dim: 9 dim: 9",
                              "num_output: 5 kernel_size: 3 dilation: 2", "0"},
                    FusedCase{"plain_one_by_one", "dim: 2 dim: 70 dim: 6 dim: 6",
                              "num_output: 16 kernel_size: 1", "0.25"},
                    FusedCase{"no_bias", "dim: 2 dim: 8 dim: 9",
                              "num_output: 9 kernel_size: 4 bias_term: "
                              "false",
                              "0"}),
    [](const testing::TestParamInfo<FusedCase>& info) { return info.param.name; });

struct NormCase {
  const char *name, *shape, *top, *norm, *scale, *slope;
  const char* fused;  // the names of layers whose work batch normalization does
};

class FusedBatchNorm : public testing::TestWithParam<NormCase> {};

// Forward to the bit; gradients but for the rounding of sums.
TEST_P(FusedBatchNorm, IsWhatTheLayersAreApart) {
  const NormCase& c = GetParam();
  // There is no bias: its gradient would be 0 but for rounding.
  const std::string conv_of = conv("num_output: 12 kernel_size: 1 bias_term: false");
  const std::string text = data(c.shape) + conv_of + norm(c.top, c.norm) +
                           (*c.scale != 0 ? scale(c.top, c.scale) : "") +
                           (*c.slope != 0 ? relu_in(c.top, c.slope) : "") + loss(c.top);
  for (const int threads : {1, 2})
    for (const Phase phase : {TRAIN, TEST}) {
      TestNet fused(text, phase, {}, threads), apart(text, phase, {.fuse = false}, threads);
      std::string names;
      for (const auto& layer : fused.net.layers())
        if (const Layer* into = fused_into(fused.net, layer->name())) {
          names += layer->name();
          EXPECT_EQ(into->name(), "n");
        }
      EXPECT_EQ(names, c.fused);
      for (int pass = 0; pass < 2; ++pass) {
        EXPECT_EQ(fused.net.forward().value(), apart.net.forward().value());
        EXPECT_EQ(numbers(fused.net.blob(c.top)->data), numbers(apart.net.blob(c.top)->data));
        if (phase == TEST) continue;
        ASSERT_TRUE(fused.net.backward().ok() && apart.net.backward().ok());
      }
      for (std::size_t i = 0; i < fused.net.params().size(); ++i) {
        const Blob &got = *fused.net.params()[i].blob, &want = *apart.net.params()[i].blob;
        EXPECT_EQ(numbers(got.data), numbers(want.data)) << "param " << i;
        const std::vector<float> ours = numbers(got.grad), theirs = numbers(want.grad);
        float most = 0;
        for (const float x : theirs) most = std::max(most, std::fabs(x));
        for (std::size_t k = 0; k < ours.size(); ++k)
          ASSERT_NEAR(ours[k], theirs[k], 1e-5f * most) << "gradient of param " << i;
      }
      EXPECT_EQ(fused.net.find_non_finite(), "");
    }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, FusedBatchNorm,
    testing::Values(
        NormCase{"in_place", "dim: 3 dim: 4 dim: 9 dim: 7", "c", "", "bias_term: true", "0", "sr"},
        NormCase{"leaky", "dim: 3 dim: 4 dim: 9 dim: 7", "c", "", "bias_term: true", "0.1", "sr"},
        NormCase{"own_top", "dim: 3 dim: 4 dim: 60 dim: 50", "n", "", "bias_term: true", "0", "sr"},
        NormCase{"no_bias", "dim: 3 dim: 4 dim: 5 dim: 5", "c", "", "bias_term: false", "0.5",
                 "sr"},
        NormCase{"no_scale", "dim: 3 dim: 4 dim: 5 dim: 5", "c", "", "", "0", "r"},
        NormCase{"running", "dim: 3 dim: 4 dim: 5 dim: 5", "c", "use_global_stats: true",
                 "bias_term: true", "0", "sr"},
        NormCase{"running_own_top", "dim: 3 dim: 4 dim: 5 dim: 5", "n", "use_global_stats: true",
                 "bias_term: true", "", "s"},
        NormCase{"other_axes", "dim: 3 dim: 4 dim: 5 dim: 5", "c", "", "axis: 2 num_axes: 1", "0",
                 ""}),
    [](const testing::TestParamInfo<NormCase>& info) { return info.param.name; });

// The results are the same to the bit in both passes; products and maxima leave the ReLU to itself.
TEST(FuseTest, ASumDoesTheForwardPassOfItsRelu) {
  struct Case {
    const char *param, *slope;
    bool fused;
  };
  for (const Case& c :
       {Case{"", "0", true}, Case{"coeff: -1 coeff: 0.5", "0.25", true}, Case{"", "-1", false},
        Case{"operation: MAX", "0", false}, Case{"operation: PROD", "0", false}})
    for (const int threads : {1, 2})
      for (const Phase phase : {TRAIN, TEST}) {
        const std::string text = data("dim: 3 dim: 4 dim: 9 dim: 70") + conv() +
                                 residual(c.param, c.slope) + loss("both");
        TestNet together(text, phase, {}, threads), apart(text, phase, {.fuse = false}, threads);
        EXPECT_EQ(fused_into(together.net, "r") != nullptr, c.fused) << c.param;
        EXPECT_EQ(together.net.forward().value(), apart.net.forward().value());
        EXPECT_EQ(numbers(together.net.blob("both")->data), numbers(apart.net.blob("both")->data));
        if (phase == TEST) continue;
        ASSERT_TRUE(together.net.backward().ok() && apart.net.backward().ok());
        for (std::size_t i = 0; i < together.net.params().size(); ++i)
          EXPECT_EQ(numbers(together.net.params()[i].blob->grad),
                    numbers(apart.net.params()[i].blob->grad))
              << c.param << ", gradient of param " << i;
      }
}

// An exchange brings a layer's params before its turn, and takes its gradients behind it.
TEST(FuseTest, ParamsOfAScaleAreUsedAtItsTurn) {
  const std::string text =
      data("dim: 3 dim: 4 dim: 5 dim: 5") + conv() + norm() + scale() + relu() + loss();
  std::vector<float> losses, gradients[2];
  for (const bool fuse : {true, false}) {
    TestNet t(text, TRAIN, {.fuse = fuse}, 1);
    const auto found =
        std::ranges::find(t.net.layers(), "s", [](const auto& l) { return l->name(); });
    const int turn = static_cast<int>(found - t.net.layers().begin());
    Blob &factor = *(*found)->params()[0], &bias = *(*found)->params()[1];
    t.net.before_forward([&](int layer) {
      if (layer == turn) std::ranges::fill(factor.data.host_mut(), 3.0f);
      return Status();
    });
    t.net.after_backward([&](std::span<const int> layers) {
      if (layers[0] == turn) gradients[fuse] = numbers(bias.grad);
      return Status();
    });
    losses.push_back(t.net.forward().value());
    ASSERT_TRUE(t.net.backward().ok());
  }
  EXPECT_EQ(losses[0], losses[1]);
  ASSERT_FALSE(gradients[0].empty());
  for (std::size_t i = 0; i < gradients[0].size(); ++i)
    EXPECT_FLOAT_EQ(gradients[0][i], gradients[1][i]);
}

// Memory that batch normalization uses at the turn of its Scale is nobody else's until then.
TEST(FuseTest, OtherLayersMayStandBetween) {
  const std::string text =
      data("dim: 3 dim: 4 dim: 9 dim: 9") + conv() + norm("n") +
      "layer { name: 'd' type: 'Convolution' bottom: 'x' top: 'd' convolution_param { num_output: "
      "12 kernel_size: 3 pad: 1 weight_filler { type: 'xavier' } } }\n" +
      scale("n") + relu_in("n") +
      "layer { name: 'both' type: 'Eltwise' bottom: 'n' bottom: 'd' top: 'both' }\n" + loss("both");
  for (const Phase phase : {TRAIN, TEST}) {
    std::vector<std::vector<float>> tops, gradients;
    for (const bool fuse : {true, false}) {
      TestNet t(text, phase, {.fuse = fuse}, 1);
      ASSERT_TRUE(t.net.forward().ok());
      tops.push_back(numbers(t.net.blob("both")->data));
      if (phase == TEST) continue;
      ASSERT_TRUE(t.net.backward().ok());
      for (const NetParam& param : t.net.params()) gradients.push_back(numbers(param.blob->grad));
    }
    EXPECT_EQ(tops[0], tops[1]);
    for (std::size_t i = 0; i < gradients.size() / 2; ++i)
      for (std::size_t k = 0; k < gradients[i].size(); ++k)
        ASSERT_NEAR(gradients[i][k], gradients[gradients.size() / 2 + i][k], 1e-3f) << i;
  }
}

// Batch normalization's own top has at its turn what the last pass left there.
TEST(FuseTest, NumbersThatAreNotFiniteAreTheScales) {
  TestNet t(data("dim: 3 dim: 4 dim: 5 dim: 5") + conv() + norm("n") + scale("n") + relu_in("n") +
                loss("n"),
            TRAIN, {}, 1);
  const auto layer =
      std::ranges::find(t.net.layers(), "s", [](const auto& l) { return l->name(); });
  std::ranges::fill((*layer)->params()[0]->data.host_mut(), 3e38f);
  ASSERT_TRUE(t.net.forward().ok());
  EXPECT_NE(t.net.find_non_finite().find("layer 's' (Scale)"), std::string::npos)
      << t.net.find_non_finite();
}

// The Scale learns, and nothing below the normalization does: what that reads backward is kept.
TEST(FuseTest, AScaleLearnsOnANormalizationThatPassesNothingOn) {
  std::string frozen = conv();
  frozen.replace(frozen.find("type:"), 0, "param { lr_mult: 0 } param { lr_mult: 0 } ");
  const std::string text = data("dim: 3 dim: 4 dim: 9 dim: 7") + frozen + norm("n") + scale("n") +
                           relu_in("n") +
                           "layer { name: 'd' type: 'Convolution' bottom: 'n' top: 'd' "
                           "convolution_param { num_output: 12 kernel_size: 3 pad: 1 "
                           "weight_filler { type: 'xavier' } } }\n" +
                           loss("d");
  TestNet shared(text, TRAIN, {}, 1), apart(text, TRAIN, {.share_memory = false, .fuse = false}, 1);
  ASSERT_NE(fused_into(shared.net, "s"), nullptr);
  ASSERT_TRUE(shared.net.forward().ok() && shared.net.backward().ok());
  ASSERT_TRUE(apart.net.forward().ok() && apart.net.backward().ok());
  for (std::size_t i = 0; i < shared.net.params().size(); ++i) {
    const std::vector<float> ours = numbers(shared.net.params()[i].blob->grad),
                             theirs = numbers(apart.net.params()[i].blob->grad);
    for (std::size_t k = 0; k < ours.size(); ++k)
      ASSERT_NEAR(ours[k], theirs[k], 1e-4f * std::max(1.0f, std::fabs(theirs[k])))
          << "gradient of param " << i;
  }
}

TEST(FuseTest, AScaleThatPassesNothingDownStaysALayerOfItsOwn) {
  std::string stops = scale();
  stops.replace(stops.find("type:"), 0, "propagate_down: false ");
  TestNet t("force_backward: true\n" + data("dim: 3 dim: 4 dim: 5 dim: 5") + conv() + norm() +
                stops + loss(),
            TRAIN, {}, 1);
  EXPECT_EQ(fused_into(t.net, "s"), nullptr);
  ASSERT_TRUE(t.net.forward().ok() && t.net.backward().ok());
  EXPECT_TRUE(
      std::ranges::all_of(numbers(t.net.params()[0].blob->grad), [](float g) { return g == 0; }));
}

// Running statistics in phase TEST: the gradient of the bottom needs nothing that is not kept.
TEST(FuseTest, InTestPhaseAGradientGoesThroughAScaleThatIsNotLearned) {
  const std::string front = data("dim: 3 dim: 4 dim: 5 dim: 5") + conv();
  for (const bool fuse : {true, false}) {
    std::string scaled = scale();
    TestNet learned(front + norm() + scaled + relu() + loss(), TEST, {.fuse = fuse}, 1);
    ASSERT_TRUE(learned.net.forward().ok());
    const Status refused = learned.net.backward();
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("in phase TEST"), std::string::npos)
        << refused.error().message;

    scaled.replace(scaled.find("type:"), 0, "param { lr_mult: 0 } param { lr_mult: 0 } ");
    TestNet frozen(front + norm() + scaled + relu() + loss(), TEST, {.fuse = fuse}, 1);
    ASSERT_TRUE(frozen.net.forward().ok());
    ASSERT_TRUE(frozen.net.backward().ok());
    const std::vector<float> gradient = numbers(frozen.net.params()[0].blob->grad);
    EXPECT_TRUE(std::ranges::any_of(gradient, [](float g) { return g != 0; }));
  }
}

TEST(FuseTest, ANegativeSlopeStaysALayerOfItsOwn) {
  TestNet t(data("dim: 2 dim: 3 dim: 9 dim: 9") + conv() + relu("c", "-0.5") + loss(), TRAIN, {},
            1);
  EXPECT_EQ(fused_into(t.net, "r"), nullptr);
}

TEST(FuseTest, AReshapedNetStaysFused) {
  TestNet t(data("dim: 2 dim: 8 dim: 9 dim: 9") + conv() + relu() + loss(), TRAIN, {}, 1);
  t.net.reshape();
  ASSERT_TRUE(t.net.forward().ok());
  EXPECT_TRUE(std::ranges::all_of(t.net.blob("c")->data.host(), [](float x) { return x >= 0; }));
}

}  // namespace
}  // namespace shoal::fuse_test
