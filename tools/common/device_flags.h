// The flags that choose the device on which a tool computes.
#pragma once

#include <gflags/gflags.h>

#include <vector>

#include "shoal/proto/solver.pb.h"
#include "shoal/tensor/context.h"

DECLARE_string(gpu);
DECLARE_string(precision);
DECLARE_string(convolution);
DECLARE_bool(cuda_graphs);

namespace shoal {

using Devices = std::vector<const Device*>;

// Returns the GPU that --gpu names; null, the CPU, without the flag and for -1. Throws DeviceError
// if it is not there, and ConfigError (kUsage) if --gpu is not the number of one GPU.
const Device* device_of_flags();
// Returns the GPUs that --gpu names (empty: the CPU), one a replica; without the flag, those that
// the machinefile gives this process (`gpus`; empty: none), or what the solver asks for: with
// solver_mode: GPU those of device_id. With --cpu_fallback that is the CPU on a machine that has
// none. Throws as above, and if one is named twice.
Devices devices_of_flags(const SolverParameter& solver, const std::vector<int>& gpus);

// Returns the device and the precision of the flags for a tool without a solver.
Context::Options context_of_flags(int threads);

// Returns the precision that --precision names, FLOAT32 without the flag. Throws ConfigError
// (kUsage) for another word.
SolverParameter::Precision precision_of_flags();
// Returns what --convolution names; AUTO without the flag.
SolverParameter::Convolution convolution_of_flags();

}  // namespace shoal
