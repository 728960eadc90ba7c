// Single layers against numbers that BVLC Caffe 1.0 computed. All files of <shared>/golden/layers
// run if that folder is there (its README.md says how they were made); a few small ones are kept in
// tests/golden/layers. The files of tests/golden/forks, of layers that forks of Caffe have, were
// computed by tests/golden/make_fork_layers_*.py.
//
// Where Caffe is wrong, the numbers are right all the same:
//   Scale overwrites the gradient of its param when that covers the whole bottom, or nothing lies
//   before its axis; ours adds, which
//     is the same for a gradient that starts at nought.
//   SoftmaxWithLoss with two tops aborts in Caffe's setup; the files show what its schema
//   documents.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <set>

#include "shoal/layers/layer.h"
#include "shoal/proto/layers.pb.h"
#include "support/devices.h"
#include "support/golden_layers.h"
#include "support/layer_rig.h"
#include "support/places.h"

namespace shoal::test::golden_layers_test {
namespace {

// They move data or compare it: every bit is right or it is not.
constexpr std::array kExact = {"ArgMax",  "BatchReindex", "Concat", "Crop",      "DummyData",
                               "Filter",  "Flatten",      "Im2col", "Parameter", "Reshape",
                               "Silence", "Slice",        "Split",  "Threshold", "Tile"};
constexpr double kForwardTolerance = 1e-5, kGradientTolerance = 1e-4, kSmallest = 0.01;

std::vector<std::filesystem::path> golden_files() {
  std::vector<std::filesystem::path> files =
      files_in(repository_root() / "tests/golden/layers", ".json");
  if (const auto shared = shared_folder()) {
    const std::vector<std::filesystem::path> all = files_in(*shared / "golden/layers", ".json");
    if (!all.empty()) files = all;  // the few are among them
  }
  std::ranges::copy(files_in(repository_root() / "tests/golden/forks", ".json"),
                    std::back_inserter(files));
  return files;
}

class GoldenLayers : public testing::TestWithParam<std::tuple<std::filesystem::path, TestDevice>> {
 protected:
  void SetUp() override {
    const auto& [file, device] = GetParam();
    golden_ = read_golden_layer(file);
    const std::vector<std::string> types = layer_types();
    if (std::ranges::find(types, golden_.type) == types.end())
      GTEST_SKIP() << "no layer of type " << golden_.type << " is built";
    LayerParameter param = parse_layer(golden_.layer);
    param.set_phase(golden_.phase == "TEST" ? TEST : TRAIN);
    std::vector<Shape> shapes;
    for (const ShapedNumbers& bottom : golden_.bottoms) shapes.push_back(bottom.shape);
    rig_ = std::make_unique<LayerRig>(param, shapes, 1, 1, device.get());
    for (std::size_t i = 0; i < golden_.bottoms.size(); ++i)
      rig_->input(static_cast<int>(i)) = golden_.bottoms[i].data;
    ASSERT_EQ(rig_->params(), static_cast<int>(golden_.params.size()));
    for (std::size_t i = 0; i < golden_.params.size(); ++i) {
      ASSERT_EQ(rig_->param(static_cast<int>(i)).shape(), golden_.params[i].shape) << "param " << i;
      rig_->param_value(static_cast<int>(i)) = golden_.params[i].data;
    }
    rig_->load_params();
    for (int i = 0; i < golden_.forwards; ++i) rig_->forward();
  }

  void expect_near(const Numbers& got, const Numbers& want, double tolerance,
                   const std::string& what) const {
    ASSERT_EQ(got.size(), want.size()) << what;
    const bool exact = std::ranges::find(kExact, golden_.type) != kExact.end();
    EXPECT_LE(relative_error(got, want, kSmallest), exact ? 0 : tolerance) << what;
  }

  // Tops, loss, params that forward changes.
  void expect_forward() {
    ASSERT_EQ(rig_->tops(), static_cast<int>(golden_.tops.size()));
    for (std::size_t i = 0; i < golden_.tops.size(); ++i) {
      const Blob& top = rig_->top(static_cast<int>(i));
      EXPECT_EQ(top.data.shape().str(), golden_.tops[i].shape.str()) << "top " << i;
      const bool indices = golden_.type == "Pooling" && i == 1;
      expect_near(values(top.data), golden_.tops[i].data, indices ? 0 : kForwardTolerance,
                  str("top ", i));
    }
    if (golden_.loss)
      expect_near({static_cast<float>(rig_->loss())}, {static_cast<float>(*golden_.loss)},
                  kForwardTolerance, "loss");
    if (!golden_.params_after) return;
    for (std::size_t i = 0; i < golden_.params_after->size(); ++i)
      expect_near(values(rig_->param(static_cast<int>(i)).data), (*golden_.params_after)[i].data,
                  kForwardTolerance, str("param ", i, " after"));
  }

  // The gradients to ask of backward: nothing that Caffe refuses or ignores, nor what is nought by
  // definition, which the net writes.
  std::vector<bool> gradients_to_ask() {
    std::vector<bool> propagate;
    for (const std::optional<Numbers>& diff : golden_.bottom_diffs) {
      const int i = static_cast<int>(propagate.size());
      const bool ours = rig_->layer().propagates(i) == Propagates::kYes;
      EXPECT_TRUE(ours || !diff || *diff == Numbers(diff->size(), 0.0f))
          << "Caffe has a gradient for bottom " << i;
      propagate.push_back(ours && diff);
    }
    return propagate;
  }

  // Goes backward from the tops' gradients that Caffe was given.
  void expect_backward() {
    const std::vector<bool> propagate = gradients_to_ask();
    rig_->clear_param_grads();
    rig_->backward(golden_.top_diffs, propagate);
    for (std::size_t i = 0; i < propagate.size(); ++i) {
      if (!propagate[i]) continue;
      const Numbers got = values(rig_->bottom(static_cast<int>(i)).grad),
                    want = *golden_.bottom_diffs[i];
      if (golden_.name != "multinomial_floor") {
        expect_near(got, want, kGradientTolerance, str("gradient of bottom ", i));
        continue;
      }
      for (std::size_t k = 0; k < want.size(); ++k)  // one of 3e19 among ordinary ones
        EXPECT_LE(std::fabs(got[k] - want[k]), kGradientTolerance * std::fabs(want[k]))
            << "gradient of bottom " << i << "[" << k << "]";
    }
    for (std::size_t i = 0; i < golden_.param_diffs.size(); ++i)
      expect_near(values(rig_->param(static_cast<int>(i)).grad), golden_.param_diffs[i],
                  kGradientTolerance, str("gradient of param ", i));
  }

  GoldenLayer golden_;
  std::unique_ptr<LayerRig> rig_;
};

TEST_P(GoldenLayers, AgreeWithCaffe) {
  expect_forward();
  if (golden_.backward) expect_backward();
}

std::string name_of(const testing::TestParamInfo<GoldenLayers::ParamType>& info) {
  return name_on(std::get<0>(info.param).stem().string(), std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Caffe, GoldenLayers,
                         testing::Combine(testing::ValuesIn(golden_files()),
                                          testing::ValuesIn(test_devices())),
                         name_of);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GoldenLayers);

TEST(GoldenLayersFolder, IsThere) {
  EXPECT_GE(files_in(repository_root() / "tests/golden/layers", ".json").size(), 12u);
  const auto shared = shared_folder();
  if (!shared)
    GTEST_SKIP() << "no shared folder: only the kept cases ran (set SHOAL_SHARED to run all)";
  EXPECT_FALSE(files_in(*shared / "golden/layers", ".json").empty()) << *shared;
}

}  // namespace
}  // namespace shoal::test::golden_layers_test
