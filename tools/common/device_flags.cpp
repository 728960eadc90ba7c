#include "common/device_flags.h"

#include "shoal/base/number.h"
#include "shoal/ops/gpu.h"
#include "shoal/solver/recipe.h"

DEFINE_string(gpu, "",
              "compute on this GPU of the machine, counted from 0; empty or -1: on the CPU");
DEFINE_string(
    precision, "",
    "of products and convolutions on a GPU: FLOAT32 or TF32 (faster, 10 bits of fraction)");

DEFINE_bool(cpu_fallback, false,
            "compute on the CPU if the solver or the machinefile asks for a GPU and there is none");

namespace shoal {
namespace {

// `field` is where it is named: "--gpu=".
const Device* gpu_named(const char* field, const std::string& words) {
  const std::optional<int> number = number_in<int>(words, 0, 1 << 16);
  if (!number)
    throw ConfigError(Code::kUsage, field, words,
                      ": one process computes on one GPU here; name it by its number, such as "
                      "--gpu=0, and start a process for each other one");
  return &ops::gpu(*number);
}

}  // namespace

const Device* device_of_flags() {
  return FLAGS_gpu.empty() || FLAGS_gpu == "-1" ? nullptr : gpu_named("--gpu=", FLAGS_gpu);
}

const Device* device_of_flags(const SolverParameter& solver, const std::vector<int>& gpus) {
  const bool asked = solver.has_solver_mode() && solver.solver_mode() == SolverParameter::GPU;
  if (!FLAGS_gpu.empty() || (gpus.empty() && !asked)) return device_of_flags();
  if (gpus.size() > 1)
    throw ConfigError(Code::kUsage, "the machinefile gives this process ", gpus.size(),
                      " GPUs, and one process computes on one here; with slots=", gpus.size(),
                      " on its line there is a process for each");
  if (FLAGS_cpu_fallback && ops::gpu_count() == 0) return nullptr;
  try {
    if (!gpus.empty()) return &ops::gpu(gpus[0]);
    return gpu_named("device_id: ", solver.has_device_list() ? solver.device_list()
                                                             : std::to_string(solver.device_id()));
  } catch (const DeviceError& error) {
    throw DeviceError(
        str(gpus.empty() ? "solver_mode is GPU. " : str("The machinefile has gpus=", gpus[0], ". "),
            error.what(), ". --cpu_fallback or --gpu=-1 computes on the CPU"));
  }
}

Context::Options context_of_flags(int threads) {
  return {.device = device_of_flags(),
          .threads = threads,
          .precision = precision_of(precision_of_flags())};
}

SolverParameter::Precision precision_of_flags() {
  SolverParameter::Precision precision = SolverParameter::FLOAT32;
  if (!FLAGS_precision.empty() && !SolverParameter::Precision_Parse(FLAGS_precision, &precision))
    throw ConfigError(Code::kUsage, "--precision=", FLAGS_precision,
                      ": known are FLOAT32 and TF32");
  return precision;
}

}  // namespace shoal
