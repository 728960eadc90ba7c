// Tests of fused layers: which pairs are found, that they change no bit, and that a user sees the
// same blobs.
#include "shoal/net/fuse.h"

#include <gtest/gtest.h>

#include <algorithm>

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

std::vector<Fusion> fusions(const std::string& layers) {
  return find_fusions(insert_splits(parse(data("dim: 2 dim: 3 dim: 9 dim: 9") + layers)));
}

TEST(FuseTest, FindsAReluThatWorksInPlaceOnAConvolution) {
  EXPECT_EQ(fusions(conv() + relu()), (std::vector<Fusion>{{.maker = 1, .follower = 2}}));
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
      EXPECT_EQ(fused.net.memory().blobs, apart.net.memory().blobs);
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

TEST(FuseTest, ANegativeSlopeStaysALayerOfItsOwn) {
  TestNet t(data("dim: 2 dim: 3 dim: 9 dim: 9") + conv() + relu("c", "-0.5") + loss(), TRAIN, {},
            1);
  EXPECT_EQ(fused_into(t.net, "r"), nullptr);
}

TEST(FuseTest, DebugInfoSeesEachLayer) {
  TestNet t("debug_info: true\n" + data("dim: 2 dim: 3 dim: 9 dim: 9") + conv() + relu() + loss(),
            TRAIN, {}, 1);
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
