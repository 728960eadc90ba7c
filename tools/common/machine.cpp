#include "common/machine.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "shoal/base/error.h"
#include "shoal/base/log.h"
#include "shoal/base/processor.h"
#include "shoal/base/text.h"
#include "shoal/ops/blas_kernels.h"
#include "shoal/ops/gpu.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {

int threads_to_use(int asked) {
  constexpr int kMost = 1024;
  if (asked < 0 || asked > kMost)
    throw ConfigError(Code::kUsage, "--threads is ", asked, "; it must be from 1 to ", kMost,
                      ", or 0 for all cores");
  if (asked > 0) return asked;
  if (const char* variable = std::getenv("OMP_NUM_THREADS"))
    if (const int threads = std::atoi(variable); threads > 0) return threads;
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (::sched_getaffinity(0, sizeof cores, &cores) != 0) return 1;
  return std::max(1, CPU_COUNT(&cores));
}

namespace {

constexpr const char* kBlasVariable = "OPENBLAS_CORETYPE";

// Runs before main and before initializers of this program, which are compiled for newer processors
// in part. The initializers have the lowest priority, and 101 is the highest that a program may
// use.
[[gnu::constructor(101)]] void check_processor() {
  const std::string missing = missing_of_level(ops::kCpuLevel);
  if (missing.empty()) return;
  std::fprintf(stderr,
               "this build's kernels need a processor of the x86-64-v%d level%s; this one lacks "
               "%s. make ARCH= builds for any processor\n",
               ops::kCpuLevel, ops::kCpuLevel == 3 ? " (AVX2, BMI2, F16C, FMA ...)" : "",
               missing.c_str());
  std::_Exit(static_cast<int>(Code::kDevice));
}

// Sets a variable of the environment, and returns whether that changed it.
bool set_variable(const char* variable, const std::string& value) {
  const char* const before = std::getenv(variable);
  return (before == nullptr || before != value) && ::setenv(variable, value.c_str(), 1) == 0;
}

}  // namespace

void prepare_libraries(char** argv, ops::CpuKernels kernels) {
  ops::hold_cpu_kernels(kernels);
  bool is_new = false;
  if (std::getenv("OMP_WAIT_POLICY") == nullptr && std::getenv("GOMP_SPINCOUNT") == nullptr)
    is_new = set_variable("GOMP_SPINCOUNT", "2000");
  const std::string better = ops::better_blas_kernels(kernels);
  const bool is_free = kernels != ops::CpuKernels::kAuto || std::getenv(kBlasVariable) == nullptr;
  if (!better.empty() && is_free) is_new |= set_variable(kBlasVariable, better);
  // execv returns only if it fails, and then all is as it was but slower.
  if (is_new) ::execv("/proc/self/exe", argv);
}

void log_cpu_kernels() {
  LOG(INFO) << "CPU kernels: " << ops::describe_cpu_kernels();
  const char* const asked = std::getenv(kBlasVariable);
  const std::string weak = ops::weak_blas_kernels();
  if (asked != nullptr && !weak.empty() && ops::held_cpu_kernels() == ops::CpuKernels::kAuto)
    LOG(WARNING) << kBlasVariable << '=' << asked << " makes OpenBLAS take its kernels for " << weak
                 << ", which are slower at products than this processor allows; env -u "
                 << kBlasVariable << " runs a program without it";
}

void set_state(const std::string& phase, int level, const std::string& stage, NetState& state) {
  if (phase == "TRAIN")
    state.set_phase(TRAIN);
  else if (phase == "TEST")
    state.set_phase(TEST);
  else if (!phase.empty())
    throw ConfigError(Code::kUsage, "--phase=", phase, ": a phase is TRAIN or TEST");
  state.set_level(level);
  for (const std::string& name : split(stage, ',')) state.add_stage(name);
}

void need_flag(const std::string& value, const char* flag) {
  if (split(value, ',').empty())
    throw ConfigError(Code::kUsage, "this tool needs --", flag, "=FILE");
}

double peak_memory() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024 / 1e6;
}

void log_gpus(const std::vector<const Device*>& devices) {
  for (int gpu = 0; gpu < ops::gpu_count(); ++gpu)
    if (std::ranges::find(devices, &ops::gpu(gpu)) != devices.end())
      LOG(INFO) << "GPU " << gpu << ": " << ops::describe_gpu(gpu);
}

}  // namespace shoal
