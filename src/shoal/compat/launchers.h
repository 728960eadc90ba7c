// Reads what launchers of other systems tell the processes they start, by environment variables.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "shoal/base/error.h"

namespace shoal::compat {

inline constexpr int kMostProcesses = 65535, kMostPort = 65535;

using Variables = std::map<std::string, std::string>;

// The rank of a process to which the launcher gives none: process 0 hands ranks out, in the order
// in which processes come.
inline constexpr int kRankByOrder = -1;

struct Launched {
  std::string source{};  // "torchrun (RANK 1 of WORLD_SIZE 4)"
  int rank = 0, processes = 1;
  std::string host{};  // of process 0, "" if the launcher does not say
  int port = 0;        // and its port, 0 if the launcher does not say
  std::string role{};  // "worker", "server" or "both"; "" where the launcher has no roles
  // DMLC's: a network interface to listen on, and the address where others reach this process; ""
  // if not said
  std::string interface = "", advertise = "";
  int verbosity = 0;       // likewise: how much to log, from 0
  bool scheduler = false;  // a process that has nothing to do here
};

// Reads the first family that has set something: torchrun, Open MPI, PMI, Slurm, Horovod, DMLC,
// Paddle; nothing if none has. An empty variable counts as not set. Throws ConfigError (kUsage) if
// what it set is not enough, or no number.
std::optional<Launched> launched_by(const Variables& environment);

// Reads MASTER_ADDR and MASTER_PORT for launchers that do not say where process 0 is. Throws
// ConfigError (kUsage) if the port is none.
void read_master(const Variables& environment, Launched& launched);

}  // namespace shoal::compat
