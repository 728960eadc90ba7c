// Times a net layer by layer, as `caffe time` does.
#include <gflags/gflags.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iomanip>
#include <map>
#include <optional>

#include "common/device_flags.h"
#include "common/kernel_flags.h"
#include "common/machine.h"
#include "common/net_facts.h"
#include "common/net_flags.h"
#include "common/tool.h"
#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/net/layer_times.h"
#include "shoal/net/net.h"
#include "shoal/ops/gemm.h"
#include "shoal/ops/op.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/solver/recipe.h"

DEFINE_string(model, "", "the net, a prototxt");
DEFINE_string(weights, "", "models to take the params from, separated by commas");
DEFINE_int32(iterations, 50, "how many passes to measure");
DEFINE_string(phase, "TRAIN", "TRAIN or TEST; of TEST, only forward passes are timed");
DEFINE_int32(threads, 0, "threads for kernels; 0: OMP_NUM_THREADS or all cores");
DEFINE_bool(forward_only, false, "time forward passes only");
DEFINE_bool(summary, false, "print the layers' shapes, params and multiply-adds, and time nothing");
DEFINE_double(device_tflops, 0,
              "with --summary: 10^12 additions and products a second that a device computes");
DEFINE_double(device_gbytes, 0,
              "with --device_tflops: 10^9 bytes a second that the device's memory reads and "
              "writes; prints the least time of each layer and of a pass there");
DEFINE_bool(
    explain_ops, false,
    "also print which implementation serves each layer, why the others do not, how often "
    "tensors are converted between homes and layouts, and on a GPU which layers are recorded");

namespace shoal {
namespace {

constexpr const char* kUsage =
    "time --model=FILE [--iterations=N] [--phase=TEST] [--forward_only] [--threads=N] [--gpu=0]\n"
    "time --model=FILE --summary [--device_tflops=N --device_gbytes=N]\n\n"
    "Runs a net forward and backward N times and prints the mean time of each layer, in "
    "milliseconds, beside the speed of a\n"
    "1024 x 1024 matrix product in the same process. One pass goes before that is not counted.";

using Clock = std::chrono::steady_clock;
double ms(Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

void explain_ops(const Net& net) {
  for (std::size_t i = 0; i < net.layers().size(); ++i) {
    const auto& layer = net.layers()[i];
    if (const Layer* into = net.fused_into(static_cast<int>(i))) {
      std::printf("%s (%s): forward is done by %s\n", layer->name().c_str(), layer->type().c_str(),
                  into->name().c_str());
      if (!net.needs_backward(static_cast<int>(i))) continue;  // its own ops are not used
    }
    for (const ops::Choice& choice : layer->choices()) {
      std::printf("%s (%s): %s by %s%s%s\n", layer->name().c_str(), layer->type().c_str(),
                  choice.op.c_str(), choice.impl.c_str(), choice.how.empty() ? "" : ": ",
                  choice.how.c_str());
      for (const ops::Refusal& refusal : choice.refused)
        std::printf("    not %s: %s\n", refusal.impl.c_str(), refusal.why.c_str());
    }
  }
  std::fflush(stdout);
}

// Logs how often tensors went to another home or layout, in a pass of the mean.
void explain_conversions(const Conversions& before, const Conversions& after) {
  const auto mean = [](std::int64_t first, std::int64_t last) {
    return static_cast<double>(last - first) / FLAGS_iterations;
  };
  std::printf("conversions of tensors a pass: %g uploads, %g downloads, %g reorders\n",
              mean(before.uploads, after.uploads), mean(before.downloads, after.downloads),
              mean(before.reorders, after.reorders));
  std::fflush(stdout);
}

void explain_recordings(const char* pass, const RecordedWork& work) {
  std::printf("%s: %d recordings of %d layers\n", pass, work.stretches, work.layers);
  for (const auto& [layer, why] : work.others)
    std::printf("    not %s: %s\n", layer.c_str(), why.c_str());
  std::fflush(stdout);
}

// Returns GFLOP/s, the median of nine products.
double gemm_speed(Context& context) {
  constexpr std::int64_t kSize = 1024;
  Tensor a(Shape{kSize, kSize}), b(Shape{kSize, kSize}), c(Shape{kSize, kSize});
  for (float& x : a.host_out()) x = context.random().unit();
  for (float& x : b.host_out()) x = context.random().unit();
  std::vector<double> times;
  for (int i = 0; i < 10; ++i) {
    const auto start = Clock::now();
    ops::gemm(context, ops::Trans::kNo, ops::Trans::kNo, kSize, kSize, kSize, 1, a, b, 0, c);
    context.stream()->synchronize();
    if (i > 0) times.push_back(ms(Clock::now() - start));  // the first one touches the memory
  }
  std::nth_element(times.begin(), times.begin() + 4, times.end());
  return 2.0 * kSize * kSize * kSize / (times[4] * 1e6);
}

struct Passes {
  double forward = 0, backward = 0;  // milliseconds, all passes
  std::vector<double> each;          // milliseconds, forward and backward
};

void run_pass(Net& net, Passes& passes) {
  const auto start = Clock::now();
  or_throw(net.forward());
  const auto middle = Clock::now();
  if (!FLAGS_forward_only) or_throw(net.backward());
  net.context().stream()->synchronize();
  const auto end = Clock::now();
  passes.forward += ms(middle - start);
  passes.backward += ms(end - middle);
  passes.each.push_back(ms(end - start));
}

// Returns the milliseconds of all passes.
double run_passes(Net& net, Passes& passes, LayerTimes* times) {
  const auto start = Clock::now();
  for (int i = 0; i < FLAGS_iterations; ++i) {
    run_pass(net, passes);
    if (times != nullptr) times->add();
    LOG(INFO) << "Iteration: " << i + 1 << " forward-backward time: " << passes.each.back()
              << " ms.";
  }
  return ms(Clock::now() - start);
}

void print_layers(const Net& net, const LayerTimes& times) {
  std::size_t width = 10;
  for (const auto& layer : net.layers()) width = std::max(width, layer->name().size());
  LOG(INFO) << "Average time per layer: ";
  for (std::size_t i = 0; i < net.layers().size(); ++i) {
    const std::string& name = net.layers()[i]->name();
    const LayerTimes::Seconds& time = times.layers()[i];
    LOG(INFO) << std::setw(static_cast<int>(width)) << name
              << "\tforward: " << 1e3 * time.forward / FLAGS_iterations << " ms.";
    if (!FLAGS_forward_only)
      LOG(INFO) << std::setw(static_cast<int>(width)) << name
                << "\tbackward: " << 1e3 * time.backward / FLAGS_iterations << " ms.";
  }
  std::map<int, std::int64_t> params;
  for (const NetParam& param : net.params()) params[param.layer] += param.blob->shape().count();
  for (const auto& [layer, count] : params)
    LOG(INFO) << std::setw(static_cast<int>(width))
              << net.layers()[static_cast<std::size_t>(layer)]->name() << "\tparams: " << count
              << ".";
}

void print_totals(Passes& passes, double total) {
  LOG(INFO) << "Average Forward pass: " << passes.forward / FLAGS_iterations << " ms.";
  if (!FLAGS_forward_only)
    LOG(INFO) << "Average Backward pass: " << passes.backward / FLAGS_iterations << " ms.";
  LOG(INFO) << "Average Forward-Backward: " << total / FLAGS_iterations << " ms.";
  std::sort(passes.each.begin(), passes.each.end());
  LOG(INFO) << "Median Forward-Backward: " << passes.each[passes.each.size() / 2]
            << " ms; fastest: " << passes.each.front() << " ms.";
  LOG(INFO) << "Total Time: " << total << " ms.";
}

std::optional<DeviceRates> rates_of_flags() {
  if (FLAGS_device_tflops == 0 && FLAGS_device_gbytes == 0) return std::nullopt;
  if (!(FLAGS_device_tflops > 0 && FLAGS_device_gbytes > 0) || !FLAGS_summary)
    throw ConfigError(
        Code::kUsage,
        "--device_tflops and --device_gbytes go together, above 0, and with --summary");
  return DeviceRates{.flops = 1e12 * FLAGS_device_tflops, .bytes = 1e9 * FLAGS_device_gbytes};
}

NetParameter net_to_time() {
  NetParameter param = read_net(FLAGS_model);
  set_state_of_flags(FLAGS_phase.empty() ? "TRAIN" : FLAGS_phase, *param.mutable_state());
  return param;
}

int time_net(const std::vector<std::string>& words) {
  if (!words.empty())
    throw ConfigError(Code::kUsage, "'", words[0],
                      "' is not a flag; did you mean --model=", words[0], "?");
  need_flag(FLAGS_model, "model");
  if (FLAGS_iterations < 1)
    throw ConfigError(Code::kUsage, "--iterations is ", FLAGS_iterations, "; it must be 1 or more");
  const std::optional<DeviceRates> rates = rates_of_flags();
  if (FLAGS_phase == "TEST" && !FLAGS_forward_only) {
    LOG(INFO) << "A net of phase TEST is not trained: forward passes alone are timed";
    FLAGS_forward_only = true;
  }
  const int threads = threads_to_use(FLAGS_threads);
  SolverParameter limits;
  set_memory_limit(limits);
  Context::Options options = context_of_flags(threads);
  options.tuning = tuning_of_flags();
  Context context(options);
  Net net(net_to_time(), context,
          {.forward_only = FLAGS_phase == "TEST", .memory_limit = memory_limit_of(limits)});
  if (options.tuning) options.tuning->save();
  for (const std::string& file : split(FLAGS_weights, ','))
    net.copy_weights(read_weights(file), file);
  // Overwrites gradients, as train does.
  if (!context.device().is_host())
    net.overwrite_gradients(std::vector<bool>(net.layers().size(), true));
  if (FLAGS_summary) {
    std::fputs(summary_of(net, rates).c_str(), stdout);
    return 0;
  }
  if (FLAGS_explain_ops) explain_ops(net);

  log_cpu_kernels();
  LayerTimes times(net);
  Passes passes;
  LOG(INFO) << "Performing Forward";
  run_pass(net, passes);
  times.add();
  times.clear();
  passes = {};
  context.device().reset_peak_bytes();  // without what the search for algorithms took
  LOG(INFO) << "*** Benchmark begins ***";
  LOG(INFO) << "Testing for " << FLAGS_iterations << " iterations.";
  const Conversions before = context.stream()->conversions;
  double total = run_passes(net, passes, &times);
  if (FLAGS_explain_ops) explain_conversions(before, context.stream()->conversions);
  print_layers(net, times);
  if (!context.device().is_host()) {  // once more without the events, so that graphs are recorded
    times.stop();
    passes = {};
    total = run_passes(net, passes, nullptr);
    if (FLAGS_explain_ops) explain_recordings("forward", net.recorded_forward());
    if (FLAGS_explain_ops) explain_recordings("backward", net.recorded_backward());
  }
  print_totals(passes, total);
  const NetMemory memory = net.memory();
  LOG(INFO) << "Planned memory: params " << static_cast<double>(memory.params) / 1e6
            << " MB, blobs " << static_cast<double>(memory.blobs) / 1e6 << " MB ("
            << static_cast<double>(memory.blobs_unshared) / 1e6 << " MB without sharing), kept by "
            << "kernels " << static_cast<double>(memory.kept) / 1e6 << " MB";
  log_gpus({&context.device()});
  // The peak is read before the matrices of the last line.
  LOG(INFO) << "Peak memory: " << peak_memory() << " MB";
  if (const std::optional<std::size_t> bytes = context.device().peak_bytes())
    LOG(INFO) << "Peak device memory: " << static_cast<double>(*bytes) / 1e6 << " MB";
  LOG(INFO) << "GEMM 1024: " << gemm_speed(context) << " GFLOP/s (threads " << threads << ")";
  LOG(INFO) << "*** Benchmark ends ***";
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  return shoal::run_tool(argc, argv, shoal::kUsage, shoal::time_net);
}
