// The flags that choose the device on which a tool computes.
#pragma once

#include <gflags/gflags.h>

#include "shoal/proto/solver.pb.h"
#include "shoal/tensor/context.h"

DECLARE_string(gpu);
DECLARE_string(precision);

namespace shoal {

// The GPU that --gpu names; null, the CPU, without the flag and for -1. Throws DeviceError if it is
// not there, and ConfigError (kUsage) if --gpu is not the number of one GPU.
const Device* device_of_flags();
// The same; without the flag, the GPU that the machinefile gives this process (`gpus`; empty:
// none), or what the solver asks for: with solver_mode: GPU the GPU device_id. With --cpu_fallback
// that is the CPU on a machine that has none.
const Device* device_of_flags(const SolverParameter& solver, const std::vector<int>& gpus);

// For a tool without a solver: the device and the precision of the flags.
Context::Options context_of_flags(int threads);

// The precision that --precision names, FLOAT32 without the flag. Throws ConfigError (kUsage) for
// another word.
SolverParameter::Precision precision_of_flags();

}  // namespace shoal
