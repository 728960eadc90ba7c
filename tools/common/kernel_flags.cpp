#include "common/kernel_flags.h"

#include "common/tool.h"
#include "shoal/base/error.h"

DEFINE_int32(memory_limit, 0,
             "MB that the blobs of each net and the scratch of its kernels may take; convolutions "
             "do without Winograd's algorithm where that is needed; 0: no limit; not given: what "
             "the solver says");

namespace shoal {

void set_memory_limit(SolverParameter& param) {
  if (FLAGS_memory_limit < 0)
    throw ConfigError(Code::kUsage, "--memory_limit=", FLAGS_memory_limit,
                      ": it is a number of MB, 0 or more");
  if (given("memory_limit")) param.set_memory_limit(static_cast<std::uint32_t>(FLAGS_memory_limit));
}

}  // namespace shoal
