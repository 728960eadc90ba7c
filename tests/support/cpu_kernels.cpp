// Holds the kernels of the test program by the tools' own code.
#include "shoal/ops/cpu_kernels.h"

#include <cstdio>
#include <cstdlib>

#include "common/machine.h"
#include "shoal/base/error.h"

namespace shoal::test {

// May start the program again. Ends it if there is no such choice.
void hold_kernels(char** argv, const char* name) {
  try {
    prepare_libraries(argv, ops::cpu_kernels_named(name));
  } catch (const ConfigError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::exit(static_cast<int>(error.error().code));
  }
}

}  // namespace shoal::test
