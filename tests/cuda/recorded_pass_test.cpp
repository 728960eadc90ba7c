// Tests of RecordedPass: each layer's replays beside its calls, changes between passes, and steps
// that cannot be recorded.
#include "shoal/net/recorded_pass.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "cuda/devices.h"
#include "cuda/fake_cuda.h"
#include "shoal/ops/vector.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "support/layer_cases.h"
#include "support/layer_rig.h"
#include "support/solver_rig.h"

namespace shoal::test::cuda_recorded_pass_test {
namespace {

// Steps that are functions.
class Steps final : public Pass {
 public:
  struct Step {
    std::function<void()> work;
    bool replays = true;
    int calls = 0;
  };
  explicit Steps(std::vector<Step> all) : all_(std::move(all)) {}
  int steps() const override { return static_cast<int>(all_.size()); }
  std::string name(int step) const override { return str("step ", step); }
  bool replays(int step) const override { return at(step).replays; }
  void stamp(int, std::vector<std::uintptr_t>& to) const override { to.push_back(stamped); }
  bool together(int first, int last) const override { return last - first < most_together; }
  Status begin(int) override { return {}; }
  Status end(int, int) override { return {}; }
  Status work(int step) override {
    Step& one = all_[static_cast<std::size_t>(step)];
    ++one.calls;
    one.work();
    return {};
  }
  const Step& at(int step) const { return all_[static_cast<std::size_t>(step)]; }

  std::uintptr_t stamped = 0;
  int most_together = 100;

 private:
  std::vector<Step> all_;
};

void or_fail(const Status& status) { EXPECT_TRUE(status.ok()) << status.error().message; }

// ---- every layer ----

class CudaReplays : public testing::TestWithParam<std::tuple<LayerCase, const Device*>> {};

struct Results {
  std::vector<Numbers> tops, bottom_grads, param_grads;
};

// The results of a pass on the numbers of `seed`, by a layer that was made and called, or recorded,
// on those of others.
Results results_of(const LayerCase& c, const Device* device, bool recorded, std::uint64_t seed) {
  const std::unique_ptr<LayerRig> rig = make_rig(c, {.seed = 5, .device = device});
  const std::unique_ptr<LayerRig> drawn = make_rig(c, {.seed = seed});
  std::vector<bool> propagate;
  for (const BottomSpec& spec : c.bottoms) propagate.push_back(spec.gradient);
  Context& ctx = rig->context();
  Tensor other(Shape{4});  // so that a stretch is of two steps
  const auto idle = [&] { ops::fill(ctx, 1, other); };
  const Layer::Replays replays = rig->layer().replays();
  Steps forward(
      {{[&] { rig->layer().forward(ctx, rig->bottom_blobs(), rig->top_blobs()); }, replays.forward},
       {idle}}),
      backward(
          {{[&] { rig->layer().backward(ctx, rig->top_blobs(), propagate, rig->bottom_blobs()); },
            replays.backward},
           {idle}});
  RecordedPass there(forward, ctx), back(backward, ctx);
  rig->load_params();
  Results results;
  for (int pass = 0; pass < 5; ++pass) {
    if (pass == 4)
      for (int i = 0; i < rig->bottoms(); ++i) rig->input(i) = drawn->input(i);
    for (int i = 0; i < rig->bottoms(); ++i) put(rig->input(i), rig->bottom(i).data);
    rig->size_tops();
    or_fail(there.run(recorded));
    results.tops = rig->top_values();
    const std::vector<Numbers> grads =
        draw_top_grads(c, *rig, pass == 4 ? seed : static_cast<std::uint64_t>(pass + 1));
    for (int i = 0; i < rig->tops(); ++i) put(grads[static_cast<std::size_t>(i)], rig->top(i).grad);
    rig->clear_param_grads();
    or_fail(back.run(recorded));
    EXPECT_FALSE(ctx.take_failure());
  }
  results.bottom_grads = rig->bottom_grads();
  for (std::size_t i = 0; i < propagate.size(); ++i)
    if (!propagate[i]) results.bottom_grads[i].clear();
  results.param_grads = rig->param_grads();
  return results;
}

TEST_P(CudaReplays, AreTheLayersOwnWork) {
  const auto& [c, device] = GetParam();
  const Results want = results_of(c, device, false, 9), got = results_of(c, device, true, 9);
  EXPECT_EQ(got.tops, want.tops);
  EXPECT_EQ(got.bottom_grads, want.bottom_grads);
  EXPECT_EQ(got.param_grads, want.param_grads);
}

std::vector<LayerCase> cases() {
  const std::span<const LayerCase> all = every_layer_case();
  return {all.begin(), all.end()};
}
std::string name_of(const testing::TestParamInfo<CudaReplays::ParamType>& info) {
  const auto& [c, device] = info.param;
  return str(c.name, "_", info.index, "_on_", cuda_device_name({device, info.index}));
}
INSTANTIATE_TEST_SUITE_P(Layers, CudaReplays,
                         testing::Combine(testing::ValuesIn(cases()),
                                          testing::ValuesIn(cuda_devices())),
                         name_of);

// ---- passes ----

class CudaRecordedPass : public testing::TestWithParam<const Device*> {
 protected:
  // Returns steps that compute y = 2 x, then z = y + x.
  std::vector<Steps::Step> two_steps() {
    return {{[this] { ops::add(ctx_, x_, x_, y_); }}, {[this] { ops::add(ctx_, y_, x_, z_); }}};
  }
  // Runs the pass with x = i and expects z = 3 i.
  void expect_right(RecordedPass& pass, int passes, float factor = 3) {
    for (int i = 1; i <= passes; ++i) {
      std::ranges::fill(x_.host_out(), static_cast<float>(i));
      or_fail(pass.run(true));
      EXPECT_EQ(z_.host()[1], factor * static_cast<float>(i));
    }
  }
  const Device& device_ = *GetParam();
  Context ctx_{{.device = &device_}};
  Tensor x_{Shape{5}}, y_{Shape{5}}, z_{Shape{5}};
};

INSTANTIATE_TEST_SUITE_P(Devices, CudaRecordedPass, testing::ValuesIn(cuda_devices()),
                         cuda_device_name);

TEST_P(CudaRecordedPass, CallsNothingOnceItIsRecorded) {
  Steps steps(two_steps());
  RecordedPass pass(steps, ctx_);
  expect_right(pass, 4);
  EXPECT_EQ(steps.at(0).calls, 4);
  expect_right(pass, 5);
  EXPECT_EQ(steps.at(0).calls, 4);
  EXPECT_EQ(pass.summary().layers, 2);
}

TEST_P(CudaRecordedPass, CallsAgainWhenSomethingIsElsewhere) {
  Steps steps(two_steps());
  RecordedPass pass(steps, ctx_);
  expect_right(pass, 5);
  y_.storage()->bind(device_.allocate(64), 0);
  expect_right(pass, 1);
  EXPECT_EQ(steps.at(0).calls, 5);
  expect_right(pass, 8);
  EXPECT_EQ(steps.at(0).calls, 5 + 7) << "recordings come later the second time";
  ctx_.scratch(1 << 20);
  expect_right(pass, 1);
  EXPECT_EQ(steps.at(0).calls, 12 + 1);
  expect_right(pass, 20);
  const int calls = steps.at(0).calls;
  steps.stamped = 1;
  expect_right(pass, 1);
  EXPECT_EQ(steps.at(0).calls, calls + 1);
}

TEST_P(CudaRecordedPass, NotesNoUsesAfterAStepThrows) {
  for (const int last : {2, 4}) {  // called, recorded
    std::vector<Steps::Step> all = two_steps();
    int calls = 0;
    all.push_back({[&] {
      ops::scale(ctx_, 1, z_);
      if (++calls == last) throw std::bad_alloc();
    }});
    Steps steps(std::move(all));
    RecordedPass pass(steps, ctx_);
    expect_right(pass, last - 1);
    EXPECT_THROW((void)pass.run(true), std::bad_alloc);
    EXPECT_EQ(ctx_.uses(), nullptr) << "at call " << last;
  }
}

TEST_P(CudaRecordedPass, EndsAStretchWhereStepsMustNotComeTogether) {
  std::vector<Steps::Step> all = two_steps();
  for (int i = 0; i < 3; ++i) all.push_back({[this] { ops::scale(ctx_, 2, z_); }});
  Steps steps(all);
  steps.most_together = 2;
  RecordedPass pass(steps, ctx_);
  expect_right(pass, 8, 24);
  EXPECT_EQ(pass.summary().stretches, 2);
  EXPECT_EQ(pass.summary().layers, 4);
  EXPECT_EQ(steps.at(3).calls, 4);
  EXPECT_EQ(steps.at(4).calls, 8);
}

TEST_P(CudaRecordedPass, LeavesOutStepsThatTheHostTakesPartIn) {
  std::vector<Steps::Step> all = two_steps();
  all.push_back({[this] { (void)z_.host(); }});
  all.push_back({[this] { ctx_.random().skip(1); }});
  all.push_back({[this] { ops::fill(ctx_, 1, y_); }, false});
  all.push_back({[this] {
    Tensor own(Shape{7});
    ops::fill(ctx_, 1, own);
  }});
  all.push_back({[this] { ops::fill(ctx_, 1, y_); }});
  Steps steps(std::move(all));
  RecordedPass pass(steps, ctx_);
  expect_right(pass, 8);
  const RecordedWork work = pass.summary();
  EXPECT_EQ(work.stretches, 1);
  EXPECT_EQ(work.layers, 2);
  std::vector<std::string> why;
  for (const auto& [step, reason] : work.others) why.push_back(reason);
  EXPECT_EQ(why, (std::vector<std::string>{"it waits for the device", "it draws random numbers",
                                           "its work depends on more than numbers on the device",
                                           "it uses other memory in each pass",
                                           "alone it is no faster"}));
}

// A step that behaves in the passes that are looked at, and not in the one that is recorded.
TEST_P(CudaRecordedPass, IsRightWhereAStepIsRefused) {
  std::shared_ptr<Memory> kept = device_.allocate(10);
  float number = 0;
  Tensor late(Shape{3}), small(Shape{3});
  (void)late.read(ctx_);
  const std::vector<std::pair<std::function<void()>, std::string>> misdeeds = {
      {[&] { ctx_.stream()->synchronize(); }, "it waits for the device"},
      {[&] { (void)y_.host(); }, "a tensor is converted"},
      {[&] { late.host_out()[0] = 1, (void)late.read(ctx_); }, "a tensor is converted"},
      {[&] { (void)Tensor(Shape{3}).write(ctx_); }, "it takes memory of the device"},
      {[&] { ctx_.scratch(1 << 24); }, "it waits for the device"},
      {[&] { ctx_.random().skip(3); }, "it draws random numbers"},
      {[&] { ctx_.stream()->upload(kept->data(), reinterpret_cast<const std::byte*>(&number), 4); },
       "it copies from the host"},
  };
  for (const auto& [misdeed, words] : misdeeds) {
    SCOPED_TRACE(words);
    const LogLines log;
    std::vector<Steps::Step> all = two_steps();
    int call = 0;
    const Random::State coins = ctx_.random().state();
    all.insert(all.begin() + 1, {[&, what = misdeed] {
                 ops::scale(ctx_, 2, y_);
                 if (++call == 4) what();
               }});
    all.push_back({[&] { ops::fill(ctx_, 1, small); }});
    Steps steps(std::move(all));
    RecordedPass pass(steps, ctx_);
    expect_right(pass, 9, 5);
    EXPECT_TRUE(log.has(".*cannot be recorded.*: " + words)) << call;
    EXPECT_EQ(std::ranges::count_if(
                  log.lines,
                  [](const std::string& line) { return is_match(line, ".*cannot be recorded.*"); }),
              1);
    EXPECT_TRUE(ctx_.random().state() == coins);
  }
}

// CUDA would end the recording, and refuse the memory.
TEST_P(CudaRecordedPass, LetsOtherThreadsTakeMemoryAfterwards) {
  ops::fill(ctx_, 2, x_);
  std::atomic<bool> started = false;
  std::thread other;
  const auto recording = ctx_.stream()->record([&] {
    ops::fill(ctx_, 1, x_);
    other = std::thread([&] {
      started = true;
      Context context({.device = &device_});
      Tensor own(Shape{9});
      ops::fill(context, 2, own);
      EXPECT_EQ(own.host()[0], 2);
    });
    while (!started) std::this_thread::yield();
  });
  other.join();
  recording->replay();
  EXPECT_EQ(x_.host()[0], 1);
}

TEST(CudaRecordedPassOnTheFake, FreesMemoryAfterwards) {
  const Context ctx({.device = &fake_gpu()});
  std::shared_ptr<Memory> memory = fake_gpu().allocate(10);
  const FakeCalls before = fake_calls();
  const auto recording = ctx.stream()->record([&] {
    memory.reset();
    EXPECT_EQ((fake_calls() - before).frees, 0);
  });
  EXPECT_EQ((fake_calls() - before).frees, 1);
}

// ---- nets ----

constexpr const char* kNet = R"(
layer { name: 'in' type: 'Input' top: 'x' input_param { shape { dim: 3 dim: 2 dim: 6 dim: 6 } } }
layer { name: 'conv' type: 'Convolution' bottom: 'x' top: 'conv'
        convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: 'xavier' } } }
layer { name: 'relu' type: 'ReLU' bottom: 'conv' top: 'conv' }
layer { name: 'pool' type: 'Pooling' bottom: 'conv' top: 'pool'
        pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: 'ip' type: 'InnerProduct' bottom: 'pool' top: 'ip'
        inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }
layer { name: 'target' type: 'DummyData' top: 'target'
        dummy_data_param { shape { dim: 3 dim: 3 } data_filler { type: 'constant' value: 1 } } }
layer { name: 'crop' type: 'Crop' bottom: 'target' bottom: 'ip' top: 'wanted' crop_param { axis: 0 } }
layer { name: 'loss' type: 'EuclideanLoss' bottom: 'ip' bottom: 'wanted' top: 'loss' }
)";

// Losses and gradients of passes over changing inputs, shapes, scales and params.
Numbers passes_of(const Device* device, bool recordings, FakeCalls& calls) {
  Context ctx({.device = device, .recordings = recordings});
  Net net(parse_net(kNet, "net.prototxt"), ctx), other(parse_net(kNet, "net.prototxt"), ctx);
  for (const NetParam& param : other.params()) param.blob->data.host_mut()[0] += 1;
  Numbers all;
  const FakeCalls before = fake_calls();
  for (int pass = 0; pass < 40; ++pass) {
    if (pass == 10 || pass == 20) {
      net.blob("x")->reshape({pass == 10 ? 2 : 3, 2, 6, 6});
      net.reshape();
    }
    if (pass == 30) net.share_weights(other);
    if (pass == 35)
      for (const auto& layer : net.layers()) layer->scale_gradients(8);
    int at = pass;
    for (float& x : net.blob("x")->data.host_out()) x = static_cast<float>(++at % 7) - 3;
    net.clear_gradients();
    all.push_back(or_throw(net.forward()));
    or_fail(net.backward());
    for (const NetParam& param : net.params())
      all.insert(all.end(), param.blob->grad.host().begin(), param.blob->grad.host().end());
  }
  calls = fake_calls() - before;
  return all;
}

class CudaRecordedNets : public testing::TestWithParam<const Device*> {};
INSTANTIATE_TEST_SUITE_P(Devices, CudaRecordedNets, testing::ValuesIn(cuda_devices()),
                         cuda_device_name);

TEST_P(CudaRecordedNets, FollowShapesScalesAndParams) {
  FakeCalls with, without;
  const Numbers want = passes_of(GetParam(), false, without),
                got = passes_of(GetParam(), true, with);
  EXPECT_EQ(got, want);
  if (GetParam() != &fake_gpu()) return;
  EXPECT_GE(with.recordings, 6) << "anew after each change";
  EXPECT_LT(with.launches, without.launches);
}

// conv has 304 bytes of params, ip 204.
TEST_P(CudaRecordedNets, CallHooksTogetherForFewBytes) {
  const auto stretches_of = [](std::int64_t together) {
    Context ctx({.device = GetParam(), .recordings = true});
    Net net(parse_net(kNet, "net.prototxt"), ctx);
    net.before_forward([](int) { return Status(); }, together);
    const auto is_made = [&](int param) {
      return std::ranges::any_of(net.params()[static_cast<std::size_t>(param)].blob->grad.host(),
                                 [](float x) { return x != 0; });
    };
    bool at_once = false;  // conv's gradient is there when ip's is taken
    const auto take = [&](std::span<const int> layers) {
      for (const int layer : layers) {
        if (net.layers()[static_cast<std::size_t>(layer)]->name() != "ip") continue;
        EXPECT_TRUE(is_made(2));
        at_once = is_made(0);
        EXPECT_TRUE(!at_once || layers.size() > 1);
      }
      return Status();
    };
    net.after_backward(take, together);
    for (int pass = 0; pass < 8; ++pass) {
      std::ranges::fill(net.blob("x")->data.host_out(), 0.5f);
      net.clear_gradients();
      (void)or_throw(net.forward());
      or_fail(net.backward());
    }
    return str(net.recorded_forward().stretches, " ", net.recorded_backward().stretches,
               at_once ? " at once" : "");
  };
  EXPECT_EQ(stretches_of(0), "0 0");
  EXPECT_EQ(stretches_of(400), "2 1");
  EXPECT_EQ(stretches_of(508), "2 1 at once");
}

}  // namespace
}  // namespace shoal::test::cuda_recorded_pass_test
