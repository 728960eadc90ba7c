// The machine's threads and memory, and the flags that several tools have.
#pragma once

#include <string>
#include <vector>

#include "shoal/ops/cpu_kernels.h"

namespace shoal {

class Device;
class NetState;

// Returns how many threads kernels may use: `asked`, or if that is 0 what OMP_NUM_THREADS says, or
// the cores this process may run on. Throws ConfigError (kUsage) for a number that cannot be.
int threads_to_use(int asked);

// A program with these functions ends before main with 5, and says why, if the processor lacks
// instructions that this build's kernels need.

// Holds the CPU's kernels to `kernels` (ops/cpu_kernels.h), and sets what libraries read from the
// environment before main begins. Starts the program again if that was not set, and returns where
// that was not needed. Variables that the user has set stay, but for OPENBLAS_CORETYPE if `kernels`
// is not kAuto. Throws as hold_cpu_kernels does.
// GOMP_SPINCOUNT: kernel threads that wait for each other are to spin for some microseconds and
// then sleep. On a machine with other work to do, a thread that spins for milliseconds, as is
// OpenMP's way, keeps the one it waits for off the core (a step of LeNet took 225 ms instead of
// 20). OMP_WAIT_POLICY says it, too. OPENBLAS_CORETYPE: as in ops/blas_kernels.h.
void prepare_libraries(char** argv, ops::CpuKernels kernels);

// Logs which kernels compute on the CPU, and warns if OPENBLAS_CORETYPE makes their products slow.
void log_cpu_kernels();

// Writes --phase ("TRAIN", "TEST" or "" for none), --level and --stage (a list with commas) into
// `state`. Throws ConfigError (kUsage) for another phase.
void set_state(const std::string& phase, int level, const std::string& stage, NetState& state);

// Throws ConfigError (kUsage) "NAME needs --flag=..." if `value` is empty or a list of nothing.
void need_flag(const std::string& value, const char* flag);

// Returns the most memory this process has had, in MB of 10^6 bytes.
double peak_memory();

// A line of the log on each of them that is a GPU: which it is, and how much of its memory is free.
void log_gpus(const std::vector<const Device*>& devices);

}  // namespace shoal
