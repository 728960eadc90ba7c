// Inner products as the CPU computes them: with the ReLU behind them, and of images in blocks of
// channels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "shoal/net/net.h"
#include "shoal/ops/blocked_channels.h"
#include "shoal/ops/gemm.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "support/ops.h"

namespace shoal::inner_product_test {
namespace {

// ---- the ReLU behind it ----

std::string net_of(const std::string& product, const std::string& slope) {
  return "layer { name: 'x' type: 'DummyData' top: 'x' dummy_data_param { shape { dim: 9 dim: 6 "
         "dim: 5 } data_filler { type: 'gaussian' } } }\n"
         "layer { name: 'a' type: 'InnerProduct' bottom: 'x' top: 'a' inner_product_param { " +
         product +
         " weight_filler { type: 'xavier' } bias_filler { type: 'uniform' min: -1 } } }\n"
         "layer { name: 'r' type: 'ReLU' bottom: 'a' top: 'a' relu_param { negative_slope: " +
         slope +
         " } }\n"
         "layer { name: 'b' type: 'InnerProduct' bottom: 'a' top: 'b' inner_product_param { "
         "num_output: 7 weight_filler { type: 'xavier' } } }\n"
         "layer { name: 'sum' type: 'Reduction' bottom: 'b' top: 'sum' loss_weight: 0.5 "
         "reduction_param { operation: SUMSQ } }\n";
}

struct TestNet {
  TestNet(const std::string& text, Phase phase, bool fuse, int threads = 1)
      : context({.threads = threads, .seed = 7}), net(read(text, phase), context, {.fuse = fuse}) {}
  static NetParameter read(const std::string& text, Phase phase) {
    NetParameter param = parse_net(text, "test.prototxt");
    param.mutable_state()->set_phase(phase);
    return param;
  }
  Context context;
  Net net;
};

std::vector<float> numbers(const Tensor& tensor) {
  return {tensor.host().begin(), tensor.host().end()};
}

TEST(InnerProductTest, DoesBothPassesOfItsRelu) {
  for (const char* product : {"num_output: 20", "num_output: 20 bias_term: false",
                              "num_output: 3 transpose: true", "num_output: 20 axis: 2"})
    for (const char* slope : {"0", "0.1"})
      for (const int threads : {1, 2})
        for (const Phase phase : {TRAIN, TEST}) {
          SCOPED_TRACE(std::string(product) + ", slope " + slope);
          const std::string text = net_of(product, slope);
          TestNet fused(text, phase, true, threads), apart(text, phase, false, threads);
          ASSERT_NE(fused.net.fused_into(2), nullptr);
          EXPECT_EQ(fused.net.fused_into(2)->name(), "a");
          EXPECT_EQ(apart.net.fused_into(2), nullptr);
          EXPECT_EQ(fused.net.blob_names(), apart.net.blob_names());
          for (int pass = 0; pass < 2; ++pass) {
            EXPECT_EQ(fused.net.forward().value(), apart.net.forward().value());
            ASSERT_TRUE(fused.net.backward().ok() && apart.net.backward().ok());
          }
          for (std::size_t i = 0; i < fused.net.params().size(); ++i)
            EXPECT_EQ(numbers(fused.net.params()[i].blob->grad),
                      numbers(apart.net.params()[i].blob->grad))
                << "gradient of param " << i;
          EXPECT_EQ(fused.net.find_non_finite(), "");
        }
}

TEST(InnerProductTest, LeavesAReluThatItCannotUndo) {
  EXPECT_EQ(TestNet(net_of("num_output: 20", "-0.5"), TRAIN, true).net.fused_into(2), nullptr);
  EXPECT_EQ(
      TestNet("debug_info: true\n" + net_of("num_output: 20", "0"), TRAIN, true).net.fused_into(2),
      nullptr);
}

TEST(InnerProductTest, ItsReluKeepsANan) {
  TestNet t(net_of("num_output: 20", "0"), TRAIN, true);
  t.net.params()[0].blob->data.host_mut()[0] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(t.net.forward().ok());
  EXPECT_NE(t.net.find_non_finite().find("layer 'a'"), std::string::npos)
      << t.net.find_non_finite();
}

}  // namespace
}  // namespace shoal::inner_product_test

// ---- images in blocks ----

namespace shoal::ops::inner_product_test {
namespace {

Tensor drawn(const Shape& shape, std::uint64_t stream) {
  Tensor tensor(shape);
  Random random(12, stream);
  for (float& x : tensor.host_out()) x = random.uniform(-1, 1);
  return tensor;
}

struct Results {
  Tensor y, dx, dw, db, y_of_others;
};
// A null `layout` is the plain one.
Results run(Context& ctx, const DenseDesc& desc, const Shape& images, const LayoutPtr& layout) {
  const auto dense = cpu_backend().dense.back()->make(desc, ctx);
  const Shape weights{desc.outputs, desc.inputs}, tops{desc.rows, desc.outputs};
  Tensor x = drawn(images, 1), w = drawn(weights, 2), b = drawn(Shape{desc.outputs}, 3),
         dy = drawn(tops, 4);
  Results all{Tensor(tops), Tensor(images), drawn(weights, 5), drawn(Shape{desc.outputs}, 6),
              Tensor(tops)};
  if (layout) x.mut(ctx, layout);
  dense->forward(ctx, x, w, &b, all.y);
  dense->backward(ctx, x, w, dy, &all.dx, &all.dw, &all.db);
  for (float& weight : w.host_mut()) weight *= -2;
  dense->forward(ctx, x, w, nullptr, all.y_of_others);
  return all;
}

void expect_near(const Tensor& got, const Tensor& want, float tolerance) {
  float most = 1e-3f;
  for (const float x : want.host()) most = std::max(most, std::fabs(x));
  for (std::size_t i = 0; i < want.host().size(); ++i)
    ASSERT_NEAR(got.host()[i], want.host()[i], tolerance * most) << i;
}

TEST(InnerProductOfBlocks, IsThatOfPlainImages) {
  for (const Shape& images : {Shape{9, 32, 3, 5}, Shape{5, 16, 4, 1}, Shape{4, 20, 2, 2}})
    for (const std::int64_t outputs : {3, 12})
      for (const bool overwrites : {false, true})
        for (const int threads : {1, 2})
          for (const int block : {8, 16})
            for (const NumberType type : {NumberType::kFloat32, NumberType::kBfloat16}) {
              SCOPED_TRACE(str(images.str(), " to ", outputs, ", blocks of ", block));
              Context ctx({.threads = threads});
              const DenseDesc desc{.rows = images[0],
                                   .inputs = images.count(1),
                                   .outputs = outputs,
                                   .overwrites_dw = overwrites};
              const LayoutPtr layout =
                  std::make_shared<BlockedChannels>(images[1], images.count(2), block, type);
              const Results want = run(ctx, desc, images, nullptr);
              const std::int64_t before = ctx.stream()->conversions.reorders;
              const Results got = run(ctx, desc, images, layout);
              const float tolerance = type == NumberType::kFloat32 ? 1e-5f : 3e-2f;
              expect_near(got.y, want.y, tolerance);
              expect_near(got.dx, want.dx, tolerance);
              expect_near(got.dw, want.dw, tolerance);
              expect_near(got.db, want.db, tolerance);
              expect_near(got.y_of_others, want.y_of_others, tolerance);
              const bool reads_blocks =
                  type == NumberType::kFloat32 && outputs < images[0] && images[1] % block == 0;
              // Two reorders: x was put in blocks, and dx was read here.
              if (reads_blocks) {
                EXPECT_EQ(ctx.stream()->conversions.reorders - before, 2);
              }
            }
}

}  // namespace
}  // namespace shoal::ops::inner_product_test
