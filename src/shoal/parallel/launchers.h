// What launchers say to the processes they start, by variables of the environment.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "shoal/parallel/cluster.h"

namespace shoal::parallel {

inline constexpr int kMostProcesses = 65535, kMostPort = 65535;

using Variables = std::map<std::string, std::string>;

struct Launched {
  std::string source;  // "torchrun (RANK 1 of WORLD_SIZE 4)"
  int rank = 0, processes = 1;
  std::string host;          // of process 0, "" if the launcher does not say
  int port = 0;              // and its port, 0 if the launcher does not say
  std::optional<Role> role;  // where the launcher has roles
};

// By the first family that has set something; nothing if none has. Errors (kUsage): what it set is
// not enough, or no number.
Result<std::optional<Launched>> launched_by(const Variables& environment);

// The value, or null if it is not set or empty.
const std::string* find(const Variables& environment, const std::string& name);

// A whole number from `least` to `most`, or nothing.
std::optional<int> number_of(const std::string& word, int least, int most);

}  // namespace shoal::parallel
