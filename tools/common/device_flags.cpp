#include "common/device_flags.h"

#include <algorithm>

#include "shoal/base/number.h"
#include "shoal/base/text.h"
#include "shoal/ops/gpu.h"
#include "shoal/solver/recipe.h"

DEFINE_string(
    gpu, "",
    "compute on this GPU of the machine, counted from 0; train: 0,1 or all for a replica on each; "
    "empty or -1: on the CPU");
DEFINE_string(
    precision, "",
    "of products and convolutions on a GPU: FLOAT32, TF32 (faster, 10 bits of fraction), BFLOAT16 "
    "or FLOAT16 (inputs of 16 bits); on the CPU BFLOAT16 keeps images in 16 bits");
DEFINE_string(
    convolution, "",
    "on the CPU: AUTO (by Winograd's algorithm where that is faster) or DIRECT (by sums of "
    "products alone); not given: what the solver says, or AUTO");
DEFINE_bool(cuda_graphs, true,
            "record the work of layers on a GPU as CUDA graphs and queue it again; "
            "--nocuda_graphs: call all layers in each pass; not given: what the solver says");
DEFINE_string(cpu_kernels, "AUTO",
              "which kernels compute on the CPU: AUTO, the best that the processor runs, or AVX2, "
              "none that needs more than x86-64-v3, OpenBLAS's for Haswell among them");
DEFINE_bool(cpu_fallback, false,
            "compute on the CPU if the solver or the machinefile asks for a GPU and there is none");

namespace shoal {
namespace {

// `field` is where they are named: "--gpu=".
Devices gpus_named(const char* field, const std::string& words) {
  Devices gpus;
  if (words == "all") {
    if (ops::gpu_count() == 0)
      throw DeviceError(str(field, "all: no GPU can be used: ", ops::why_no_gpu()));
    for (int gpu = 0; gpu < ops::gpu_count(); ++gpu) gpus.push_back(&ops::gpu(gpu));
    return gpus;
  }
  std::vector<int> numbers;
  for (const std::string& word : split(words, ',')) {
    const std::optional<int> number = number_in<int>(word, 0, 1 << 16);
    if (!number)
      throw ConfigError(Code::kUsage, field, words, ": '", word,
                        "' is not the number of a GPU: name one, such as 0, several, such as 0,1, "
                        "or all");
    if (std::ranges::find(numbers, *number) != numbers.end())
      throw ConfigError(Code::kUsage, field, words, ": GPU ", word,
                        " is given twice, and each replica needs one of its own");
    numbers.push_back(*number);
  }
  for (const int number : numbers) gpus.push_back(&ops::gpu(number));
  return gpus;
}

Devices devices_of_flags() {
  if (FLAGS_gpu.empty() || FLAGS_gpu == "-1") return {};
  try {
    return gpus_named("--gpu=", FLAGS_gpu);
  } catch (const DeviceError& error) {
    if (ops::gpu_count() > 0) throw;
    throw DeviceError(str(error.what(), ". Without --gpu the CPU computes"));
  }
}

}  // namespace

const Device* device_of_flags() {
  const Devices devices = devices_of_flags();
  if (devices.size() > 1)
    throw ConfigError(Code::kUsage, "--gpu=", FLAGS_gpu,
                      ": this tool computes on one GPU; train takes several");
  return devices.empty() ? nullptr : devices[0];
}

Devices devices_of_flags(const SolverParameter& solver, const std::vector<int>& gpus) {
  const bool asked = solver.has_solver_mode() && solver.solver_mode() == SolverParameter::GPU;
  if (!FLAGS_gpu.empty() || (gpus.empty() && !asked)) return devices_of_flags();
  if (FLAGS_cpu_fallback && ops::gpu_count() == 0) return {};
  std::vector<std::string> words;
  for (const int gpu : gpus) words.push_back(std::to_string(gpu));
  try {
    if (!gpus.empty()) return gpus_named("gpus=", join(words, ","));
    return gpus_named("device_id: ", solver.has_device_list() ? solver.device_list()
                                                              : std::to_string(solver.device_id()));
  } catch (const DeviceError& error) {
    throw DeviceError(str(gpus.empty() ? "solver_mode is GPU. "
                                       : str("The machinefile has gpus=", join(words, ","), ". "),
                          error.what(), ". --cpu_fallback or --gpu=-1 computes on the CPU"));
  }
}

Context::Options context_of_flags(int threads) {
  return {.device = device_of_flags(),
          .threads = threads,
          .precision = precision_of(precision_of_flags()),
          .direct_convolution = convolution_of_flags() == SolverParameter::DIRECT,
          .recordings = FLAGS_cuda_graphs};
}

SolverParameter::Precision precision_of_flags() {
  SolverParameter::Precision precision = SolverParameter::FLOAT32;
  if (!FLAGS_precision.empty() && !SolverParameter::Precision_Parse(FLAGS_precision, &precision))
    throw ConfigError(Code::kUsage, "--precision=", FLAGS_precision,
                      ": known are FLOAT32, TF32, BFLOAT16 and FLOAT16");
  return precision;
}

SolverParameter::Convolution convolution_of_flags() {
  SolverParameter::Convolution convolution = SolverParameter::AUTO;
  if (!FLAGS_convolution.empty() &&
      !SolverParameter::Convolution_Parse(FLAGS_convolution, &convolution))
    throw ConfigError(Code::kUsage, "--convolution=", FLAGS_convolution,
                      ": known are AUTO and DIRECT");
  return convolution;
}

}  // namespace shoal
