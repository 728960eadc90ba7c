// A caffemodel of ours, read by OpenCV's own Caffe importer, computes what our net computes. Skipped where the dnn module is not
// installed (libopencv-dnn-dev).
#include <gtest/gtest.h>

#if __has_include(<opencv2/dnn.hpp>)
#include <opencv2/dnn.hpp>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "shoal/base/file.h"
#include "shoal/net/net.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"

namespace shoal {
namespace {

const char* const kNet = R"(
name: "everything OpenCV knows"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 4 dim: 17 dim: 15 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 6 kernel_size: 3 pad: 1 group: 2
  weight_filler { type: "xavier" } bias_filler { type: "gaussian" std: 0.1 } } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "bn" }
layer { name: "scale" type: "Scale" bottom: "bn" top: "scale" scale_param { bias_term: true filler { type: "gaussian" std: 1 } } }
layer { name: "relu" type: "ReLU" bottom: "scale" top: "scale" relu_param { negative_slope: 0.1 } }
layer { name: "pool" type: "Pooling" bottom: "scale" top: "pool" pooling_param { pool: MAX kernel_size: 3 stride: 2 } }
layer { name: "norm" type: "LRN" bottom: "pool" top: "norm" lrn_param { local_size: 3 alpha: 0.5 } }
layer { name: "dilated" type: "Convolution" bottom: "norm" top: "dilated" convolution_param { num_output: 6 kernel_size: 3 pad: 2
  dilation: 2 weight_filler { type: "xavier" } } }
layer { name: "prelu" type: "PReLU" bottom: "dilated" top: "dilated" }
layer { name: "sum" type: "Eltwise" bottom: "norm" bottom: "dilated" top: "sum" eltwise_param { operation: SUM coeff: 1 coeff: -0.5 } }
layer { name: "elu" type: "ELU" bottom: "sum" top: "elu" }
layer { name: "tanh" type: "TanH" bottom: "sum" top: "tanh" }
layer { name: "cat" type: "Concat" bottom: "elu" bottom: "tanh" top: "cat" }
layer { name: "ave" type: "Pooling" bottom: "cat" top: "ave" pooling_param { pool: AVE kernel_size: 2 stride: 2 } }
layer { name: "up" type: "Deconvolution" bottom: "ave" top: "up" convolution_param { num_output: 5 kernel_size: 2 stride: 2
  weight_filler { type: "xavier" } } }
layer { name: "sigmoid" type: "Sigmoid" bottom: "up" top: "sigmoid" }
layer { name: "power" type: "Power" bottom: "sigmoid" top: "power" power_param { power: 2 scale: 1.5 shift: 0.5 } }
layer { name: "drop" type: "Dropout" bottom: "power" top: "power" }
layer { name: "ip" type: "InnerProduct" bottom: "power" top: "ip" inner_product_param { num_output: 10
  weight_filler { type: "xavier" } bias_filler { type: "gaussian" std: 0.1 } } }
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }
)";

cv::Mat as_mat(const Blob& blob) {
  std::vector<int> sizes(blob.shape().dims().begin(), blob.shape().dims().end());
  cv::Mat mat(sizes, CV_32F);
  std::ranges::copy(blob.data.host(), mat.ptr<float>());
  return mat;
}

double largest_difference(const cv::Mat& theirs, std::span<const float> ours) {
  if (theirs.total() != ours.size()) return HUGE_VAL;
  double worst = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) worst = std::max(worst, std::fabs(double{theirs.ptr<float>()[i]} - ours[i]));
  return worst;
}

std::string scratch_folder(const std::string& name) {
  const std::string folder = testing::TempDir() + "/" + name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

NetParameter test_net(const std::string& text) {
  NetParameter net = parse_net(text, "deploy.prototxt");
  net.mutable_state()->set_phase(TEST);
  return net;
}

// BatchNorm's sums as a training run would leave them.
void settle_batch_norm(Net& net) {
  for (const auto& layer : net.layers()) {
    if (layer->type() != "BatchNorm") continue;
    Random random(3);
    for (float& mean : layer->params()[0]->data.host_out()) mean = random.gaussian(0, 1);
    for (float& variance : layer->params()[1]->data.host_out()) variance = random.uniform(1, 4);
    layer->params()[2]->data.host_out()[0] = 2;
  }
}

TEST(OpenCvDnnTest, ReadsOurModelAndAgrees) {
  const std::string folder = scratch_folder("opencv_dnn");
  Context context({.threads = 1, .seed = 5});
  Net net(test_net(kNet), context, {.keep = {"ip"}});
  settle_batch_norm(net);
  Random random(11);
  for (float& x : net.blob("data")->data.host_out()) x = random.gaussian(0, 1);
  const cv::Mat input = as_mat(*net.blob("data"));
  ASSERT_TRUE(net.forward().ok());

  ASSERT_TRUE(write_file(folder + "/deploy.prototxt", kNet, Code::kInternal).ok());
  ASSERT_TRUE(write_binary(net.to_proto(false), folder + "/net.caffemodel").ok());
  cv::dnn::Net theirs = cv::dnn::readNetFromCaffe(folder + "/deploy.prototxt", folder + "/net.caffemodel");
  theirs.setPreferableBackend(cv::dnn::DNN_BACKEND_OPENCV);
  theirs.setInput(input, "data");
  EXPECT_LT(largest_difference(theirs.forward("ip"), net.blob("ip")->data.host()), 1e-4);
  EXPECT_LT(largest_difference(theirs.forward("prob"), net.blob("prob")->data.host()), 1e-4);
}

}  // namespace
}  // namespace shoal

#else
TEST(OpenCvDnnTest, ReadsOurModelAndAgrees) { GTEST_SKIP() << "libopencv-dnn-dev is not installed"; }
#endif
