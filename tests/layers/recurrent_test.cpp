// Tests of what LSTM and RNN keep from one batch to the next, and of what they refuse.
#include <gtest/gtest.h>

#include <cmath>

#include "shoal/base/error.h"
#include "shoal/proto/io.h"
#include "shoal/proto/layers.pb.h"
#include "shoal/proto/net.pb.h"
#include "support/device_training.h"
#include "support/expect.h"
#include "support/layer_rig.h"

namespace shoal::test::recurrent_test {
namespace {

constexpr std::int64_t kSequences = 2, kInputs = 3;

LayerParameter layer(const std::string& type) {
  return parse_layer("layer { name: 'r' type: '" + type +
                     "' bottom: 'x' bottom: 'cont' top: 'y' recurrent_param { num_output: 4 "
                     "weight_filler { type: 'gaussian' std: 0.5 } } }");
}

LayerRig rig(const std::string& type, std::int64_t steps) {
  return LayerRig(layer(type), {{steps, kSequences, kInputs}, {steps, kSequences}});
}

// Steps `first` to `first + steps` of sequences that begin at step 0.
void put_steps(LayerRig& rig, std::int64_t first, std::int64_t steps) {
  for (std::int64_t i = 0; i < steps * kSequences * kInputs; ++i)
    rig.input(0)[static_cast<std::size_t>(i)] =
        std::sin(static_cast<float>(first * kSequences * kInputs + i));
  for (std::int64_t i = 0; i < steps * kSequences; ++i)
    rig.input(1)[static_cast<std::size_t>(i)] = first * kSequences + i < kSequences ? 0.0f : 1.0f;
}

Numbers forward(LayerRig& rig, std::int64_t first, std::int64_t steps) {
  put_steps(rig, first, steps);
  rig.forward();
  return rig.top_values()[0];
}

class Recurrent : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Types, Recurrent, testing::Values("LSTM", "RNN"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(Recurrent, BatchesGoOnWhereTheLastEnded) {
  LayerRig whole = rig(GetParam(), 6), halves = rig(GetParam(), 3);
  const Numbers want = forward(whole, 0, 6);
  Numbers got = forward(halves, 0, 3);
  const Numbers rest = forward(halves, 3, 3);
  got.insert(got.end(), rest.begin(), rest.end());
  EXPECT_LE(relative_error(got, want), 1e-6);
}

TEST_P(Recurrent, AnotherNumberOfStepsChangesNothing) {
  LayerRig changed = rig(GetParam(), 2), made = rig(GetParam(), 5);
  for (const std::int64_t steps : {5, 1, 5}) {
    changed.reshape({{steps, kSequences, kInputs}, {steps, kSequences}});
    const Numbers got = forward(changed, 0, steps), want = forward(made, 0, 5);
    EXPECT_EQ(got, Numbers(want.begin(), want.begin() + static_cast<std::ptrdiff_t>(got.size())));
  }
}

TEST_P(Recurrent, AStateIsSavedAndRestored) {
  LayerRig ran = rig(GetParam(), 3), restored = rig(GetParam(), 3), fresh = rig(GetParam(), 3);
  forward(ran, 0, 3);
  const std::string state = ran.layer().save_state();
  ASSERT_OK(restored.layer().load_state(state));
  const Numbers want = forward(ran, 3, 3);
  EXPECT_EQ(forward(restored, 3, 3), want);
  EXPECT_NE(forward(fresh, 3, 3), want);
  // With another number of sequences all of them begin anew.
  LayerRig other(layer(GetParam()), {{3, 1, kInputs}, {3, 1}});
  ASSERT_OK(other.layer().load_state(state));
  EXPECT_EQ(other.layer().save_state(), std::string(other.layer().save_state().size(), '\0'));
}

// Four steps of two sequences of digits that never end.
SolverParameter solver_of(const std::string& type) {
  SolverParameter param = device_solver("recurrent_" + type, "max_iter: 8 snapshot: 4");
  NetParameter& net = *param.mutable_net_param();
  net.mutable_layer()->DeleteSubrange(1, net.layer_size() - 1);  // but for the data
  net.mutable_layer(0)->mutable_data_param()->set_batch_size(8);
  net.MergeFrom(parse_net(R"(
    layer { name: 'steps' type: 'Reshape' bottom: 'data' top: 'x'
            reshape_param { shape { dim: 4 dim: 2 dim: -1 } } }
    layer { name: 'labels' type: 'Reshape' bottom: 'label' top: 'labels'
            reshape_param { shape { dim: 4 dim: 2 } } }
    layer { name: 'cont' type: 'DummyData' top: 'cont'
            dummy_data_param { shape { dim: 4 dim: 2 } data_filler { value: 1 } } }
    layer { name: 'r' type: ')" +
                              type + R"(' bottom: 'x' bottom: 'cont' top: 'y'
            recurrent_param { num_output: 6 weight_filler { type: 'xavier' } } }
    layer { name: 'ip' type: 'InnerProduct' bottom: 'y' top: 'ip'
            inner_product_param { num_output: 10 axis: 2 weight_filler { type: 'xavier' } } }
    layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'labels' top: 'loss'
            softmax_param { axis: 2 } })",
                          "recurrent"));
  return param;
}

TEST_P(Recurrent, ARunGoesOnToTheBit) {
  const SolverParameter param = solver_of(GetParam());
  ASSERT_OK(train_on(nullptr, param));
  const std::string want = saved(param, 8);
  ASSERT_OK(train_on(nullptr, param, nullptr, param.snapshot_prefix() + "_iter_4.solverstate"));
  EXPECT_EQ(saved(param, 8), want);
}

TEST_P(Recurrent, WhatDoesNotFitIsRefused) {
  const auto refusal = [](const std::vector<Shape>& bottoms) {
    try {
      LayerRig(layer(GetParam()), bottoms);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("nothing is refused");
  };
  EXPECT_HAS(refusal({{5}, {5}}), "bottom 'x' is 5 (5); it needs axes of steps and of sequences");
  EXPECT_HAS(refusal({{5, 2, 3}, {2, 5}}), "is 2 5 (10); bottom 'x' has 5 steps of 2 sequences");
}

}  // namespace
}  // namespace shoal::test::recurrent_test
