// Another program, run to its end.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "shoal/base/error.h"

namespace shoal {

struct ProgramRun {
  int code = 0;  // its exit code, or 128 plus the signal that ended it
  std::string out;
  std::string err;
};
// Runs a program, found in PATH if its name has no slash, without input. An error: it cannot be
// started (kConfig), or did not end in time and was killed (kTimeout).
Result<ProgramRun> run_program(std::vector<std::string> words, std::chrono::seconds deadline);

}  // namespace shoal
