// Tests of what holds for every layer, on every case of tests/support/layer_cases.cpp. Another
// seed:
// --gtest_random_seed=N.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostream>
#include <set>

#include "shoal/layers/layer.h"
#include "shoal/proto/layers.pb.h"
#include "support/devices.h"
#include "support/gradient_check.h"
#include "support/layer_cases.h"
#include "support/layer_rig.h"

namespace shoal::test {

namespace layer_conformance_test {

struct DeviceCase {
  LayerCase c;
  TestDevice device;
};
void PrintTo(const DeviceCase& on, std::ostream* out) { *out << name_on(on.c.name, on.device); }

namespace {

std::uint64_t seed() { return static_cast<std::uint64_t>(GTEST_FLAG_GET(random_seed)) + 1; }

using AllNumbers = std::vector<Numbers>;

void expect_close(const AllNumbers& got, const AllNumbers& want, double tolerance,
                  const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].size(), want[i].size()) << what << " " << i;
    EXPECT_LE(relative_error(got[i], want[i]), tolerance) << what << " " << i;
  }
}

// The results of one pass: tops, gradients of the bottoms asked for (empty otherwise), gradients of
// the params.
struct Pass {
  AllNumbers tops, bottom_grads, param_grads;
};

std::vector<bool> wanted(const LayerCase& c) {
  std::vector<bool> propagate;
  for (const BottomSpec& spec : c.bottoms) propagate.push_back(spec.gradient);
  return propagate;
}

void run_backward(LayerRig& rig, const AllNumbers& top_grads, const std::vector<bool>& propagate,
                  Pass& pass) {
  rig.clear_param_grads();
  rig.backward(top_grads, propagate);
  pass.bottom_grads = rig.bottom_grads();
  for (std::size_t i = 0; i < propagate.size(); ++i)
    if (!propagate[i]) pass.bottom_grads[i].clear();
  pass.param_grads = rig.param_grads();
}

Pass run(const LayerCase& c, LayerRig& rig) {
  Pass pass;
  rig.load_params();
  rig.forward();
  pass.tops = rig.top_values();
  run_backward(rig, draw_top_grads(c, rig, seed()), wanted(c), pass);
  return pass;
}

void expect_same(const Pass& got, const Pass& want, double tolerance) {
  expect_close(got.tops, want.tops, tolerance, "top");
  expect_close(got.bottom_grads, want.bottom_grads, tolerance, "gradient of bottom");
  expect_close(got.param_grads, want.param_grads, tolerance, "gradient of param");
}

std::vector<Shape> top_shapes(LayerRig& rig) {
  std::vector<Shape> shapes;
  for (int i = 0; i < rig.tops(); ++i) shapes.push_back(rig.top(i).data.shape());
  return shapes;
}

class LayerConformance : public testing::TestWithParam<DeviceCase> {
 protected:
  const LayerCase& c() const { return GetParam().c; }
  const Device* device() const { return GetParam().device.get(); }
  std::unique_ptr<LayerRig> rig(RigOptions options = {}) const {
    options.seed = seed();
    options.device = device();
    return make_rig(c(), options);
  }
  bool has_gradients() const { return std::ranges::count(wanted(c()), true) + rig()->params() > 0; }
};

TEST_P(LayerConformance, DevicesAgree) {
  const auto here = rig(), cpu = make_rig(c(), {.seed = seed()});
  expect_same(run(c(), *here), run(c(), *cpu), 1e-5);
}

TEST_P(LayerConformance, TakesWhatItsArityAndPropagationSay) {
  const auto rig = this->rig();
  const Arity arity = rig->layer().arity();
  EXPECT_GE(rig->bottoms(), arity.min_bottoms);
  EXPECT_LE(rig->bottoms(), arity.max_bottoms);
  EXPECT_GE(rig->tops(), arity.min_tops);
  EXPECT_LE(rig->tops(), arity.max_tops);
  if (arity.paired) {
    EXPECT_EQ(rig->tops(), rig->bottoms());
  }
  for (int i = 0; i < rig->bottoms(); ++i)
    EXPECT_EQ(rig->layer().propagates(i) == Propagates::kYes,
              c().bottoms[static_cast<std::size_t>(i)].gradient)
        << "bottom " << i;
}

TEST_P(LayerConformance, ForwardIsDeterministicAndOverwrites) {
  const auto first = rig(), second = rig();
  first->forward();
  const AllNumbers once = first->top_values();
  for (int i = 0; i < first->tops(); ++i)
    EXPECT_FALSE(any_nan(first->top(i).data)) << "part of top " << i << " was left unwritten";
  first->load_params();
  first->forward();
  EXPECT_EQ(first->top_values(), once) << "a second forward of the same layer";
  second->forward();
  EXPECT_EQ(second->top_values(), once) << "another layer made from the same seed";
}

TEST_P(LayerConformance, ShapesFollowTheBottoms) {
  const auto small = rig();
  const std::vector<Shape> at_first = top_shapes(*small);
  const Pass before = run(c(), *small);
  if (!small->layer().sizes_tops()) {
    EXPECT_EQ(top_shapes(*small), at_first) << "forward changed the shapes";
  }
  const std::vector<Numbers> inputs = [&] {
    std::vector<Numbers> all;
    for (int i = 0; i < small->bottoms(); ++i) all.push_back(small->input(i));
    return all;
  }();
  if (!c().fixed_batch) {
    const auto large = rig({.batch = 3});
    small->reshape(bottom_shapes(c(), 3));
    EXPECT_EQ(top_shapes(*small), top_shapes(*large))
        << "reshaped to three times the batch, and made so";
    for (int i = 0; i < small->bottoms(); ++i) small->input(i) = large->input(i);
    expect_same(run(c(), *small), run(c(), *large), 0);
  }
  small->reshape(bottom_shapes(c()));
  EXPECT_EQ(top_shapes(*small), at_first) << "reshaped back";
  for (int i = 0; i < small->bottoms(); ++i) small->input(i) = inputs[static_cast<std::size_t>(i)];
  expect_same(run(c(), *small), before, 0);
}

// A layer without items, as behind a Filter that selects nothing, gets shapes, and is not called.
TEST_P(LayerConformance, ShapesFollowNoItems) {
  if (c().fixed_batch || c().bottoms.empty()) return;
  const auto rig = this->rig();
  const std::vector<Shape> at_first = top_shapes(*rig);
  const Pass before = run(c(), *rig);
  AllNumbers inputs;
  for (int i = 0; i < rig->bottoms(); ++i) inputs.push_back(rig->input(i));
  rig->reshape(bottom_shapes(c(), 0));
  rig->reshape(bottom_shapes(c()));
  EXPECT_EQ(top_shapes(*rig), at_first);
  for (int i = 0; i < rig->bottoms(); ++i) rig->input(i) = inputs[static_cast<std::size_t>(i)];
  expect_same(run(c(), *rig), before, 0);
}

TEST_P(LayerConformance, ThreadsDoNotMatter) {
  const int batch = c().fixed_batch ? 1 : 128;  // enough for the loops to be shared out
  const auto one = rig({.batch = batch}), two = rig({.threads = 2, .batch = batch});
  expect_same(run(c(), *two), run(c(), *one), 1e-5);
}

TEST_P(LayerConformance, GradientIsTheSlope) {
  if (!has_gradients() || c().jumps) return;
  const GradientReport report = check_gradient(c(), seed(), device());
  EXPECT_LT(report.worst, c().tolerance) << "seed " << seed() << ": " << report.where;
  EXPECT_TRUE(report.compared > 0 || !c().learns);
}

TEST_P(LayerConformance, BackwardOverwritesBottomsAndAddsToParams) {
  if (!has_gradients()) return;
  const auto rig = this->rig();
  const Pass once = run(c(), *rig);
  for (std::size_t i = 0; i < once.bottom_grads.size(); ++i)
    EXPECT_FALSE(std::ranges::any_of(once.bottom_grads[i], [](float x) { return std::isnan(x); }))
        << "backward left part of the gradient of bottom " << i << " unwritten";
  rig->backward(draw_top_grads(c(), *rig, seed()), wanted(c()));
  AllNumbers doubled = once.param_grads;
  for (Numbers& numbers : doubled)
    for (float& x : numbers) x *= 2;
  expect_close(rig->param_grads(), doubled, 1e-5, "after a second backward, gradient of param");
  for (const Numbers& numbers : doubled)
    EXPECT_TRUE(c().learns || numbers == Numbers(numbers.size(), 0.0f));
}

TEST_P(LayerConformance, BackwardTouchesOnlyWhatIsAsked) {
  if (!has_gradients()) return;
  const auto rig = this->rig();
  const Pass whole = run(c(), *rig);
  for (int asked = -1; asked < rig->bottoms(); ++asked) {
    if (asked >= 0 && !wanted(c())[static_cast<std::size_t>(asked)]) continue;
    std::vector<bool> propagate(c().bottoms.size());
    if (asked >= 0) propagate[static_cast<std::size_t>(asked)] = true;
    Pass pass;
    run_backward(*rig, draw_top_grads(c(), *rig, seed()), propagate, pass);
    expect_close(pass.param_grads, whole.param_grads, 1e-5, "gradient of param");
    for (int i = 0; i < rig->bottoms(); ++i) {
      Blob& bottom = rig->bottom(i);
      bool shared = false;  // a top's gradient is this one by arrangement
      for (int t = 0; t < rig->tops(); ++t)
        shared = shared || rig->top(t).grad.shares_with(bottom.grad);
      const std::size_t b = static_cast<std::size_t>(i);
      if (i == asked) {
        EXPECT_LE(relative_error(pass.bottom_grads[b], whole.bottom_grads[b]), 1e-6)
            << "bottom " << i << " alone";
      } else {
        EXPECT_TRUE(shared || is_poison(bottom.grad))
            << "bottom " << i << " was written, asked was " << asked;
      }
    }
  }
}

TEST_P(LayerConformance, InPlaceIsTheSame) {
  if (!rig()->layer().can_be_in_place()) return;
  const auto apart = rig(), in_place = rig({.in_place = true});
  ASSERT_TRUE(in_place->in_place());
  for (int i = 0; i < apart->params(); ++i)
    ASSERT_EQ(in_place->param_value(i), apart->param_value(i));
  expect_same(run(c(), *in_place), run(c(), *apart), 1e-6);
}

// Poisons the data that reads() calls unneeded, as a memory plan would.
void forget_unread(LayerRig& rig) {
  const Layer::Reads reads = rig.layer().reads();
  const auto needed = [&](const Tensor& tensor) {
    bool found = false;
    for (int i = 0; reads.bottom_data && i < rig.bottoms(); ++i)
      found = found || rig.bottom(i).data.shares_with(tensor);
    for (int i = 0; reads.top_data && i < rig.tops(); ++i)
      found = found || rig.top(i).data.shares_with(tensor);
    return found;
  };
  for (int i = 0; i < rig.bottoms(); ++i)
    if (!needed(rig.bottom(i).data)) poison(rig.bottom(i).data);
  for (int i = 0; i < rig.tops(); ++i)
    if (!needed(rig.top(i).data)) poison(rig.top(i).data);
}

TEST_P(LayerConformance, BackwardReadsOnlyWhatItSays) {
  if (!has_gradients()) return;
  for (const bool in_place : {false, true}) {
    if (in_place && !rig()->layer().can_be_in_place()) continue;
    const auto rig = this->rig({.in_place = in_place});
    const Pass all_there = run(c(), *rig);
    rig->load_params();
    rig->forward();
    forget_unread(*rig);
    Pass pass;
    run_backward(*rig, draw_top_grads(c(), *rig, seed()), wanted(c()), pass);
    expect_close(pass.bottom_grads, all_there.bottom_grads, 0, "gradient of bottom");
    expect_close(pass.param_grads, all_there.param_grads, 0, "gradient of param");
  }
}

TEST_P(LayerConformance, MissingGradientsCountAsZeros) {
  if (!rig()->layer().skips_missing_gradients()) return;
  for (int missing = 0; missing < c().tops; ++missing) {
    const auto zeros = rig(), skipping = rig();
    AllNumbers top_grads = draw_top_grads(c(), *zeros, seed());
    Numbers& gone = top_grads[static_cast<std::size_t>(missing)];
    std::ranges::fill(gone, 0.0f);
    Pass want, got;
    zeros->forward();
    run_backward(*zeros, top_grads, wanted(c()), want);
    std::ranges::fill(gone, std::numeric_limits<float>::quiet_NaN());
    std::vector<bool> mask(static_cast<std::size_t>(c().tops));
    mask[static_cast<std::size_t>(missing)] = true;
    skipping->layer().set_missing_gradients(mask);
    skipping->forward();
    run_backward(*skipping, top_grads, wanted(c()), got);
    expect_close(got.bottom_grads, want.bottom_grads, 0, "gradient of bottom");
  }
}

TEST_P(LayerConformance, ParamsTravelInBlobs) {
  const auto first = rig();
  if (first->params() == 0) return;
  LayerParameter param = layer_of(c());
  for (int i = 0; i < first->params(); ++i) {
    BlobProto& blob = *param.add_blobs();
    for (const std::int64_t dim : first->param(i).shape().dims())
      blob.mutable_shape()->add_dim(dim);
    if (first->param(i).shape().axes() == 0) blob.mutable_shape();
    for (const float x : first->param_value(i)) blob.add_data(x);
  }
  LayerRig second(param, bottom_shapes(c()), 1, seed() + 1, device());
  ASSERT_EQ(second.params(), first->params());
  for (int i = 0; i < second.params(); ++i) {
    EXPECT_EQ(second.param_value(i), first->param_value(i)) << "param " << i;
    EXPECT_EQ(second.param(i).grad.shape(), second.param(i).data.shape()) << "param " << i;
  }
}

// A name that stands in the list twice, which NamesAreUnique complains of, must not keep the other
// cases from running.
std::string unique_name(const LayerCase& c, std::size_t index) {
  const auto first =
      std::ranges::find(every_layer_case(), c.name, &LayerCase::name) - every_layer_case().begin();
  return static_cast<std::size_t>(first) == index ? c.name : str(c.name, "_again_", index);
}

std::vector<DeviceCase> every_case() {
  std::vector<DeviceCase> all;
  for (const TestDevice& device : test_devices())
    for (const LayerCase& c : every_layer_case()) all.push_back({c, device});
  return all;
}
std::string name_of(const testing::TestParamInfo<DeviceCase>& info) {
  return name_on(unique_name(info.param.c, info.index), info.param.device);
}

INSTANTIATE_TEST_SUITE_P(Layers, LayerConformance, testing::ValuesIn(every_case()), name_of);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LayerConformance);

TEST(LayerCases, EveryLayerTypeHasOne) {
  std::set<std::string> tried, known;
  for (const std::string& type : layer_types()) known.insert(type);
  for (const LayerCase& c : every_layer_case()) tried.insert(c.type);
  for (const Exempt& exempt : exempt_layers())
    EXPECT_FALSE(tried.contains(exempt.type)) << exempt.type << " is exempt and has a case";
  for (const Exempt& exempt : exempt_layers()) tried.insert(exempt.type);
  for (const std::string& type : known)
    EXPECT_TRUE(tried.contains(type)) << type << " has no case in tests/support/layer_cases.cpp";
}

TEST(LayerCases, NamesAreUnique) {
  std::set<std::string> names;
  for (const LayerCase& c : every_layer_case())
    EXPECT_TRUE(names.insert(c.name).second) << c.name << " twice";
}

}  // namespace
}  // namespace layer_conformance_test
}  // namespace shoal::test
