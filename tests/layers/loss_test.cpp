// Losses, Accuracy and ArgMax: corners worked by hand, labels that are no class, shapes that do not
// fit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "shoal/base/file.h"
#include "shoal/layers/layer.h"
#include "shoal/proto/layers.pb.h"
#include "support/expect.h"
#include "support/layer_rig.h"

namespace shoal::test::loss_test {
namespace {

// One layer without a net, where a failure is an answer.
class Bench {
 public:
  Bench(const std::string& layer, const std::vector<Shape>& shapes, int tops = 1)
      : context_({.threads = 2}) {
    layer_ = make_layer(parse_layer("layer { name: 'it' " + layer + " }"));
    for (std::size_t i = 0; i < shapes.size(); ++i)
      bottoms_.push_back(add(str("b", i))), bottoms_.back()->reshape(shapes[i]);
    for (int i = 0; i < tops; ++i) tops_.push_back(add(str("t", i)));
    layer_->setup(context_, bottoms_, tops_);
    layer_->reshape(context_, bottoms_, tops_);
  }
  Bench& put(int bottom, const Numbers& numbers) {
    test::put(numbers, bottoms_[static_cast<std::size_t>(bottom)]->data);
    return *this;
  }
  Numbers forward(int top = 0) {
    layer_->forward(context_, bottoms_, tops_);
    return values(tops_[static_cast<std::size_t>(top)]->data);
  }
  float loss() { return forward()[0]; }
  Numbers backward(int bottom = 0, float weight = 1) {
    test::put({weight}, tops_[0]->grad);
    std::vector<bool> propagate(bottoms_.size());
    propagate[static_cast<std::size_t>(bottom)] = true;
    layer_->backward(context_, tops_, propagate, bottoms_);
    return values(bottoms_[static_cast<std::size_t>(bottom)]->grad);
  }
  Bench& weigh(float weight) {
    layer_->set_loss_weights({&weight, 1});
    return *this;
  }
  // Returns why the pass failed: "kData item 3: ..."; empty if it did not.
  std::string failure() {
    const std::optional<Failure> failure = context_.take_failure();
    if (!failure) return "";
    EXPECT_EQ(failure->error.code, Code::kData);
    return str("item ", failure->item, ": ", failure->error.message);
  }
  const Shape& top_shape(int top = 0) const {
    return tops_[static_cast<std::size_t>(top)]->shape();
  }

 private:
  Blob* add(const std::string& name) {
    return owned_.emplace_back(std::make_unique<Blob>(name)).get();
  }
  Context context_;
  std::unique_ptr<Layer> layer_;
  std::vector<std::unique_ptr<Blob>> owned_;
  std::vector<Blob*> bottoms_, tops_;
};

std::string refusal(const std::string& layer, const std::vector<Shape>& shapes, int tops = 1) {
  try {
    Bench(layer, shapes, tops);
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.error().code, Code::kConfig);
    return error.what();
  }
  return "";
}

constexpr float kLn3 = 1.0986123f;
const std::string kSpatial = "type: 'SoftmaxWithLoss' loss_param { ignore_label: 9 ";

// Equal scores of three classes at 2 x 2 x 2 places, five of the eight labels ignored: each counted
// one adds ln 3.
float spatial_loss(const std::string& mode) {
  Bench bench(kSpatial + mode + " }", {{2, 3, 2, 2}, {2, 2, 2}});
  return bench.put(1, {9, 0, 9, 9, 1, 9, 9, 2}).loss();
}

TEST(SoftmaxLossTest, IsDividedAsTheParametersSay) {
  EXPECT_FLOAT_EQ(spatial_loss(""), kLn3);  // VALID: 3
  EXPECT_FLOAT_EQ(spatial_loss("normalization: VALID"), kLn3);
  EXPECT_FLOAT_EQ(spatial_loss("normalization: FULL"), 3 * kLn3 / 8);
  EXPECT_FLOAT_EQ(spatial_loss("normalization: BATCH_SIZE"), 3 * kLn3 / 2);
  EXPECT_FLOAT_EQ(spatial_loss("normalization: NONE"), 3 * kLn3);
  EXPECT_FLOAT_EQ(spatial_loss("normalize: true"), kLn3);
  EXPECT_FLOAT_EQ(spatial_loss("normalize: false"), 3 * kLn3 / 2);
  EXPECT_FLOAT_EQ(spatial_loss("normalize: false normalization: FULL"), 3 * kLn3 / 8);
}

TEST(SoftmaxLossTest, IsNeverDividedByLessThanOne) {
  Bench bench(kSpatial + "}", {{1, 3}, {1}});
  EXPECT_EQ(bench.put(1, {9}).loss(), 0);
  EXPECT_EQ(bench.backward(), (Numbers{0, 0, 0}));
}

TEST(SoftmaxLossTest, FloorsTheProbabilityInTheLossOnly) {
  Bench bench("type: 'SoftmaxWithLoss'", {{1, 2}, {1}});
  EXPECT_FLOAT_EQ(bench.put(0, {0, 500}).put(1, {0}).loss(),
                  -std::log(std::numeric_limits<float>::min()));
  EXPECT_EQ(bench.backward(0, 2), (Numbers{-2, 2}));
}

TEST(SoftmaxLossTest, GradientIsTheWeightTimesProbabilityLessTheLabel) {
  Bench bench("type: 'SoftmaxWithLoss'", {{2, 2}, {2}});
  EXPECT_FLOAT_EQ(bench.put(0, {0, std::log(3.0f), 0, 0}).put(1, {0, 1}).loss(),
                  (std::log(4.0f) + std::log(2.0f)) / 2);
  const Numbers grad = bench.backward(0, 4), want = {-1.5f, 1.5f, 1, -1};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(grad[i], want[i], 1e-6) << i;
}

TEST(SoftmaxLossTest, TakesTheWeightThatTheNetSetWithoutReadingTheTopsGradient) {
  Bench bench("type: 'SoftmaxWithLoss'", {{1, 2}, {1}});
  bench.put(0, {0, 500}).put(1, {0}).weigh(4).loss();
  EXPECT_EQ(bench.backward(0, std::numeric_limits<float>::quiet_NaN()), (Numbers{-4, 4}));
  bench.weigh(0);  // another layer reads the loss: its gradient is in the top
  EXPECT_EQ(bench.backward(0, 3), (Numbers{-3, 3}));
}

TEST(SoftmaxLossTest, LooksAtTheEngineOfTheLayerAndOfItsSoftmax) {
  EXPECT_HAS(refusal("type: 'SoftmaxWithLoss' engine: 'cudnn'", {{1, 2}, {1}}),
             "engine \"cudnn\" was asked for");
  Bench caffe("type: 'SoftmaxWithLoss' softmax_param { engine: CUDNN }", {{1, 2}, {1}});
  EXPECT_GT(caffe.put(0, {0, 0}).put(1, {0}).loss(), 0);
}

TEST(SoftmaxLossTest, NanReachesTheLoss) {
  Bench bench("type: 'SoftmaxWithLoss'", {{1, 2}, {1}});
  EXPECT_TRUE(std::isnan(bench.put(0, {0, std::numeric_limits<float>::quiet_NaN()}).loss()));
}

TEST(SoftmaxLossTest, NamesALabelThatIsNoClass) {
  Bench bench("type: 'SoftmaxWithLoss'", {{3, 10}, {3}});
  bench.put(1, {0, 9, 12}).forward();
  EXPECT_EQ(bench.failure(),
            "item 2: label 12 of 'b1' at item 2 is outside 0..9 (bottom 'b0' has 10 classes; is "
            "num_output too small?)");
  bench.put(1, {0, -1, 12}).forward();
  EXPECT_EQ(bench.failure(),
            "item 1: label -1 of 'b1' at item 1 is outside 0..9 (bottom 'b0' has 10 classes; if -1 "
            "marks what is to count nothing, say ignore_label: -1 in loss_param, or in "
            "accuracy_param)");
  bench.put(1, {2.5f, 0, 0}).forward();
  EXPECT_EQ(bench.failure(), "") << "cut to 2, as BVLC Caffe does";
  bench.put(1, {0, std::numeric_limits<float>::quiet_NaN(), 0}).forward();
  EXPECT_NE(bench.failure().find("is not a whole number"), std::string::npos);
  bench.put(1, {0, 3e38f, 0}).forward();
  EXPECT_NE(bench.failure().find("is outside 0..9"), std::string::npos);
  bench.put(1, {0, 9, 5}).forward();
  EXPECT_EQ(bench.failure(), "");
}

TEST(SoftmaxLossTest, NamesThePositionOfALabelInAnImage) {
  Bench bench(kSpatial + "}", {{2, 3, 2, 2}, {2, 1, 2, 2}});
  bench.put(1, {0, 0, 9, 0, 0, 0, 0, 3}).forward();
  EXPECT_NE(bench.failure().find("item 1: label 3 of 'b1' at item 1, position 3 is outside 0..2"),
            std::string::npos);
}

TEST(LossTest, OtherLossesNameLabelsToo) {
  for (const std::string type : {"HingeLoss", "MultinomialLogisticLoss", "Accuracy"}) {
    Bench bench("type: '" + type + "'", {{2, 3}, {2}});
    bench.put(1, {0, 3}).forward();
    EXPECT_NE(bench.failure().find(
                  "label 3 of 'b1' at item 1 is outside 0..2 (bottom 'b0' has 3 classes"),
              std::string::npos)
        << type;
  }
  Bench infogain("type: 'InfogainLoss'", {{2, 3}, {2}, {3, 3}});
  infogain.put(1, {0, -7}).forward();
  EXPECT_NE(infogain.failure().find("label -7"), std::string::npos);
}

TEST(LossTest, ShapesThatDoNotFitAreNamedWithTheLikelyCause) {
  EXPECT_EQ(refusal("type: 'SoftmaxWithLoss'", {{4, 3, 2, 2}, {4}}),
            "layer 'it' (SoftmaxWithLoss): bottom 'b0' of shape 4 3 2 2 (48), with its classes "
            "along axis 1, has 16 items, but bottom 'b1' of shape 4 (4) has 4 labels; with one "
            "label an item, the scores must be one a class: is an InnerProduct or a global Pooling "
            "before 'b0' missing?");
  EXPECT_NE(refusal("type: 'SoftmaxWithLoss'", {{4, 3}, {4, 3}})
                .find("class numbers, not one number a class"),
            std::string::npos);
  EXPECT_NE(refusal("type: 'Accuracy'", {{4, 3}, {5}}).find("their batches differ in size"),
            std::string::npos);
  EXPECT_NE(
      refusal("type: 'SoftmaxWithLoss' softmax_param { axis: 2 }", {{4, 3}, {4}}).find("axis is 2"),
      std::string::npos);
  EXPECT_NE(refusal("type: 'HingeLoss'", {{4, 3}, {5}})
                .find("4 3 (12) has 4 items, but bottom 'b1' of shape 5 (5)"),
            std::string::npos);
  EXPECT_NE(refusal("type: 'EuclideanLoss'", {{4, 21}, {4, 20}})
                .find("4 21 (84) and bottom 'b1' of shape 4 20 (80) differ"),
            std::string::npos);
  EXPECT_NE(refusal("type: 'SigmoidCrossEntropyLoss'", {{4, 3}, {4}})
                .find("4 3 (12) and bottom 'b1' of shape 4 (4) differ"),
            std::string::npos);
  EXPECT_NE(refusal("type: 'ContrastiveLoss'", {{4, 3}, {4, 2}, {4}}).find("must both be (N, C)"),
            std::string::npos);
  EXPECT_NE(refusal("type: 'ContrastiveLoss'", {{4, 3}, {4, 3}, {3}}).find("each of the 4 pairs"),
            std::string::npos);
  EXPECT_NE(refusal("type: 'InfogainLoss'", {{4, 3}, {4}, {2, 2}}).find("shape 2 2 (4)"),
            std::string::npos);
  EXPECT_NE(refusal("type: 'InfogainLoss'", {{4, 3}, {4}}).find("needs its matrix"),
            std::string::npos);
  EXPECT_NE(refusal("type: 'Accuracy' accuracy_param { top_k: 4 }", {{4, 3}, {4}})
                .find("top_k is 4; it must lie between 1 and the 3"),
            std::string::npos);
  EXPECT_NE(refusal("type: 'ArgMax' argmax_param { top_k: 0 }", {{4, 3}}).find("top_k is 0"),
            std::string::npos);
}

TEST(LossTest, HingeHasNoSlopeWhereTheMarginIsJustMet) {
  Bench bench("type: 'HingeLoss'", {{1, 3}, {1}});
  EXPECT_FLOAT_EQ(bench.put(0, {1, -1, 0.5f}).put(1, {0}).loss(), 1.5f);
  EXPECT_EQ(bench.backward(), (Numbers{0, 0, 1}));
  EXPECT_FLOAT_EQ(bench.put(0, {0.25f, -2, -1}).loss(), 0.75f);
  EXPECT_EQ(bench.backward(), (Numbers{-1, 0, 0}));
}

TEST(LossTest, MultinomialFloorsInTheGradientToo) {
  Bench bench("type: 'MultinomialLogisticLoss'", {{2, 2}, {2}});
  EXPECT_FLOAT_EQ(bench.put(0, {0, 1, 0.5f, 0.5f}).put(1, {0, 1}).loss(),
                  (-std::log(1e-20) + std::log(2.0)) / 2);
  const Numbers grad = bench.backward();
  EXPECT_FLOAT_EQ(grad[0], -0.5e20f);
  EXPECT_EQ(Numbers(grad.begin() + 1, grad.end()), (Numbers{0, 0, -1}));
}

TEST(LossTest, SigmoidCrossEntropyNeitherOverflowsNorTakesTheLogOfNought) {
  Bench bench("type: 'SigmoidCrossEntropyLoss'", {{2, 2}, {2, 2}});
  // 2000 over a batch of two
  EXPECT_FLOAT_EQ(bench.put(0, {1000, -1000, 1000, -1000}).put(1, {1, 0, 0, 1}).loss(), 1000);
  EXPECT_EQ(bench.backward(), (Numbers{0, 0, 0.5f, -0.5f}));
}

TEST(LossTest, ContrastiveOfTheSameRowsHasNoGradient) {
  Bench bench("type: 'ContrastiveLoss'", {{2, 2}, {2, 2}, {2}});
  EXPECT_FLOAT_EQ(bench.put(0, {1, 2, 3, 4}).put(1, {1, 2, 3, 4}).put(2, {0, 1}).loss(), 0.25f);
  EXPECT_EQ(bench.backward(0), (Numbers{0, 0, 0, 0}));
  EXPECT_FLOAT_EQ(bench.put(0, {1, 2, 3, 6}).put(2, {1, 1}).loss(), 1);
  EXPECT_EQ(bench.backward(0), (Numbers{0, 0, 0, 1}));
  EXPECT_EQ(bench.backward(1), (Numbers{0, 0, 0, -1}));
}

TEST(LossTest, InfogainReadsItsMatrixFromAFile) {
  const std::string path = testing::TempDir() + "/infogain_matrix.binaryproto";
  BlobProto proto;
  for (const int dim : {1, 1, 2, 2}) proto.mutable_shape()->add_dim(dim);
  for (const float x : {2.0f, 0.0f, 0.0f, 4.0f}) proto.add_data(x);
  ASSERT_TRUE(write_file(path, proto.SerializeAsString(), Code::kConfig).ok());
  Bench bench("type: 'InfogainLoss' infogain_loss_param { source: '" + path + "' }", {{2, 2}, {2}});
  EXPECT_FLOAT_EQ(bench.put(1, {0, 1}).loss(), 3 * std::log(2.0f));
  EXPECT_EQ(bench.backward(), (Numbers{-0.5f, 0.5f, 1, -1}));
  EXPECT_NE(
      refusal("type: 'InfogainLoss' infogain_loss_param { source: '" + path + "' }", {{2, 3}, {2}})
          .find("1 1 2 2 (4)"),
      std::string::npos);
  EXPECT_NE(refusal("type: 'InfogainLoss' infogain_loss_param { source: '" + path + "' }",
                    {{2, 2}, {2}, {2, 2}})
                .find("drop one"),
            std::string::npos);
}

TEST(AccuracyTest, TiesAndNansCountAgainstTheItem) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Bench bench("type: 'Accuracy'", {{4, 3}, {4}});
  EXPECT_EQ(bench.put(0, {1, 1, 0, 2, 1, 1, nan, 0, 0, 1, nan, 0}).put(1, {0, 0, 0, 0}).loss(),
            0.25f);
}

TEST(AccuracyTest, IsNoughtWhereNothingCounts) {
  Bench bench("type: 'Accuracy' accuracy_param { ignore_label: 1 }", {{2, 2}, {2}}, 2);
  bench.put(0, {1, 0, 0, 1}).put(1, {1, 1});
  EXPECT_EQ(bench.forward(0), Numbers{0});
  EXPECT_EQ(bench.forward(1), (Numbers{0, 0}));
  EXPECT_EQ(bench.put(1, {0, 1}).forward(1), (Numbers{1, 0}));
}

TEST(ArgMaxTest, GivesIndicesThenValuesTheLargerIndexFirst) {
  Bench both("type: 'ArgMax' argmax_param { top_k: 2 out_max_val: true }", {{2, 3}});
  EXPECT_EQ(both.top_shape(), (Shape{2, 2, 2}));
  EXPECT_EQ(both.put(0, {5, 7, 7, 3, std::numeric_limits<float>::quiet_NaN(), 1}).forward(),
            (Numbers{2, 1, 7, 7, 0, 2, 3, 1}));
  Bench along("type: 'ArgMax' argmax_param { axis: 1 }", {{1, 2, 3}});
  EXPECT_EQ(along.top_shape(), (Shape{1, 1, 3}));
  EXPECT_EQ(along.put(0, {1, 5, 2, 4, 5, 0}).forward(), (Numbers{1, 1, 0}));
}

TEST(PointwiseLayersTest, RefuseWhatHasNoMeaning) {
  EXPECT_NE(refusal("type: 'Dropout' dropout_param { dropout_ratio: 1 }", {{2}})
                .find("dropout_ratio is 1; it must be at least 0 and below 1"),
            std::string::npos);
  EXPECT_NE(refusal("type: 'Dropout' dropout_param { dropout_ratio: -0.1 }", {{2}})
                .find("dropout_ratio is -0.1"),
            std::string::npos);
  EXPECT_NE(refusal("type: 'Exp' exp_param { base: 0 }", {{2}})
                .find("base is 0; it must be above 0, or -1 for e"),
            std::string::npos);
  EXPECT_NE(refusal("type: 'Log' log_param { base: 1 }", {{2}}).find("base is 1"),
            std::string::npos);
  EXPECT_NE(
      refusal("type: 'Clip' clip_param { min: 2 max: 1 }", {{2}}).find("min is 2, above max, 1"),
      std::string::npos);
  EXPECT_NE(refusal("type: 'PReLU'", {{2}}).find("channel axis"), std::string::npos);
}

TEST(PointwiseLayersTest, InPlaceInTestPhaseSaysThatItKeptNothingForBackward) {
  Context context({});
  const auto layer = make_layer(parse_layer("layer { name: 'it' type: 'AbsVal' phase: TEST }"));
  Blob blob("b");
  blob.reshape({3});
  Blob* const blobs[] = {&blob};
  layer->setup(context, blobs, blobs);
  layer->reshape(context, blobs, blobs);
  layer->forward(context, blobs, blobs);
  EXPECT_FALSE(context.failed());
  layer->backward(context, blobs, {true}, blobs);
  const std::optional<Failure> failure = context.take_failure();
  ASSERT_TRUE(failure);
  EXPECT_NE(failure->error.message.find("give the top a name of its own"), std::string::npos);
}

TEST(PointwiseLayersTest, DropoutFollowsTheRandomStateAlone) {
  const auto run = [](Context& context) {
    const auto layer = make_layer(parse_layer("layer { name: 'it' type: 'Dropout' phase: TRAIN }"));
    Blob bottom("b"), top("t");
    bottom.reshape({1000});
    std::ranges::fill(bottom.data.host_out(), 1.0f);
    Blob *const bottoms[] = {&bottom}, *const tops[] = {&top};
    layer->reshape(context, bottoms, tops);
    layer->forward(context, bottoms, tops);
    return values(top.data);
  };
  Context first({}), second({.threads = 2, .seed = 99});
  run(first);
  const Random::State saved = first.random().state();
  const Numbers next = run(first);
  EXPECT_NE(run(first), next);
  second.random() = Random(saved);
  EXPECT_EQ(run(second), next);
}

}  // namespace
}  // namespace shoal::test::loss_test
