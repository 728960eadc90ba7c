// Classifies an image with a net and prints the five likeliest labels: a program of its own that
// links libshoal.a and OpenCV. usage: classification DEPLOY.PROTOTXT NETWORK.CAFFEMODEL
// MEAN.BINARYPROTO LABELS.TXT IMAGE MEAN.BINARYPROTO "-" subtracts nothing; README.md says how to
// build it.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <numeric>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>
#include <string>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/net/net.h"
#include "shoal/proto/blob.pb.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"

namespace {

std::vector<std::string> read_labels(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw shoal::ConfigError(shoal::Code::kConfig, path, ": the labels cannot be read");
  std::vector<std::string> labels;
  for (std::string line; std::getline(file, line);) labels.push_back(line);
  return labels;
}

// The mean of each channel of a mean image.
std::vector<float> channel_means(const std::string& path, std::int64_t channels) {
  std::vector<float> means(static_cast<std::size_t>(channels));
  if (path == "-") return means;
  const shoal::BlobProto mean = shoal::read_blob_proto(path);
  const int plane = mean.data_size() / static_cast<int>(channels);
  for (std::size_t c = 0; c < means.size(); ++c) {
    const float* begin = mean.data().data() + static_cast<int>(c) * plane;
    means[c] = static_cast<float>(std::accumulate(begin, begin + plane, 0.0) / plane);
  }
  return means;
}

// Fills the net's input with the image: its size, its number of channels (BGR or grey), less the
// mean.
void load_image(const std::string& path, const std::vector<float>& means, shoal::Tensor& input) {
  const shoal::Shape& shape = input.shape();
  const cv::Mat read =
      cv::imread(path, means.size() == 1 ? cv::IMREAD_GRAYSCALE : cv::IMREAD_COLOR);
  if (read.empty()) throw shoal::ConfigError(shoal::Code::kData, path, ": this is no image");
  cv::Mat image;
  cv::resize(read, image, cv::Size(static_cast<int>(shape[3]), static_cast<int>(shape[2])));
  auto at = input.host_out().begin();
  for (std::size_t c = 0; c < means.size(); ++c)
    for (int row = 0; row < image.rows; ++row)
      for (int column = 0; column < image.cols; ++column)
        *at++ = static_cast<float>(
                    image.ptr(row)[static_cast<std::size_t>(column) * means.size() + c]) -
                means[c];
}

int classify(char** argv) {
  shoal::NetParameter deploy = shoal::read_net(argv[1]);
  shoal::Context context({.threads = 1});
  shoal::Net net(deploy, context);
  net.copy_weights(shoal::read_weights(argv[2]), argv[2]);
  shoal::Blob* const input = net.tops(0)[0];
  std::vector<std::int64_t> dims(input->shape().dims().begin(), input->shape().dims().end());
  if (dims.size() != 4)
    throw shoal::ConfigError(shoal::Code::kConfig, argv[1], ": the input is no batch of images");
  dims[0] = 1;
  input->reshape(shoal::Shape(dims));
  net.reshape();
  load_image(argv[5], channel_means(argv[3], dims[1]), input->data);
  const shoal::Result<float> loss = net.forward();
  if (!loss.ok()) throw shoal::ConfigError(loss.error().code, loss.error().message);

  const std::vector<std::string> labels = read_labels(argv[4]);
  const auto scores = net.outputs()[0]->data.host();
  if (labels.size() != scores.size())
    throw shoal::ConfigError(shoal::Code::kConfig, argv[4], ": ", labels.size(), " labels for ",
                             scores.size(), " scores");
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::size_t i) { return scores[i]; });
  order.resize(std::min<std::size_t>(5, order.size()));
  for (const std::size_t i : order) std::printf("%.4f - \"%s\"\n", scores[i], labels[i].c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::cerr << "usage: classification DEPLOY.PROTOTXT NETWORK.CAFFEMODEL MEAN.BINARYPROTO|- "
                 "LABELS.TXT IMAGE\n";
    return 2;
  }
  try {
    return classify(argv);
  } catch (const shoal::ConfigError& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(error.error().code);
  }
}
