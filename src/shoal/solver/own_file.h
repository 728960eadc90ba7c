// The file of a snapshot that each member of a team has on its own machine: what no other member
// has and is too much to send, the numbers that codecs have left out of its pushes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/solver/updater.h"

namespace shoal {

class SolverParameter;

class OwnFile {
 public:
  // Writes the file of an iteration, if the updater has something for it. Removes the oldest if
  // there are more than the solver keeps.
  Status write(const SolverParameter& param, std::int64_t iteration, int member,
               Checkpointed& state);

 private:
  std::vector<std::int64_t> kept_;  // iterations of those on the disk
};

// Reads the file of a snapshot, whose .run file is given, into an updater that has something for
// it. A warning says that there is none. Throws ConfigError if it is damaged.
void read_own_file(const std::string& run_file, int member, Checkpointed& state);

}  // namespace shoal
