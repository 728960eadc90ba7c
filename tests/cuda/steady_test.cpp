// Tests of what an iteration takes on a GPU once training is under way.
#include <gtest/gtest.h>

#include <cstdlib>

#include "cuda/fake_cuda.h"
#include "shoal/data/batch_copies.h"
#include "shoal/net/net.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/exchange.h"
#include "shoal/solver/solver.h"
#include "support/device_training.h"

namespace shoal::test::cuda_steady_test {
namespace {

// A batch with its labels goes to the GPU; the loss, twice, and the verdict on the gradients come
// back, for which an event is waited for. Batches that were made in the meantime may go ahead.
TEST(CudaSteady, AnIterationAllocatesNothingAndWaitsForNothingButTheLastOnesEvent) {
  for (const char* precision : {"FLOAT32", "TF32", "FLOAT16"}) {
    SCOPED_TRACE(precision);
    SolverParameter param = device_solver(
        "cuda_steady", std::string("snapshot_after_train: false precision: ") + precision);
    param.set_display(0);
    param.set_test_interval(1000);
    param.set_test_initialization(false);
    Solver solver(param, {.device = &fake_gpu()});
    or_throw(solver.step(2));
    const FakeCalls first = fake_calls();
    constexpr int kIterations = 5;
    for (int i = 0; i < kIterations; ++i) {
      const FakeCalls before = fake_calls();
      or_throw(solver.step(1));
      const FakeCalls calls = fake_calls() - before;
      EXPECT_EQ(calls.allocations, 0);
      EXPECT_EQ(calls.frees, 0);
      EXPECT_EQ(calls.waits, 0);
      EXPECT_GE(calls.copies, 3);
    }
    const std::int64_t batches = (fake_calls() - first).copies - 3 * kIterations;
    EXPECT_LE(std::abs(batches - kIterations), BatchCopies::kAhead) << "one copy a batch";
  }
}

// Trains as `train` does: its waits are those of the start and the end.
TEST(CudaSteady, ARunDoesNotWaitInEachIteration) {
  const auto waits_of = [](int iterations) {
    SolverParameter param =
        device_solver("cuda_steady_run", "snapshot_after_train: false test_initialization: false");
    param.set_display(0);
    param.set_test_interval(1000);
    param.set_max_iter(iterations);
    const FakeCalls before = fake_calls();
    EXPECT_TRUE(train_on(&fake_gpu(), param).ok());
    return (fake_calls() - before).waits;
  };
  EXPECT_EQ(waits_of(25), waits_of(15));
}

// Waits for the loss and the gradients, and for running means, which are saved in case that the
// step is forbidden.
TEST(CudaSteady, OnNanSkipWaitsTwice) {
  SolverParameter param =
      device_solver("cuda_steady_skip", "snapshot_after_train: false on_nan: SKIP");
  param.set_display(0);
  param.set_test_interval(1000);
  param.set_test_initialization(false);
  Solver solver(param, {.device = &fake_gpu()});
  or_throw(solver.step(2));
  const FakeCalls before = fake_calls();
  or_throw(solver.step(1));
  EXPECT_EQ((fake_calls() - before).waits, 2);
}

// The branches of an inception, joined and cut apart again.
constexpr const char* kInception = R"(
layer { name: "data" type: "DummyData" top: "x" top: "label"
        dummy_data_param { shape { dim: 4 dim: 3 dim: 8 dim: 8 } shape { dim: 4 }
                           data_filler { type: "gaussian" }
                           data_filler { type: "constant" value: 1 } } }
layer { name: "conv" type: "Convolution" bottom: "x" top: "conv"
        convolution_param { num_output: 6 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }
layer { name: "left" type: "Convolution" bottom: "conv" top: "left"
        convolution_param { num_output: 5 kernel_size: 1 weight_filler { type: "xavier" } } }
layer { name: "middle" type: "Pooling" bottom: "conv" top: "middle"
        pooling_param { kernel_size: 3 pad: 1 } }
layer { name: "right" type: "Convolution" bottom: "conv" top: "right"
        convolution_param { num_output: 4 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }
layer { name: "join" type: "Concat" bottom: "left" bottom: "middle" bottom: "right" top: "join" }
layer { name: "relu" type: "ReLU" bottom: "join" top: "join" }
layer { name: "part" type: "Slice" bottom: "join" top: "a" top: "b" slice_param { slice_point: 7 } }
layer { name: "conv_a" type: "Convolution" bottom: "a" top: "conv_a"
        convolution_param { num_output: 5 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "conv_b" type: "Convolution" bottom: "b" top: "conv_b"
        convolution_param { num_output: 5 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "sum" type: "Eltwise" bottom: "conv_a" bottom: "conv_b" top: "sum" }
layer { name: "ip" type: "InnerProduct" bottom: "sum" top: "ip"
        inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
)";

NetParameter inception() {
  NetParameter param = parse_net(kInception, "inception");
  param.mutable_state()->set_phase(TRAIN);
  return param;
}

// Numbers are turned as often as in a chain of convolutions.
TEST(CudaSteady, ImagesKeepChannelsLastThroughConcatAndSlice) {
  for (const Precision precision : {Precision::kTf32, Precision::kBfloat16, Precision::kFloat16}) {
    Context ctx({.device = &fake_gpu(), .seed = 3, .precision = precision});
    Net net(inception(), ctx);
    for (int pass = 0; pass < 3; ++pass) {
      const std::int64_t before = ctx.stream()->conversions.reorders;
      ASSERT_TRUE(net.forward().ok() && net.backward().ok());
      if (pass > 0) {
        EXPECT_EQ(ctx.stream()->conversions.reorders - before, 4)
            << "the input, what ip reads, and the gradients of the sum's two parts";
      }
    }
  }
}

// Each weight, and its gradient, stays in the order of the convolution that made it.
TEST(CudaSteady, WeightsAndGradientsStayInTheOrderOfTheirKernels) {
  const auto reorders_of = [](Precision precision, bool with_update) {
    Context ctx({.device = &fake_gpu(), .seed = 3, .precision = precision});
    SolverParameter param;
    param.set_base_lr(0.01f);
    param.set_lr_policy("fixed");
    param.set_momentum(0.9f);
    param.set_clip_gradients(100);
    *param.mutable_net_param() = inception();
    Net net(inception(), ctx);
    const std::unique_ptr<Updater> updater = make_local_updater(param, "x", net);
    std::int64_t before = 0;
    for (int i = 0; i < 3; ++i) {
      before = ctx.stream()->conversions.reorders;
      if (with_update) or_throw(updater->begin(i, 0.01f));
      EXPECT_TRUE(net.forward().ok() && net.backward().ok());
      if (with_update) or_throw(updater->end_step(StepEnd::kUpdate));
    }
    return ctx.stream()->conversions.reorders - before;
  };
  for (const Precision precision : {Precision::kTf32, Precision::kBfloat16, Precision::kFloat16}) {
    SCOPED_TRACE(static_cast<int>(precision));
    EXPECT_EQ(reorders_of(precision, true), reorders_of(precision, false));
  }
}

// All but the input, what ip makes, and the loss are of 16 bits; where the plan were wrong, they
// would take memory of their own.
TEST(CudaSteady, ThePlanHasRoomFor16Bits) {
  const Device& device = fake_gpu(1);
  std::size_t planned[2], used[2], weights = 0;
  for (const bool is_short : {false, true}) {
    Context ctx({.device = &device,
                 .seed = 3,
                 .precision = is_short ? Precision::kBfloat16 : Precision::kTf32});
    device.reset_peak_bytes();
    const std::size_t before = device.peak_bytes().value();
    Net net(inception(), ctx);
    for (int pass = 0; pass < 3; ++pass) ASSERT_TRUE(net.forward().ok() && net.backward().ok());
    ctx.stream()->synchronize();
    planned[is_short] = net.memory().blobs;
    used[is_short] = device.peak_bytes().value() - before;
    weights = net.memory().params;
  }
  EXPECT_LT(planned[true], 0.65 * static_cast<double>(planned[false]));
  // The weights and their gradients, rounded, come on top.
  EXPECT_LT(used[true], used[false] - (planned[false] - planned[true]) + weights);
}

}  // namespace
}  // namespace shoal::test::cuda_steady_test
