// Nets whose images change size from batch to batch: what they compute is what a net built for that
// size computes.
#include <gtest/gtest.h>

#include <algorithm>

#include "shoal/net/net.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "support/data_files.h"

namespace shoal::test::data_nets_test {
namespace {

using Numbers = std::vector<float>;

struct Made {
  explicit Made(const std::string& text, Phase phase = TRAIN)
      : context({.seed = 7}), net(parse(text, phase), context) {}
  static NetParameter parse(const std::string& text, Phase phase) {
    NetParameter param = parse_net(text, "sizes.prototxt");
    param.mutable_state()->set_phase(phase);
    return param;
  }
  Context context;
  Net net;
};

constexpr int kSizes[][2] = {{6, 6}, {9, 5}, {9, 5}, {3, 4}, {12, 11}, {5, 9}};
constexpr int kImages = 6;

class DataNet : public testing::Test {
 protected:
  void SetUp() override {
    Records all;
    for (int i = 0; i < kImages; ++i) {
      const int height = kSizes[i][0], width = kSizes[i][1];
      std::string pixels;
      for (int p = 0; p < 2 * height * width; ++p)
        pixels += static_cast<char>((37 * p + 11 * i * i) % 251);
      all.emplace_back(str("r", i), datum(2, height, width, pixels, i % 3));
      ASSERT_OK(write_records("datumfile", alone(i), {all.back()}));
    }
    ASSERT_OK(write_records("datumfile", all_, all));
  }
  std::string alone(int i) const { return str(directory_, "/set", i); }
  // Convolutions with branches and in-place layers, pooled to 1 x 1, over `path` one record at a
  // time.
  static std::string net(const std::string& path, const std::string& more = "") {
    return "layer { name: 'data' type: 'Data' top: 'data' top: 'label' transform_param { scale: "
           "0.01 } data_param { source: '" +
           path + "' backend: DATUMFILE batch_size: 1 } }\n" + more + R"(
      layer { name: 'c1' type: 'Convolution' bottom: 'data' top: 'c1'
        convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: 'xavier' } } }
      layer { name: 'r1' type: 'ReLU' bottom: 'c1' top: 'c1' }
      layer { name: 'n1' type: 'LRN' bottom: 'c1' top: 'n1' }
      layer { name: 'c2' type: 'Convolution' bottom: 'c1' top: 'c2'
        convolution_param { num_output: 4 kernel_size: 1 weight_filler { type: 'xavier' } } }
      layer { name: 'both' type: 'Concat' bottom: 'n1' bottom: 'c2' top: 'both' }
      layer { name: 'pool' type: 'Pooling' bottom: 'both' top: 'pool' pooling_param { pool: AVE global_pooling: true } }
      layer { name: 'ip' type: 'InnerProduct' bottom: 'pool' top: 'ip'
        inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }
      layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' })";
  }
  // The loss, the gradients and the params after a pass.
  static Numbers pass(Net& net) {
    net.clear_gradients();
    const Result<float> loss = net.forward();
    if (!loss.ok()) {
      ADD_FAILURE() << loss.error().message;
      return {};
    }
    Numbers numbers{loss.value()};
    if (const Status status = net.backward(); !status.ok()) ADD_FAILURE() << status.error().message;
    for (const NetParam& param : net.params())
      for (const Tensor* tensor : {&param.blob->grad, &param.blob->data})
        numbers.insert(numbers.end(), tensor->host().begin(), tensor->host().end());
    return numbers;
  }
  std::string directory_ = fresh_directory("sizes"), all_ = directory_ + "/all";
};

TEST_F(DataNet, GradientsAreThoseOfANetBuiltForTheSize) {
  Made made(net(all_));
  int layers = 0;
  made.net.after_backward([&](auto) { return ++layers, Status(); });
  for (int n = 0; n < 2 * kImages; ++n) {
    Made fixed(net(alone(n % kImages)));
    const Numbers got = pass(made.net);
    EXPECT_EQ(got, pass(fixed.net)) << "image " << n;
    EXPECT_TRUE(std::ranges::any_of(std::span(got).subspan(1, 50), [](float x) { return x != 0; }));
    EXPECT_EQ(made.net.blob("c1")->shape(),
              (Shape{1, 4, kSizes[n % kImages][0] - 2, kSizes[n % kImages][1] - 2}));
    EXPECT_EQ(made.net.find_non_finite(), "");
  }
  EXPECT_EQ(layers, 2 * kImages * static_cast<int>(made.net.layers().size()));
  made.net.after_backward(nullptr);
}

TEST_F(DataNet, ATestNetFollowsToo) {
  Made train(net(all_)), test(net(all_), TEST);
  test.net.share_weights(train.net);
  for (int n = 0; n < 2 * kImages; ++n) {
    train.net.params()[0].blob->data.host_mut()[3] += 0.125f;
    Made fixed(net(alone(n % kImages)), TEST);
    fixed.net.share_weights(train.net);
    EXPECT_EQ(or_throw(test.net.forward()), or_throw(fixed.net.forward())) << "image " << n;
    if (n % 2 == 0) pass(train.net);
  }
}

// The tops look at the batch's own bytes; the queue reads every file again and again meanwhile.
TEST_F(DataNet, LayersMayWriteIntoTheBatch) {
  const std::string in_place =
      "layer { name: 'twice' type: 'Power' bottom: 'data' top: 'data' power_param { scale: 2 } }\n"
      "layer { name: 'shift' type: 'Power' bottom: 'label' top: 'label' power_param { scale: -1 "
      "shift: 2 } }\n";
  Made made(net(all_, in_place));
  for (int n = 0; n < 3 * kImages; ++n) {
    Made fixed(net(alone(n % kImages), in_place));
    EXPECT_EQ(pass(made.net), pass(fixed.net)) << "image " << n;
    EXPECT_EQ(made.net.find_non_finite(), "");
  }
}

TEST_F(DataNet, APlanHoldsNoMemoryForTheBatch) {
  const auto planned = [](const std::string& source) { return Made(source).net.memory().blobs; };
  const std::string reader =
      "layer { name: 'data' type: 'Data' top: 'data' data_param { source: '" + alone(4) +
      "' backend: DATUMFILE batch_size: 1 } }\n"
      "layer { name: 'pool' type: 'Pooling' bottom: 'data' top: 'pool' pooling_param { pool: AVE "
      "global_pooling: true } }";
  EXPECT_LT(planned(reader), 2u * 12 * 11 * sizeof(float));
}

TEST_F(DataNet, WhatACallerFilledStays) {
  Made made(net(
      all_,
      "layer { name: 'in' type: 'Input' top: 'in' input_param { shape { dim: 3 } } }\n"
      "layer { name: 'twice' type: 'Power' bottom: 'in' top: 'twice' power_param { scale: 2 } }\n"
      "layer { name: 'ones' type: 'DummyData' top: 'ones' dummy_data_param { shape { dim: 2 } "
      "data_filler { value: 1 } } }\n"));
  std::ranges::copy(Numbers{1, 2, 3}, made.net.blob("in")->data.host_out().begin());
  for (int n = 0; n < kImages; ++n) {
    pass(made.net);
    EXPECT_TRUE(std::ranges::equal(made.net.blob("twice")->data.host(), Numbers{2, 4, 6}))
        << "image " << n;
    EXPECT_TRUE(std::ranges::equal(made.net.blob("ones")->data.host(), Numbers{1, 1}))
        << "image " << n;
  }
}

TEST_F(DataNet, ALayerThatCannotFollowIsNamedWithTheRecord) {
  ASSERT_OK(write_records("datumfile", directory_ + "/small",
                          {{"a", datum(2, 4, 4, std::string(32, 'x'), 0)},
                           {"b", datum(2, 2, 4, std::string(16, 'x'), 0)}}));
  Made made(net(directory_ + "/small"));
  ASSERT_OK(made.net.forward());
  const Result<float> loss = made.net.forward();
  ASSERT_FALSE(loss.ok());
  EXPECT_HAS(loss.error().message, "layer 'c1' (Convolution)");
  EXPECT_HAS(loss.error().message, "; record b of " + directory_ + "/small");
}

}  // namespace
}  // namespace shoal::test::data_nets_test
