// Tests of iterations that are queued before the outcome of the last one is known: on each device
// with a memory of its own they end as those do that are waited for one by one.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "shoal/base/file.h"
#include "shoal/proto/hdf5.h"
#include "shoal/proto/io.h"
#include "shoal/solver/solver.h"
#include "support/devices.h"
#include "support/solver_fixture.h"

namespace shoal::test::run_ahead_test {
namespace {

std::vector<TestDevice> devices_with_memory() {
  std::vector<TestDevice> devices;
  for (const TestDevice& device : test_devices())
    if (device.get() != nullptr) devices.push_back(device);
  return devices;
}

// The end of a run, and its results.
struct Outcome {
  std::string error;
  std::int64_t iteration = 0;
  float last_loss = 0, smoothed_loss = 0;
  std::vector<float> params;
  std::vector<std::string> files;  // the bytes of its snapshots, in order of their names
};

// Reads the end of each iteration, so that none is queued ahead.
struct Watch : Meter {
  void start(std::int64_t, const Net&) override {}
  void mark(Mark, std::int64_t, double, double) override {}
};

class RunAhead : public SolverTest, public testing::WithParamInterface<TestDevice> {
 protected:
  SolverOptions on_device() const {
    SolverOptions options = with_name("x");
    options.device = GetParam().get();
    return options;
  }
  Outcome run(SolverParameter param, bool ahead) {
    param.set_snapshot_prefix(fresh_directory("run_ahead") + "/s");
    SolverOptions options = on_device();
    Watch watch;
    if (!ahead) options.meter = &watch;
    Solver solver(param, options);
    const Result<Ending> ending = solver.solve();
    Outcome outcome{ending.ok() ? "" : ending.error().message,
                    solver.iteration(),
                    solver.last_loss(),
                    solver.smoothed_loss(),
                    all_params(solver.net()),
                    {}};
    for (const char* kind : {".caffemodel", ".solverstate", ".run"})
      for (int i = 0; i <= param.max_iter(); ++i)
        if (const std::string file = str(param.snapshot_prefix(), "_iter_", i, kind);
            file_exists(file))
          outcome.files.push_back(get_file(file));
    return outcome;
  }
  // Runs both ways and returns how they ended.
  Outcome expect_same(const SolverParameter& param) {
    Outcome ahead = run(param, true);
    const Outcome waiting = run(param, false);
    EXPECT_EQ(ahead.error, waiting.error);
    EXPECT_EQ(ahead.iteration, waiting.iteration);
    EXPECT_EQ(ahead.last_loss, waiting.last_loss);
    EXPECT_EQ(ahead.smoothed_loss, waiting.smoothed_loss);
    // Running means follow the input, also where it was not finite.
    if (ahead.error.empty()) {
      EXPECT_EQ(ahead.params, waiting.params);
    }
    EXPECT_EQ(ahead.files, waiting.files);
    return ahead;
  }
  // Returns a net on make_floats, in batches of 4, with two labels.
  std::string net_on_floats(int nan, int odd = -1) {
    const std::string path = str(folder_, "/floats_", nan, "_", odd);
    make_floats(path, nan, odd);
    return "layer { name: 'data' type: 'Data' top: 'data' top: 'label' data_param { source: '" +
           path + "' backend: DATUMFILE batch_size: 4 } }" +
           R"(layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip'
                      inner_product_param { num_output: 2 weight_filler { type: 'xavier' } } }
              layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label'
                      top: 'loss' })";
  }
  SolverParameter with_net(const std::string& net, const std::string& more) {
    SolverParameter param = solver(more);
    *param.mutable_net_param() = parse_net(net, "net.prototxt");
    return param;
  }
};

TEST_P(RunAhead, ChangesNoBit) {
  for (const char* more :
       {"snapshot: 5 average_loss: 3", "clip_gradients: 0.2", "clip_gradients: 1e6",
        "type: 'Adam' momentum2: 0.99 weight_decay: 0.01 regularization_type: 'L1'",
        "lr_policy: 'multistep' gamma: 0.5 stepvalue: 3 stepvalue: 7",
        "test_iter: 2 test_interval: 4 snapshot: 4 snapshot_best: 'accuracy max'",
        "precision: TF32 deterministic: true snapshot_diff: true display: 5", "iter_size: 2"}) {
    SCOPED_TRACE(more);
    const Outcome outcome = expect_same(solver(str("snapshot_after_train: true ", more)));
    EXPECT_EQ(outcome.error, "");
    EXPECT_GE(outcome.files.size(), 3u);
  }
}

TEST_P(RunAhead, TheHostLearnsALossOneIterationLater) {
  const auto losses = [&](bool ahead) {
    std::vector<float> seen;
    Watch watch;
    SolverOptions options = on_device();
    if (!ahead) options.meter = &watch;
    const Solver* asked = nullptr;
    options.action = [&] { return seen.push_back(asked->last_loss()), Action::kNone; };
    Solver trained(solver("display: 4"), options);
    asked = &trained;
    or_throw(trained.step(6));
    seen.push_back(trained.last_loss());
    return seen;
  };
  const std::vector<float> now = losses(false);
  // The losses of iterations 0 and 4 are displayed.
  EXPECT_EQ(losses(true),
            (std::vector<float>{now[0], now[0], now[1], now[2], now[4], now[4], now[5]}));
}

TEST_P(RunAhead, ALossThatIsNotFiniteStopsBeforeItsUpdate) {
  const std::string net = net_on_floats(9);
  const auto params_after = [&](int iterations) {
    return run(with_net(net, str("lr_policy: 'exp' gamma: 0.5 max_iter: ", iterations)), true)
        .params;
  };
  // The loss is found an iteration later, at the end, before a snapshot, before a test.
  for (const char* more : {"max_iter: 6", "max_iter: 3", "snapshot: 3 max_iter: 6", "snapshot: 4",
                           "snapshot: 1 max_iter: 4"}) {
    SCOPED_TRACE(more);
    const SolverParameter param = with_net(net, str(more, " lr_policy: 'exp' gamma: 0.5"));
    const Outcome outcome = expect_same(param);
    EXPECT_HAS(outcome.error, "Iteration 2, lr = 0.0125: the loss, ");
    EXPECT_HAS(outcome.error, "layer 'data' (Data): top 'data' is not finite");
    EXPECT_EQ(outcome.iteration, 2);
    EXPECT_EQ(outcome.params, params_after(2));
    EXPECT_EQ(outcome.files.size(), param.snapshot() == 1 ? 6u : 0u);
  }
}

// At w = 0, y = sqrt(w x) has a finite loss, and a slope that is not finite.
TEST_P(RunAhead, AGradientThatIsNotFiniteStopsBeforeItsUpdate) {
  for (const char* more : {"", "clip_gradients: 1"}) {
    SCOPED_TRACE(more);
    const Outcome outcome = expect_same(with_net(R"(
      layer { name: 'in' type: 'DummyData' top: 'x' top: 't' dummy_data_param {
              shape { dim: 2 dim: 3 } shape { dim: 2 dim: 1 }
              data_filler { value: 1 } data_filler { value: 1 } } }
      layer { name: 'ip' type: 'InnerProduct' bottom: 'x' top: 'ip'
              inner_product_param { num_output: 1 } }
      layer { name: 'root' type: 'Power' bottom: 'ip' top: 'y' power_param { power: 0.5 } }
      layer { name: 'loss' type: 'EuclideanLoss' bottom: 'y' bottom: 't' top: 'loss' })",
                                                 more));
    EXPECT_HAS(outcome.error,
               "a gradient is not finite; the first that is not: net.prototxt:5: layer 'ip' "
               "(InnerProduct): the gradient of param 0");
    EXPECT_EQ(outcome.last_loss, 0.5f);
    EXPECT_EQ(outcome.params, std::vector<float>(4, 0.0f));
  }
}

// The wrong label is of the iteration after the NaN's.
TEST_P(RunAhead, TheFirstErrorIsTold) {
  const std::string net = net_on_floats(9, 13);
  for (const char* more : {"", "snapshot: 100"}) {
    SCOPED_TRACE(more);
    const Outcome outcome = expect_same(with_net(net, more));
    EXPECT_HAS(outcome.error, "Iteration 2, lr = 0.05: the loss, ");
    EXPECT_EQ(outcome.iteration, 2);
  }
}

TEST_P(RunAhead, AStepThatFailsLeavesNothingUnderWay) {
  const std::string net = net_on_floats(-1, 13);
  const auto losses = [&](bool ahead) {
    Watch watch;
    SolverOptions options = on_device();
    if (!ahead) options.meter = &watch;
    Solver trained(with_net(net, "average_loss: 3"), options);
    const Result<Ending> ending = trained.step(6);
    EXPECT_HAS(ending.ok() ? "" : ending.error().message, "label 7 of 'label'");
    return std::vector<float>{trained.last_loss(), trained.smoothed_loss()};
  };
  EXPECT_EQ(losses(true), losses(false));
}

// The net is y = w x for t = 10. Losses are 50 at first, and are weighted.
std::string net_with_weight(const char* weight) {
  return str(R"(
      layer { name: 'in' type: 'DummyData' top: 'x' top: 't' dummy_data_param {
              shape { dim: 2 dim: 3 } shape { dim: 2 dim: 1 }
              data_filler { type: 'gaussian' mean: 0.3 std: 0.05 } data_filler { value: 10 } } }
      layer { name: 'ip' type: 'InnerProduct' bottom: 'x' top: 'ip'
              inner_product_param { num_output: 1 bias_term: false } }
      layer { name: 'loss' type: 'EuclideanLoss' bottom: 'ip' bottom: 't' top: 'loss'
              loss_weight: )",
             weight, " }");
}

TEST_P(RunAhead, ASumOfLossesThatIsTooLargeStopsBeforeItsUpdate) {
  const Outcome outcome = expect_same(with_net(net_with_weight("1e37"), "base_lr: 1e-38"));
  EXPECT_HAS(outcome.error,
             "Iteration 0, lr = 1e-38: the loss, inf, is not finite; every blob is finite, so the "
             "sum is too large");
}

// The device refuses the first of these losses, which are near the largest float, and the host then
// finds them good.
TEST_P(RunAhead, ARunGoesOnAfterARefusalThatWasNotNeeded) {
  const Outcome outcome = expect_same(
      with_net(net_with_weight("4e36"),
               "base_lr: 2e-38 momentum: 0 lr_policy: 'exp' gamma: 0.9 display: 2 snapshot: 4 "
               "average_loss: 3 max_iter: 11 snapshot_after_train: true"));
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.files.size(), 9u);
}

TEST_P(RunAhead, WhatALayerWritesToAFileIsWrittenOnce) {
  if (!why_no_hdf5().empty()) GTEST_SKIP() << why_no_hdf5();
  const std::string file = folder_ + "/out";
  run(with_net(net_on_floats(9) +
                   "layer { name: 'out' type: 'HDF5Output' bottom: 'data' bottom: 'label' "
                   "hdf5_output_param { file_name: '" +
                   file + "' } }",
               ""),
      true);
  const Hdf5File written = or_throw(Hdf5File::open(file, Hdf5File::Mode::kRead, Code::kData));
  EXPECT_EQ(or_throw(written.dims("label")), Hdf5File::Dims{12});
}

// The error comes while the iteration before is under way.
TEST_P(RunAhead, ARecordThatCannotBeUsedLeavesASnapshotOfAllBeforeIt) {
  for (const int label : {-1, 9}) {
    SCOPED_TRACE(label);
    Records records = or_throw(read_all(*or_throw(open_source("datumfile", data_))));
    records[20].second = label < 0 ? "no Datum" : datum(1, 6, 6, std::string(36, 'x'), label);
    const std::string odd = str(folder_, "/odd", label);
    or_throw(write_records("datumfile", odd, records));
    SolverParameter param = small_solver(odd, "", "snapshot: 100 average_loss: 3");
    param.mutable_net_param()->mutable_layer(0)->mutable_data_param()->set_shuffle(false);
    const Outcome outcome = expect_same(param);
    EXPECT_HAS(outcome.error, "a snapshot has the state of iteration 2");
    EXPECT_EQ(outcome.files.size(), 3u);
  }
}

INSTANTIATE_TEST_SUITE_P(On, RunAhead, testing::ValuesIn(devices_with_memory()),
                         [](const auto& info) { return name_on("all", info.param); });

}  // namespace
}  // namespace shoal::test::run_ahead_test
