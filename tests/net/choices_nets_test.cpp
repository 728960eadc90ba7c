// Whole nets under each choice of how the CPU computes: drawn ones, with layers fused and apart,
// and what a pass converts once training is under way.
#include <gtest/gtest.h>

#include <optional>

#include "shoal/base/random.h"
#include "support/choices.h"

namespace shoal::test::choices_nets_test {
namespace {

std::string layer(const std::string& type, const std::string& bottom, const std::string& top,
                  const std::string& param = "") {
  return str("layer { name: '", top, "_", type, "' type: '", type, "' bottom: '", bottom,
             "' top: '", top, "' ", param, " }\n");
}

std::string conv(const std::string& bottom, const std::string& top, const std::string& more) {
  return layer("Convolution", bottom, top,
               str("convolution_param { weight_filler { type: 'msra' } ", more, " }"));
}

std::string images(const std::string& shape) {
  return str(
      "layer { name: 'data' type: 'DummyData' top: 'x' top: 'label' dummy_data_param { "
      "shape { ",
      shape, " } shape { dim: 4 } data_filler { type: 'gaussian' } data_filler { value: 2 } } }\n");
}

std::string classes(const std::string& bottom) {
  return layer("InnerProduct", bottom, "ip",
               "inner_product_param { num_output: 5 weight_filler { type: 'xavier' } }") +
         "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' "
         "}\n";
}

// A net of as many layers or small groups of them, one after the other, with branches. With `more`
// there are PReLU, Scale and a hidden InnerProduct among them: in 16 bits a number of theirs that
// rounding brings to the other side of 0 changes all that follows.
class DrawnNet {
 public:
  DrawnNet(std::uint64_t seed, bool more) : random_(seed, 21), kinds_(more ? 10 : 8) {
    text_ = images("dim: 4 dim: 3 dim: 12 dim: 11");
    convolve(true);
    for (int step = 0; step < 6; ++step) add();
    // There are fewer outputs than images, or more.
    if (more) multiply(below(2) == 0 ? 3 : 24);
    text_ += classes(top_);
  }
  const std::string& text() const { return text_; }

 private:
  std::uint64_t below(std::uint64_t n) { return random_.below(n); }
  std::string fresh() { return str("b", count_++); }
  void on_top(const std::string& type, const std::string& param = "") {
    const std::string top = fresh();
    text_ += layer(type, top_, top, param);
    top_ = top;
  }
  void in_place(const std::string& type, const std::string& param = "") {
    text_ += layer(type, top_, top_, param);
  }
  void relu() { in_place("ReLU", below(3) == 0 ? "relu_param { negative_slope: 0.1 }" : ""); }

  void multiply(int outputs) {
    on_top("InnerProduct", str("inner_product_param { num_output: ", outputs,
                               " weight_filler { type: 'xavier' } bias_filler { value: 0.1 } }"));
    relu();
  }

  // A bias only where a ReLU follows: normalization would make its gradient 0 but for rounding.
  std::string convolved(int outputs, bool has_relu) {
    const std::string top = fresh();
    const bool is_small = below(3) == 0;
    text_ +=
        conv(top_, top,
             str("num_output: ", outputs, is_small ? " kernel_size: 1" : " kernel_size: 3 pad: 1",
                 has_relu ? " bias_filler { type: 'uniform' min: -0.5 max: 0.5 }"
                          : " bias_term: false"));
    return top;
  }
  void convolve(bool has_relu) {
    constexpr int kOutputs[] = {16, 28, 32, 5};
    outputs_ = kOutputs[below(4)];
    top_ = convolved(outputs_, has_relu);
    if (has_relu) relu();
  }
  void normalize() {
    convolve(false);
    in_place("BatchNorm");
    in_place("Scale", "scale_param { bias_term: true filler { type: 'uniform' min: 0.5 } }");
    if (below(4) != 0) relu();
  }
  // Two convolutions of one bottom, and what joins them.
  void branch(bool sums) {
    const std::string left = convolved(outputs_, false), right = convolved(outputs_, false),
                      top = fresh();
    text_ += str("layer { name: '", top, "' type: '", sums ? "Eltwise" : "Concat", "' bottom: '",
                 left, "' bottom: '", right, "' top: '", top, "' }\n");
    top_ = top;
    if (!sums) outputs_ *= 2;
    if (below(2) == 0) relu();
  }
  void pool() {
    if (pools_++ == 2) return convolve(true);
    on_top("Pooling", below(2) == 0 ? "pooling_param { kernel_size: 3 stride: 2 }"
                                    : "pooling_param { pool: AVE kernel_size: 2 stride: 2 }");
  }
  void add() {
    switch (below(kinds_)) {
      case 0: return convolve(true);
      case 1: return pool();
      case 2: return on_top("LRN", "lrn_param { local_size: 3 alpha: 0.1 }");
      case 3: return in_place("Dropout", "dropout_param { dropout_ratio: 0.3 }");
      case 4: return branch(true);
      case 5: return branch(false);
      case 8: return in_place("PReLU", "prelu_param { filler { type: 'uniform' min: -0.5 } }");
      case 9:
        // a bias in front of normalization would have a gradient of nothing but rounding
        return on_top("Scale", "scale_param { filler { type: 'uniform' min: 0.5 } }");
      default: return normalize();
    }
  }

  Random random_;
  const std::uint64_t kinds_;  // of what add() adds
  std::string text_, top_ = "x";
  int count_ = 0, outputs_ = 3, pools_ = 0;
};

class DrawnNets : public testing::TestWithParam<int> {};

// One pass's blobs by layers apart, in memory of their own, are those by fused ones.
TEST_P(DrawnNets, AreTheSameFusedAndApart) {
  for (const Choice& choice : {kAuto, kShort}) {
    SCOPED_TRACE(choice.name);
    const std::string text =
        DrawnNet(static_cast<std::uint64_t>(GetParam()), !choice.is_short()).text();
    SCOPED_TRACE(text);
    const NetParameter param = net_of(text, TRAIN);
    ChosenNet plain(plain_net(param), kDirect);
    const Results reference = run_pass(plain.net, false);
    ChosenNet fused(param, choice, 1 + GetParam() % 2),
        apart(param, choice, 1, {.share_memory = false, .fuse = false});
    // In 16 bits a ReLU may cut a number that it lets through in 32, and gradients that are sums of
    // few numbers then differ by up to a third. Processors round in different places.
    const Tolerance tolerance = choice.is_short() ? Tolerance{1, 0.4} : Tolerance{1e-4, 1e-5};
    for (int pass = 0; pass < 2; ++pass) {
      const Results got = run_pass(fused.net, false);
      expect_close(got, run_pass(apart.net, false), tolerance);
      if (pass == 0) expect_close(got, reference, tolerance);
    }
    EXPECT_EQ(fused.net.find_non_finite(), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, DrawnNets, testing::Range(1, 13));

// A small residual net with a concatenation, from x to e.
const std::string kResidual =
    conv("x", "a", "num_output: 32 kernel_size: 3 pad: 1") + layer("ReLU", "a", "a") +
    layer("Pooling", "a", "pool", "pooling_param { kernel_size: 3 stride: 2 }") +
    layer("LRN", "pool", "norm", "lrn_param { local_size: 3 }") +
    conv("norm", "c", "num_output: 32 kernel_size: 3 pad: 1 bias_term: false") +
    layer("BatchNorm", "c", "c") + layer("Scale", "c", "c", "scale_param { bias_term: true }") +
    layer("ReLU", "c", "c") + layer("Dropout", "c", "c") +
    "layer { name: 'sum' type: 'Eltwise' bottom: 'c' bottom: 'norm' top: 'sum' }\n" +
    layer("ReLU", "sum", "sum") + conv("sum", "d", "num_output: 16 kernel_size: 1") +
    "layer { name: 'joined' type: 'Concat' bottom: 'sum' bottom: 'd' top: 'joined' }\n" +
    conv("joined", "e", "num_output: 28 kernel_size: 3");

TEST(ChoicesNets, ASteadyPassConvertsAtItsEndsAlone) {
  if (!keeps_blocks()) GTEST_SKIP() << "no oneDNN in this build, or not for this processor";
  const std::string text = images("dim: 4 dim: 3 dim: 16 dim: 16") + kResidual + classes("e");
  for (const Choice& choice : kChoices)
    for (const bool share : {true, false}) {
      SCOPED_TRACE(str(choice.name, share ? ", shared memory" : ""));
      ChosenNet one(net_of(text, TRAIN), choice, 1, {.share_memory = share});
      const Stream& stream = *one.context.stream();
      for (int pass = 0; pass < 4; ++pass) {
        const std::int64_t reorders = stream.conversions.reorders;
        const std::uint64_t replacements = stream.replacements;
        one.net.clear_gradients();
        ASSERT_TRUE(one.net.forward().ok());
        const std::int64_t forward = stream.conversions.reorders - reorders;
        ASSERT_TRUE(one.net.backward().ok());
        const std::int64_t backward = stream.conversions.reorders - reorders - forward;
        if (pass < 2) continue;
        EXPECT_EQ(forward, choice.is_short() ? 2 : 1) << "what ip reads, and images in 16 bits";
        EXPECT_EQ(backward, 1) << "the gradient that ip makes";
        EXPECT_EQ(stream.replacements, replacements);
      }
    }
}

// Other numbers of images, of other sizes, and the first again.
TEST(ChoicesNets, AReshapedNetIsOneMadeSo) {
  const Shape shapes[] = {
      {4, 3, 12, 11}, {2, 3, 12, 11}, {5, 3, 12, 11}, {4, 3, 17, 8}, {4, 3, 12, 11}};
  const std::string text =
      "layer { name: 'x' type: 'Input' top: 'x' input_param { shape { dim: 4 dim: 3 dim: 12 dim: "
      "11 "
      "} } }\n" +
      kResidual +
      layer("Pooling", "e", "mean", "pooling_param { pool: AVE global_pooling: true }") +
      layer("Reduction", "mean", "loss", "loss_weight: 1 reduction_param { operation: SUMSQ }");
  for (const Phase phase : {TRAIN, TEST}) {
    const NetParameter param = net_of(text, phase);
    for (const Choice& choice : kChoices) {
      ChosenNet chosen(param, choice), want(plain_net(param), kDirect);
      for (const Shape& shape : shapes) {
        SCOPED_TRACE(str(choice.name, ", ", shape.str()));
        for (Net* net : {&chosen.net, &want.net}) {
          Blob& x = *net->blob("x");
          x.reshape(shape);
          net->reshape();
          Random random(3, 4);
          for (float& number : x.data.host_out()) number = random.gaussian(0, 1);
        }
        expect_close(run_pass(chosen.net, false), run_pass(want.net, false),
                     choice.is_short() ? Tolerance{1, 0.15} : Tolerance{1e-4, 1e-5});
      }
    }
  }
}

}  // namespace
}  // namespace shoal::test::choices_nets_test
