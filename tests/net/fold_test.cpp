// Tests of convolutions with folded weights: which layers are folded, that the numbers are those of
// the layers apart, and that changed params are noticed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "shoal/net/fuse.h"
#include "shoal/net/graph.h"
#include "shoal/net/net.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"

namespace shoal::fold_test {
namespace {

NetParameter parse(const std::string& text, Phase phase = TEST) {
  NetParameter net = parse_net(text, "test.prototxt");
  net.mutable_state()->set_phase(phase);
  return net;
}

const char* const kUsual = "num_output: 32 kernel_size: 3 pad: 1";

// The layers work in place on 'c', behind the convolution 'c' of 'x'.
std::string conv(const std::string& more = kUsual, const std::string& shape = "dim: 16 dim: 8") {
  return "layer { name: 'x' type: 'DummyData' top: 'x' dummy_data_param { shape { dim: 2 " + shape +
         " dim: 9 } data_filler { type: 'gaussian' } } }\n"
         "layer { name: 'c' type: 'Convolution' bottom: 'x' top: 'c' convolution_param { " +
         more + " weight_filler { type: 'xavier' } bias_filler { type: 'uniform' min: -1 } } }\n";
}
std::string norm(const std::string& more = "eps: 0.01", const std::string& top = "c") {
  return "layer { name: 'n' type: 'BatchNorm' bottom: 'c' top: '" + top + "' batch_norm_param { " +
         more + " } }\n";
}
std::string scale(const std::string& more = "bias_term: true", const std::string& blob = "c") {
  return "layer { name: 's' type: 'Scale' bottom: '" + blob + "' top: '" + blob +
         "' scale_param { filler { type: 'uniform' min: -1 max: 2 } bias_filler { type: 'uniform' "
         "min: -1 } " +
         more + " } }\n";
}
std::string relu(const std::string& slope = "0", const std::string& blob = "c") {
  return "layer { name: 'r' type: 'ReLU' bottom: '" + blob + "' top: '" + blob +
         "' relu_param { negative_slope: " + slope + " } }\n";
}
std::string usual() { return conv() + norm() + scale() + relu(); }

Layer& layer(Net& net, const std::string& name) {
  return **std::ranges::find(net.layers(), name, [](const auto& l) { return l->name(); });
}

// Statistics of five batches: variances down to 0, where eps matters.
void fill_statistics(Net& net, float by = 1) {
  const auto& sums = layer(net, "n").params();
  const std::span<float> mean = sums[0]->data.host_out(), variance = sums[1]->data.host_out();
  for (std::size_t k = 0; k < mean.size(); ++k) {
    mean[k] = by * (static_cast<float>(k % 7) - 3);
    variance[k] = by * static_cast<float>(k % 5) / 2;
  }
  sums[2]->data.host_out()[0] = 5;
}

// A net with its context; all of one text start with the same params and get the same data.
struct TestNet {
  explicit TestNet(const std::string& text, const NetOptions& options = {.forward_only = true},
                   Phase phase = TEST, int threads = 2)
      : context({.threads = threads, .seed = 7}), net(parse(text, phase), context, options) {
    if (text.find("'BatchNorm'") != std::string::npos) fill_statistics(net);
  }
  // Returns the layers whose work the one of this name does: "nsr".
  std::string folded_into(const std::string& maker = "c") {
    std::string names;
    for (int i = 0; i < static_cast<int>(net.layers().size()); ++i)
      if (const Layer* into = net.fused_into(i); into != nullptr && into->name() == maker)
        names += net.layers()[static_cast<std::size_t>(i)]->name();
    return names;
  }
  std::vector<float> forward(const std::string& blob = "c") {
    EXPECT_TRUE(net.forward().ok());
    const std::span<const float> numbers = net.blob(blob)->data.host();
    return {numbers.begin(), numbers.end()};
  }
  Context context;
  Net net;
};

const NetOptions kApart{.fuse = false, .forward_only = true};

void expect_near(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  float most = 0;
  for (const float number : want) most = std::max(most, std::fabs(number));
  ASSERT_GT(most, 0);
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-5f * most) << i;
}

struct Case {
  const char* name;
  std::string layers;
  const char* folded;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class Folded : public testing::TestWithParam<Case> {};

TEST_P(Folded, IsWhatTheLayersAreApart) {
  const Case& c = GetParam();
  for (const int threads : {1, 2}) {
    TestNet together(c.layers, {.forward_only = true}, TEST, threads),
        apart(c.layers, kApart, TEST, threads);
    EXPECT_EQ(together.folded_into(), c.folded);
    EXPECT_EQ(apart.folded_into(), "");
    EXPECT_EQ(together.net.blob_names(), apart.net.blob_names());
    for (int pass = 0; pass < 2; ++pass) expect_near(together.forward(), apart.forward());
    EXPECT_EQ(together.net.find_non_finite(), "");
    EXPECT_EQ(together.net.to_proto(false).SerializeAsString(),
              apart.net.to_proto(false).SerializeAsString());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Folded,
    testing::Values(
        Case{"all", usual(), "nsr"},
        Case{"no_bias", conv(str(kUsual, " bias_term: false")) + norm() + scale() + relu(), "nsr"},
        Case{"scale_without_bias", conv() + norm() + scale("") + relu("0.1"), "nsr"},
        Case{"no_relu", conv() + norm() + scale(), "ns"}, Case{"no_scale", conv() + norm(), "n"},
        Case{"relu_on_norm", conv() + norm() + relu(), "nr"},
        Case{"scale_alone", conv() + scale() + relu(), "sr"},
        Case{"groups", conv("num_output: 12 kernel_size: 3 group: 4") + norm() + scale(), "ns"},
        Case{"depthwise", conv("num_output: 16 kernel_size: 3 group: 16") + norm() + scale(), "ns"},
        Case{"one_axis", conv("num_output: 9 kernel_size: 3", "dim: 5") + norm() + scale(), "ns"},
        Case{"one_by_one", conv("num_output: 20 kernel_size: 1") + norm() + relu(), "nr"},
        Case{"running_by_name", conv() + norm("use_global_stats: true") + scale(), "ns"},
        // The layers that are left work as before.
        Case{"negative_slope", conv() + norm() + scale() + relu("-0.5"), "ns"},
        // There are as many rows as channels.
        Case{"other_axis",
             conv("num_output: 8 kernel_size: 3 pad: 1") + norm() + scale("axis: 2 num_axes: 1"),
             "n"},
        Case{"batch_statistics", conv() + norm("use_global_stats: false"), ""},
        Case{"channels_first", conv("axis: 0 num_output: 4 kernel_size: 1", "dim: 4") + norm(),
             ""}),
    [](const testing::TestParamInfo<Case>& info) { return info.param.name; });

// Each param of the four layers by itself, in the host's memory and as another tensor.
TEST(FoldTest, ChangedParamsAreNoticed) {
  TestNet together(usual()), apart(usual(), kApart), other(usual(), {.forward_only = true});
  expect_near(together.forward(), apart.forward());
  for (const char* name : {"c", "n", "s"})
    for (std::size_t i = 0; i < layer(together.net, name).params().size(); ++i) {
      SCOPED_TRACE(str("param ", i, " of ", name));
      for (Net* net : {&together.net, &apart.net})
        for (float& number : layer(*net, name).params()[i]->data.host_mut())
          number = 1.5f * number + 0.25f;
      expect_near(together.forward(), apart.forward());
    }
  // Writes to the other net's params as often.
  for (const char* name : {"c", "n", "s"})
    for (const auto& param : layer(other.net, name).params())
      for (float& number : param->data.host_mut()) number = 0.75f * number + 0.5f;
  for (TestNet* t : {&together, &apart}) t->net.share_weights(other.net);
  expect_near(together.forward(), apart.forward());
  fill_statistics(other.net, 3);
  expect_near(together.forward(), apart.forward());
  NetParameter saved = TestNet(usual()).net.to_proto(false);
  for (TestNet* t : {&together, &apart}) t->net.copy_weights(saved, "saved");
  expect_near(together.forward(), apart.forward());
}

TEST(FoldTest, ParamsStayAsTheyWere) {
  TestNet t(usual());
  const std::string before = t.net.to_proto(false).SerializeAsString();
  t.forward();
  EXPECT_EQ(t.net.to_proto(false).SerializeAsString(), before);
}

// Layers behind a convolution that leaves them alone are batch normalization's, as without folding.
TEST(FoldTest, ATrainingNetIsNotFolded) {
  const std::string loss =
      "layer { name: 'sum' type: 'Reduction' bottom: 'c' top: 'sum' loss_weight: 1 }\n";
  for (const char* statistics : {"", "use_global_stats: true"})
    for (const bool learns : {true, false}) {
      TestNet t(conv() + norm(statistics) + scale() + relu() + (learns ? loss : ""), {}, TRAIN);
      EXPECT_EQ(t.folded_into("c"), "");
      EXPECT_EQ(t.folded_into("n"), "sr");
    }
  TestNet tested(usual() + loss, {});
  EXPECT_EQ(tested.folded_into("c"), "") << "it may be asked for gradients";
  EXPECT_EQ(tested.folded_into("n"), "sr");
  ASSERT_TRUE(tested.net.forward().ok());
  TestNet forward_only(usual() + loss);
  EXPECT_EQ(forward_only.folded_into("c"), "nsr");
}

// The memory of a net that learns, and what a caller of backward is told. A square's backward pass
// needs the numbers of its bottom beside their gradients. A convolution of single places needs no
// workspace, which may be larger than either.
TEST(FoldTest, ANetWithoutABackwardPassPlansNoGradients) {
  const std::string text =
      conv("num_output: 24 kernel_size: 1") +
      "layer { name: 'square' type: 'Power' bottom: 'c' top: 's' power_param { power: 2 } }\n"
      "layer { name: 'sum' type: 'Reduction' bottom: 's' top: 'sum' loss_weight: 1 }\n";
  TestNet both(text, {}), forward_only(text);
  EXPECT_TRUE(both.net.needs_backward(1));
  EXPECT_FALSE(forward_only.net.needs_backward(1));
  EXPECT_LT(forward_only.net.memory().blobs, both.net.memory().blobs);
  EXPECT_EQ(forward_only.net.forward().value(), both.net.forward().value());
  EXPECT_TRUE(both.net.backward().ok());
  EXPECT_DEATH({ [[maybe_unused]] auto status = forward_only.net.backward(); },
               "without a backward pass");
}

TEST(FoldTest, ABlobThatTheUserNamedIsNotFolded) {
  const std::string text = conv() + norm("", "n") + scale("", "n") + relu("0", "n");
  TestNet named(text, {.keep = {"c"}, .forward_only = true}), apart(text, kApart);
  EXPECT_EQ(named.folded_into("c"), "");
  EXPECT_EQ(named.folded_into("n"), "sr");
  EXPECT_EQ(named.forward("n"), apart.forward("n"));
  EXPECT_EQ(named.forward("c"), apart.forward("c"));
}

TEST(FoldTest, AResultThatAnotherLayerTakesIsNotFolded) {
  TestNet t(conv() + norm("", "n") + scale("", "n") +
            "layer { name: 'e' type: 'Eltwise' bottom: 'c' bottom: 'n' top: 'e' }\n");
  EXPECT_EQ(t.folded_into("c"), "");
}

TEST(FoldTest, DebugInfoSeesEachLayer) {
  for (const Phase phase : {TRAIN, TEST})
    for (const std::string& layers : {usual(), conv() + relu()}) {
      TestNet t("debug_info: true\n" + layers, {}, phase);
      EXPECT_EQ(t.folded_into("c"), "");
      EXPECT_EQ(t.folded_into("n"), "");
    }
}

// Kernels that are made for the new shapes get the weights, too.
TEST(FoldTest, AReshapedNetStaysFolded) {
  std::string text = usual();
  text.replace(0, text.find('\n'),
               "layer { name: 'x' type: 'Input' top: 'x' input_param { shape { dim: 2 dim: 16 dim: "
               "8 dim: 9 } } }");
  TestNet together(text), apart(text, kApart);
  for (const std::int64_t images : {2, 3, 1, 2}) {
    std::vector<float> got[2];
    for (TestNet* t : {&together, &apart}) {
      Tensor& x = t->net.blob("x")->data;
      x.reshape(Shape{images, 16, 8, 9});
      t->net.reshape();
      for (float value = 0; float& number : x.host_out()) number = std::sin(value += 1);
      got[t == &apart] = t->forward();
    }
    EXPECT_EQ(together.folded_into("c"), "nsr");
    expect_near(got[0], got[1]);
  }
}

// Layers behind a follower are offered to it if its maker did not take it.
TEST(FoldTest, AFollowerThatIsNotTakenMayBeAMaker) {
  const NetParameter net = insert_splits(parse(usual()));
  const auto pairs = [&](const std::string& refused) {
    return find_fusions(net,
                        [&](const Fusion& f) { return net.layer(f.follower).type() != refused; });
  };
  const auto pair = [](int maker, int follower) { return Fusion{maker, follower}; };
  EXPECT_EQ(pairs(""), (std::vector{pair(1, 2), pair(1, 3), pair(1, 4)}));
  EXPECT_EQ(pairs("BatchNorm"), (std::vector{pair(2, 3), pair(2, 4)}));
  EXPECT_EQ(pairs("Scale"), (std::vector{pair(1, 2)}));
}

}  // namespace
}  // namespace shoal::fold_test
