// Models and deploy nets of ours in OpenCV's importer: its outputs are ours.
#include <gtest/gtest.h>

#if __has_include(<opencv2/dnn.hpp>)
#include <opencv2/dnn.hpp>

#include <algorithm>
#include <cmath>

#include "shoal/layers/layer.h"
#include "shoal/net/deploy.h"
#include "shoal/net/net.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "support/data_files.h"
#include "support/places.h"

namespace shoal::opencv_test {
namespace {

// Gives every learned blob of a net's layers random numbers; running sums of BatchNorm stay
// positive.
void fill_params(Net& net, Random random) {
  for (const auto& layer : net.layers())
    for (const auto& param : layer->params()) {
      const bool sums = layer->type() == "BatchNorm";
      const float limit = std::sqrt(3.0f / static_cast<float>(std::max<std::int64_t>(
                                               param->data.count() / param->shape()[0], 1)));
      for (float& x : param->data.host_out())
        x = sums ? random.uniform(0.5f, 1.5f) : random.uniform(-limit, limit);
    }
}

struct Answers {
  std::vector<float> ours, theirs;
};

// The outputs of `blob` for the same random input, by our net and by OpenCV's reading of its deploy
// text and model.
Answers ask_both(const NetParameter& trained, const DeployOptions& options,
                 const std::string& blob) {
  const NetParameter deploy = deploy_net(trained, options);
  Context context({.seed = 3});
  NetParameter ours = parse_net(deploy_text(deploy, FloorField::kRoundMode), "deploy.prototxt");
  ours.mutable_state()->set_phase(TEST);
  Net net(ours, context, {.share_memory = false, .keep = {}});
  fill_params(net, Random(5));
  Tensor& input = net.blob(deploy.layer(0).top(0))->data;
  Random random(7);
  for (float& x : input.host_out()) x = random.uniform(-1, 1);
  EXPECT_TRUE(net.forward().ok());
  const Tensor& output = net.blob(blob)->data;

  NetParameter model = net.to_proto(false);
  clear_origins(model);
  const std::string text = deploy_text(deploy, FloorField::kCeilMode),
                    weights = model.SerializeAsString();
  cv::dnn::Net reader =
      cv::dnn::readNetFromCaffe(text.data(), text.size(), weights.data(), weights.size());
  std::vector<int> dims;
  for (int axis = 0; axis < input.shape().axes(); ++axis)
    dims.push_back(static_cast<int>(input.shape()[axis]));
  reader.setInput(cv::Mat(dims, CV_32F, input.host_mut().data()).clone(), deploy.layer(0).top(0));
  const cv::Mat theirs = reader.forward(blob);
  return {{output.host().begin(), output.host().end()},
          {theirs.ptr<float>(), theirs.ptr<float>() + theirs.total()}};
}

void expect_same(const Answers& answers) {
  ASSERT_EQ(answers.ours.size(), answers.theirs.size());
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < answers.ours.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(answers.ours[i]) - answers.theirs[i]));
    largest = std::max(largest, std::abs(static_cast<double>(answers.ours[i])));
  }
  EXPECT_LT(worst, 1e-4);
  EXPECT_GT(largest, 1e-2) << "nothing to compare";
}

TEST(OpenCv, ReadsLeNetAndAgrees) {
  const NetParameter net =
      read_net((test::repository_root() / "models/lenet/train_val.prototxt").string());
  expect_same(ask_both(net, {.shape = {2, 1, 28, 28}}, "ip2"));
  expect_same(ask_both(net, {.shape = {2, 1, 28, 28}}, "prob"));
}

TEST(OpenCv, ReadsCifar10QuickAndAgrees) {
  const NetParameter net =
      read_net((test::repository_root() / "models/cifar10_quick/train_val.prototxt").string());
  expect_same(ask_both(net, {.shape = {2, 3, 32, 32}}, "prob"));
}

constexpr const char* kInput =
    "layer { name: 'data' type: 'Input' top: 'data' input_param { shape { dim: 2 dim: 4 dim: 9 "
    "dim: 11 } } }\n";
// Each a layer or two between that and the layer and blob "out".
constexpr const char* kCases[] = {
    "layer { name: 'out' type: 'Convolution' bottom: 'data' top: 'out' "
    "convolution_param { num_output: 6 kernel_h: 3 kernel_w: 2 pad: 1 stride: 2 group: 2 } }",
    "layer { name: 'out' type: 'Convolution' bottom: 'data' top: 'out' "
    "convolution_param { num_output: 3 kernel_size: 3 dilation: 2 bias_term: false } }",
    "layer { name: 'out' type: 'Deconvolution' bottom: 'data' top: 'out' "
    "convolution_param { num_output: 3 kernel_size: 4 stride: 2 pad: 1 } }",
    "layer { name: 'out' type: 'Pooling' bottom: 'data' top: 'out' pooling_param { kernel_size: 2 "
    "stride: 2 } }",
    "layer { name: 'out' type: 'Pooling' bottom: 'data' top: 'out' pooling_param { kernel_size: 2 "
    "stride: 2 round_mode: FLOOR } }",
    "layer { name: 'out' type: 'Pooling' bottom: 'data' top: 'out' pooling_param { pool: AVE "
    "kernel_size: 3 stride: 2 pad: 1 } }",
    "layer { name: 'out' type: 'Pooling' bottom: 'data' top: 'out' pooling_param { pool: AVE "
    "global_pooling: true } }",
    "layer { name: 'out' type: 'LRN' bottom: 'data' top: 'out' lrn_param { local_size: 3 alpha: "
    "0.5 } }",
    "layer { name: 'out' type: 'LRN' bottom: 'data' top: 'out' lrn_param { local_size: 3 alpha: "
    "0.5 norm_region: WITHIN_CHANNEL } }",
    "layer { name: 'b' type: 'BatchNorm' bottom: 'data' top: 'b' } "
    "layer { name: 'out' type: 'Scale' bottom: 'b' top: 'out' scale_param { bias_term: true } }",
    "layer { name: 'out' type: 'InnerProduct' bottom: 'data' top: 'out' inner_product_param { "
    "num_output: 5 } }",
    "layer { name: 'out' type: 'ReLU' bottom: 'data' top: 'out' relu_param { negative_slope: 0.1 } "
    "}",
    "layer { name: 'out' type: 'PReLU' bottom: 'data' top: 'out' }",
    "layer { name: 'out' type: 'ELU' bottom: 'data' top: 'out' }",
    "layer { name: 'out' type: 'Sigmoid' bottom: 'data' top: 'out' }",
    "layer { name: 'out' type: 'TanH' bottom: 'data' top: 'out' }",
    "layer { name: 'out' type: 'AbsVal' bottom: 'data' top: 'out' }",
    "layer { name: 'out' type: 'BNLL' bottom: 'data' top: 'out' }",
    "layer { name: 'out' type: 'Power' bottom: 'data' top: 'out' power_param { power: 2 scale: 0.5 "
    "shift: 1 } }",
    "layer { name: 'out' type: 'Exp' bottom: 'data' top: 'out' exp_param { base: 2 scale: 0.5 } }",
    "layer { name: 'out' type: 'Dropout' bottom: 'data' top: 'out' }",
    "layer { name: 'out' type: 'Softmax' bottom: 'data' top: 'out' }",
    "layer { name: 'a' type: 'Sigmoid' bottom: 'data' top: 'a' } layer { name: 'out' type: "
    "'Eltwise' bottom: 'data' bottom: 'a' top: 'out' "
    "eltwise_param { coeff: 1 coeff: -0.5 } }",
    "layer { name: 'a' type: 'Sigmoid' bottom: 'data' top: 'a' } layer { name: 'out' type: "
    "'Concat' bottom: 'data' bottom: 'a' top: 'out' }",
    "layer { name: 'out' type: 'Slice' bottom: 'data' top: 'out' top: 'rest' slice_param { "
    "slice_point: 1 } }",
    "layer { name: 'out' type: 'Flatten' bottom: 'data' top: 'out' }",
    "layer { name: 'out' type: 'Reshape' bottom: 'data' top: 'out' reshape_param { shape { dim: 0 "
    "dim: 2 dim: -1 } } }",
};

// The net that examples/ssd draws: with random params both find the same boxes, in one order.
TEST(OpenCv, FindsTheBoxesOfAMobileNetSsd) {
  const std::vector<std::string> types = layer_types();
  if (std::ranges::find(types, "Permute") == types.end())
    GTEST_SKIP() << "no layer of type Permute is built";
  const std::string folder = test::fresh_directory("opencv_ssd");
  const std::string script = (test::repository_root() / "examples/ssd/make_nets.py").string();
  const test::Ran made =
      test::run_program({"/usr/bin/env", "python3", script, folder, "--width=0.25"});
  ASSERT_EQ(made.code, 0) << made.err;
  const NetParameter net = read_net(folder + "/deploy.prototxt");
  for (const char* const blob : {"mbox_priorbox", "mbox_loc", "mbox_conf_flatten"}) {
    SCOPED_TRACE(blob);
    expect_same(ask_both(net, {}, blob));
  }
  // Scores of random params are nearly equal: rows of one class may change places.
  const Answers found = ask_both(net, {}, "detection_out");
  ASSERT_EQ(found.ours.size(), found.theirs.size());
  const std::size_t rows = found.ours.size() / 7;
  std::size_t agree = 0;
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < rows; ++j) {
      const float* const a = found.ours.data() + 7 * i;
      if (!std::equal(a, a + 7, found.theirs.data() + 7 * j,
                      [](float x, float y) { return std::fabs(x - y) < 1e-4f; }))
        continue;
      ++agree;
      break;
    }
  EXPECT_GE(rows, 50u);
  EXPECT_GE(agree + 2, rows) << "boxes at the edge of the best 100 may differ";
}

TEST(OpenCv, AgreesOnEveryLayerThatItHas) {
  for (const char* layers : kCases) {
    SCOPED_TRACE(layers);
    const NetParameter net = parse_net(str(kInput, layers), "case");
    expect_same(ask_both(net, {}, "out"));
  }
}

}  // namespace
}  // namespace shoal::opencv_test
#else
TEST(OpenCv, ReadsOurModelsAndAgrees) {
  GTEST_SKIP() << "no opencv2/dnn.hpp; libopencv-dnn-dev has it";
}
#endif
