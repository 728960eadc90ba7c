// Tests of recorded passes: training with recordings beside training without, to the bit, and on
// the fake GPU what an iteration launches.
#include <gtest/gtest.h>

#include "cuda/devices.h"
#include "cuda/fake_cuda.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/solver/solver.h"
#include "support/device_training.h"
#include "support/job.h"
#include "support/solver_rig.h"

namespace shoal::test::cuda_recording_test {
namespace {

constexpr const char* kLeNet = R"(
layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv'
        convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: 'xavier' } } }
layer { name: 'pool' type: 'Pooling' bottom: 'conv' top: 'pool'
        pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: 'norm' type: 'LRN' bottom: 'pool' top: 'norm' lrn_param { local_size: 3 } }
layer { name: 'ip1' type: 'InnerProduct' bottom: 'norm' top: 'ip1'
        inner_product_param { num_output: 12 weight_filler { type: 'xavier' } } }
layer { name: 'relu' type: 'ReLU' bottom: 'ip1' top: 'ip1' }
layer { name: 'drop' type: 'Dropout' bottom: 'ip1' top: 'ip1' }
layer { name: 'ip2' type: 'InnerProduct' bottom: 'ip1' top: 'ip2'
        inner_product_param { num_output: 10 weight_filler { type: 'xavier' } } }
layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip2' bottom: 'label' top: 'loss' }
layer { name: 'accuracy' type: 'Accuracy' bottom: 'ip2' bottom: 'label' top: 'accuracy'
        include { phase: TEST } }
)";

constexpr const char* kResidual = R"(
layer { name: 'conv1' type: 'Convolution' bottom: 'data' top: 'conv1'
        convolution_param { num_output: 4 kernel_size: 3 pad: 1 weight_filler { type: 'xavier' } } }
layer { name: 'bn1' type: 'BatchNorm' bottom: 'conv1' top: 'bn1' }
layer { name: 'scale1' type: 'Scale' bottom: 'bn1' top: 'bn1' scale_param { bias_term: true } }
layer { name: 'relu1' type: 'ReLU' bottom: 'bn1' top: 'bn1' }
layer { name: 'conv2' type: 'Convolution' bottom: 'bn1' top: 'conv2'
        convolution_param { num_output: 4 kernel_size: 3 pad: 1 weight_filler { type: 'xavier' } } }
layer { name: 'bn2' type: 'BatchNorm' bottom: 'conv2' top: 'conv2' }
layer { name: 'sum' type: 'Eltwise' bottom: 'bn1' bottom: 'conv2' top: 'sum' }
layer { name: 'both' type: 'Concat' bottom: 'sum' bottom: 'conv1' top: 'both' }
layer { name: 'pool' type: 'Pooling' bottom: 'both' top: 'pool'
        pooling_param { pool: AVE global_pooling: true } }
layer { name: 'ip' type: 'InnerProduct' bottom: 'pool' top: 'ip'
        inner_product_param { num_output: 10 weight_filler { type: 'xavier' } } }
layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }
)";

// Two layers of one weight.
constexpr const char* kShared = R"(
layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip'
        inner_product_param { num_output: 10 weight_filler { type: 'xavier' } } }
layer { name: 'one' type: 'InnerProduct' bottom: 'ip' top: 'one' param { name: 'w' } param { name: 'b' }
        inner_product_param { num_output: 10 weight_filler { type: 'xavier' } } }
layer { name: 'tanh' type: 'TanH' bottom: 'one' top: 'one' }
layer { name: 'two' type: 'InnerProduct' bottom: 'one' top: 'two' param { name: 'w' } param { name: 'b' }
        inner_product_param { num_output: 10 weight_filler { type: 'xavier' } } }
layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'two' bottom: 'label' top: 'loss' }
)";

// Whose states go from one pass to the next.
constexpr const char* kRecurrent = R"(
layer { name: 'cont' type: 'DummyData' top: 'cont'
        dummy_data_param { shape { dim: 2 dim: 2 } data_filler { value: 1 } } }
layer { name: 'steps' type: 'Reshape' bottom: 'data' top: 'steps'
        reshape_param { shape { dim: 2 dim: 2 dim: -1 } } }
layer { name: 'labels' type: 'Reshape' bottom: 'label' top: 'labels'
        reshape_param { shape { dim: 2 dim: 2 } } }
layer { name: 'lstm' type: 'LSTM' bottom: 'steps' bottom: 'cont' top: 'lstm'
        recurrent_param { num_output: 8 weight_filler { type: 'xavier' } } }
layer { name: 'rnn' type: 'RNN' bottom: 'lstm' bottom: 'cont' top: 'rnn'
        recurrent_param { num_output: 5 weight_filler { type: 'xavier' } } }
layer { name: 'ip' type: 'InnerProduct' bottom: 'rnn' top: 'ip'
        inner_product_param { num_output: 10 axis: 2 weight_filler { type: 'xavier' } } }
layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'labels' top: 'loss'
        softmax_param { axis: 2 } }
)";

SolverParameter solver_of(const char* layers, const std::string& more) {
  SolverParameter param = device_solver("cuda_recording", "max_iter: 12");
  SolverParameter added = parse_solver(more, "more");
  added.clear_snapshot_prefix();
  param.MergeFrom(added);
  NetParameter& net = *param.mutable_net_param();
  const LayerParameter data = net.layer(0);
  const NetParameter rest = parse_net(layers, "recording.prototxt");
  net.clear_layer();
  *net.add_layer() = data;
  net.MergeFrom(rest);
  return param;
}

struct Trained {
  Numbers params;
  FakeCalls calls;                 // of the fake GPU: none on another
  RecordedWork forward, backward;  // at the end
  int stretches = 0;               // recorded: the most after an iteration
};

// `meanwhile` comes before each iteration.
using Meanwhile = std::function<void(Solver&, int iteration)>;
Trained train(SolverParameter param, bool recordings, const Meanwhile& meanwhile = {},
              const Device& device = fake_gpu()) {
  param.set_cuda_graphs(recordings);
  Solver solver(param, {.device = &device});
  const FakeCalls before = fake_calls();
  Trained trained;
  for (int i = 0; i < param.max_iter(); ++i) {
    if (meanwhile) meanwhile(solver, i);
    or_throw(solver.step(1));
    trained.forward = solver.net().recorded_forward();
    trained.backward = solver.net().recorded_backward();
    trained.stretches =
        std::max(trained.stretches, trained.forward.stretches + trained.backward.stretches);
  }
  trained.params = all_params(solver.net());
  trained.calls = fake_calls() - before;
  return trained;
}

// Expects on the fake GPU also that more than `graphs` graphs are launched, in place of other
// launches.
void expect_same_bits(const Device& device, const SolverParameter& param,
                      const Meanwhile& meanwhile = {}, std::int64_t graphs = 8) {
  const Trained want = train(param, false, meanwhile, device),
                got = train(param, true, meanwhile, device);
  EXPECT_EQ(got.params, want.params);
  EXPECT_EQ(want.stretches, 0);
  EXPECT_GT(got.stretches, 0);
  if (&device != &fake_gpu()) return;
  EXPECT_EQ(want.calls.recordings, 0);
  EXPECT_GT(got.calls.graph_launches, graphs);
  EXPECT_LT(got.calls.launches, want.calls.launches);
}

// ---- on the fake GPU and on GPU 0 ----

class CudaRecording : public testing::TestWithParam<std::tuple<const Device*, const char*>> {
 protected:
  ~CudaRecording() override { EXPECT_EQ(live_graphs(), 0); }
  void expect_no_bit_changed(const char* layers) {
    expect_same_bits(*std::get<0>(GetParam()), solver_of(layers, std::get<1>(GetParam())));
  }
};

TEST_P(CudaRecording, ChangesNoBitOfALeNet) { expect_no_bit_changed(kLeNet); }
TEST_P(CudaRecording, ChangesNoBitOfAResidualNet) { expect_no_bit_changed(kResidual); }
TEST_P(CudaRecording, ChangesNoBitOfARecurrentNet) { expect_no_bit_changed(kRecurrent); }
TEST_P(CudaRecording, ChangesNoBitWhereLayersShareParams) { expect_no_bit_changed(kShared); }

// "gpu_7"
std::string name_of(const testing::TestParamInfo<CudaRecording::ParamType>& info) {
  const testing::TestParamInfo<const Device*> device(std::get<0>(info.param), info.index);
  return str(cuda_device_name(device), "_", info.index);
}

// Tests come between iterations 0 and 12, and of the two nets on params of one.
INSTANTIATE_TEST_SUITE_P(
    Solvers, CudaRecording,
    testing::Combine(testing::ValuesIn(cuda_devices()),
                     testing::Values("test_interval: 3", "test_interval: 100 iter_size: 2",
                                     "solver_type: ADAM snapshot_diff: true",
                                     "precision: TF32 on_nan: SKIP", "precision: FLOAT16",
                                     "precision: FLOAT16 global_grad_scale: 16777216",
                                     "deterministic: true precision: BFLOAT16")),
    name_of);

class CudaRecordingOn : public testing::TestWithParam<const Device*> {
 protected:
  ~CudaRecordingOn() override { EXPECT_EQ(live_graphs(), 0); }
  const Device& device() const { return *GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Devices, CudaRecordingOn, testing::ValuesIn(cuda_devices()),
                         cuda_device_name);

// The host looks at activations and gradients, changes params, and takes the running sums back.
TEST_P(CudaRecordingOn, SeesWhatTheHostChanges) {
  const auto meddle = [](Solver& solver, int iteration) {
    Net& net = solver.net();
    if (iteration % 3 == 1) net.params()[0].blob->data.host_mut()[2] += 0.25f;
    if (iteration % 3 == 2)
      for (const std::string& name : net.blob_names())
        if (net.blob(name)->data.count() > 0) (void)net.blob(name)->data.host();
    if (iteration == 7)
      for (const NetParam& param : net.params())
        std::ranges::fill(param.blob->data.host_out(), 0.125f);
  };
  for (const char* layers : {kLeNet, kResidual}) {
    expect_same_bits(device(), solver_of(layers, ""), meddle);
    // Weights that the host changed are no more in the kernels' order.
    expect_same_bits(device(), solver_of(layers, "precision: TF32"), meddle, 0);
  }
}

TEST_P(CudaRecordingOn, SeesMemoryThatIsReplaced) {
  expect_same_bits(
      device(), solver_of(kResidual, ""),
      [](Solver& solver, int iteration) {
        if (iteration == 6) solver.net().context().scratch(1 << 22);
      },
      4);
}

TEST_P(CudaRecordingOn, EndsWhereARestoredRunWithoutItDoes) {
  SolverParameter param = solver_of(kLeNet, "snapshot: 6");
  const auto run = [&](bool recordings, const std::string& snapshot) {
    param.set_cuda_graphs(recordings);
    const Status ended = train_on(&device(), param, nullptr, snapshot);
    EXPECT_TRUE(ended.ok()) << ended.error().message;
    return saved(param, 12);
  };
  const std::string state = param.snapshot_prefix() + "_iter_6.solverstate";
  const std::string want = run(false, "");
  EXPECT_EQ(run(true, ""), want);
  EXPECT_EQ(run(true, state), want);
  EXPECT_EQ(run(false, state), want);
}

TEST_P(CudaRecordingOn, SaysWhichLayersAreCalled) {
  const Trained trained = train(solver_of(kLeNet, "test_interval: 100"), true, {}, device());
  const auto words = [](const RecordedWork& work) {
    std::string all = str(work.stretches, " of ", work.layers);
    for (const auto& [layer, why] : work.others) all += str("; ", layer, ": ", why);
    return all;
  };
  EXPECT_EQ(words(trained.forward),
            "1 of 5; "
            "data: its work depends on more than numbers on the device; "
            "drop: its work depends on more than numbers on the device; "
            "ip2: alone it is no faster; "
            "loss: its work depends on more than numbers on the device");
  EXPECT_EQ(words(trained.backward),
            "1 of 6; "
            "loss: it uses other memory in each pass; "
            "ip2: alone it is no faster; "
            "drop: its work depends on more than numbers on the device");
}

// A hook that must see each layer.
TEST_P(CudaRecordingOn, IsLeftOutWhereLayersAreSeenOneByOne) {
  const SolverParameter param = solver_of(kLeNet, "test_interval: 100");
  SolverParameter debug = param;
  debug.set_debug_info(true);
  const auto hook = [](Solver& solver, int) {
    solver.net().after_forward([](int) { return Status(); });
  };
  for (const Trained& trained :
       {train(param, true, hook, device()), train(debug, true, {}, device())}) {
    EXPECT_EQ(trained.calls.recordings, 0);
    EXPECT_EQ(trained.stretches, 0);
  }
}

struct JobCase {
  const char *name, *solver;
};
class CudaRecordingInAJob : public testing::TestWithParam<std::tuple<const Device*, JobCase>> {};

// Layers' hooks wait, send and sum between the stretches.
TEST_P(CudaRecordingInAJob, ChangesNoBit) {
  const auto& [device, c] = GetParam();
  const auto job = [&](bool recordings) {
    SolverParameter param = device_solver("cuda_recording_job", "max_iter: 9 snapshot: 9");
    SolverParameter own = parse_solver(c.solver, "job case");
    own.clear_snapshot_prefix();
    param.MergeFrom(own);
    param.set_cuda_graphs(recordings);
    const auto life = [&, on = device](int, table::Table& table) {
      return train_on(on, param, &table);
    };
    const FakeCalls before = fake_calls();
    expect_all_ok(run_workers(2, 2, life));
    if (device == &fake_gpu()) {
      EXPECT_EQ((fake_calls() - before).graph_launches > 20, recordings);
    }
    return saved(param, 9);
  };
  EXPECT_EQ(job(true), job(false));
}

std::string job_name(const testing::TestParamInfo<CudaRecordingInAJob::ParamType>& info) {
  const auto& [device, c] = info.param;
  return str(c.name, "_on_", cuda_device_name({device, info.index}));
}
INSTANTIATE_TEST_SUITE_P(
    Exchanges, CudaRecordingInAJob,
    testing::Combine(
        testing::ValuesIn(cuda_devices()),
        testing::Values(JobCase{"table", "exchange { way: TABLE }"},
                        JobCase{"table_early", "exchange { way: TABLE } clip_gradients: -1"},
                        JobCase{"ring", "exchange { way: RING }"},
                        JobCase{"factors", "exchange { way: FACTORS } iter_size: 2"},
                        JobCase{"local_steps", "scheme { type: 'local_steps' }"},
                        JobCase{"half", "exchange { way: TABLE } precision: FLOAT16"})),
    job_name);

// ---- on the fake GPU alone ----

class CudaRecordings : public testing::Test {
 protected:
  CudaRecordings() : log_(std::make_unique<LogLines>()) {}
  ~CudaRecordings() override {
    reset_fakes();
    EXPECT_EQ(live_graphs(), 0);
  }
  std::unique_ptr<LogLines> log_;
};

// The loss, then the gradients of each stretch of layers, which leave together, are waited for.
TEST_F(CudaRecordings, JobsWaitOnceForAStretch) {
  const auto calls_of = [](const char* words, int iterations, bool recordings) {
    SolverParameter param =
        device_solver("cuda_recording_job", str("exchange { way: TABLE } ", words));
    param.set_max_iter(iterations);
    param.set_test_interval(1000);
    param.set_display(0);
    param.set_cuda_graphs(recordings);
    const FakeCalls before = fake_calls();
    expect_all_ok(run_workers(2, 2, [&](int worker, table::Table& table) {
      return train_on(&fake_gpu(worker), param, &table);
    }));
    return fake_calls() - before;
  };
  for (const char* words : {"", "precision: TF32"})
    for (const bool recordings : {false, true}) {
      SCOPED_TRACE(str(words, " recordings: ", recordings));
      const FakeCalls calls = calls_of(words, 20, recordings) - calls_of(words, 12, recordings);
      constexpr std::int64_t kSteps = 2 * 8;
      // In TF32 numbers are turned between layers, which ends a recording.
      EXPECT_EQ(calls.waits, kSteps * (recordings && *words == 0 ? 2 : 3));
    }
}

// Counts launches of an iteration, once training is under way.
TEST_F(CudaRecordings, TakeFewerLaunches) {
  struct Case {
    const char *layers, *more;
    std::int64_t without, launches, graphs;
  };
  for (const Case& c : {Case{kLeNet, "", 30, 15, 2}, Case{kResidual, "", 40, 8, 2},
                        Case{kLeNet, "precision: TF32", 33, 21, 3},
                        Case{kResidual, "precision: FLOAT16", 49, 9, 2}}) {
    FakeCalls before;
    FakeCalls of[2];
    for (const bool recordings : {false, true})
      train(solver_of(c.layers, std::string("test_interval: 100 ") + c.more), recordings,
            [&](Solver&, int i) {
              if (i == 10) before = fake_calls();
              if (i == 11) of[recordings] = fake_calls() - before;
            });
    EXPECT_EQ(of[0].launches, c.without) << c.more;
    EXPECT_EQ(of[1].launches, c.launches) << c.more;
    EXPECT_EQ(of[1].graph_launches, c.graphs) << c.more;
    EXPECT_EQ(of[1].recordings, 0);
    EXPECT_EQ(of[1].waits, of[0].waits);
    EXPECT_EQ(of[1].allocations, 0);
  }
}

TEST_F(CudaRecordings, ThatAreRefusedLeaveTrainingAsItWas) {
  const SolverParameter param = solver_of(kLeNet, "test_interval: 100");
  const Trained want = train(param, false);
  const std::int64_t stretches = train(param, true).calls.recordings;
  for (const GraphCall call : {GraphCall::kBegin, GraphCall::kEnd, GraphCall::kInstantiate}) {
    refuse_graphs(call);
    const Trained got = train(param, true);
    reset_fakes();
    EXPECT_EQ(got.calls.recordings, 0);
    EXPECT_EQ(got.calls.launches, want.calls.launches);
    EXPECT_EQ(got.params, want.params);
    EXPECT_EQ(got.forward.stretches, 0);
  }
  EXPECT_TRUE(
      log_->has("the work of layer 'conv' and .* cannot be recorded.*cudaErrorNotSupported.*"));
  EXPECT_EQ(std::ranges::count_if(
                log_->lines,
                [](const std::string& line) { return is_match(line, ".*cannot be recorded.*"); }),
            3 * stretches)
      << "each is tried once";
}

TEST_F(CudaRecordings, ThatCannotBeLaunchedEndTheRun) {
  const SolverParameter param = solver_of(kLeNet, "");
  refuse_graphs(GraphCall::kLaunch);
  try {
    train(param, true);
    FAIL();
  } catch (const DeviceError& error) {
    EXPECT_EQ(error.error().code, Code::kDevice);
    EXPECT_TRUE(is_match(error.what(), "launching a graph on GPU 0.*cudaErrorLaunchFailure.*"));
  }
}

}  // namespace
}  // namespace shoal::test::cuda_recording_test
