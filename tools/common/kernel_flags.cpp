#include "common/kernel_flags.h"

#include "common/tool.h"
#include "shoal/base/error.h"
#include "shoal/base/file.h"

DEFINE_bool(tune, false,
            "choose the CPU's convolution kernels by times that are measured when a net is made. "
            "train saves the choices for the next run in <snapshot_prefix>.kernels, time only in "
            "the file of --kernels");
DEFINE_string(kernels, "", "with --tune: the file to save the choices in");
DEFINE_int32(
    memory_limit, 0,
    "MB that the blobs of each net and the scratch of its kernels may take; if needed, "
    "convolutions do without Winograd's algorithm; 0: no limit; not given: what the solver says");

namespace shoal {
namespace {

constexpr const char* kEnding = ".kernels";

}  // namespace

std::shared_ptr<ops::ConvTuning> tuning_of_flags(const std::string& snapshot_prefix,
                                                 const std::string& snapshot) {
  if (!FLAGS_tune && !FLAGS_kernels.empty())
    throw ConfigError(Code::kUsage, "--kernels=", FLAGS_kernels, " names the file of --tune, ",
                      "which is not given");
  if (!FLAGS_tune) return nullptr;
  auto tuning = std::make_shared<ops::ConvTuning>();
  if (!FLAGS_kernels.empty()) {
    tuning->keep_in(FLAGS_kernels);
  } else if (!snapshot_prefix.empty()) {
    const std::string own = snapshot_prefix + kEnding;
    tuning->keep_in(own);
    // "runs/net_iter_500.solverstate" has "runs/net.kernels" beside it.
    const std::string beside = snapshot.substr(0, snapshot.rfind("_iter_")) + kEnding;
    if (beside != own && file_exists(beside)) tuning->add(or_throw(read_file(beside)), beside);
  }
  return tuning;
}

void set_memory_limit(SolverParameter& param) {
  if (FLAGS_memory_limit < 0)
    throw ConfigError(Code::kUsage, "--memory_limit=", FLAGS_memory_limit,
                      ": it is a number of MB, 0 or more");
  if (given("memory_limit")) param.set_memory_limit(static_cast<std::uint32_t>(FLAGS_memory_limit));
}

}  // namespace shoal
