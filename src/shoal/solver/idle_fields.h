// Warns of fields of a solver that do nothing, or that make it do nothing.
#pragma once

#include <string>

#include "shoal/net/net.h"
#include "shoal/proto/solver.pb.h"

namespace shoal {

// Warns of settings that Caffe's schema accepts and that are rarely meant: no max_iter, no base_lr,
// and the like.
void warn_of_idleness(const SolverParameter& param, const std::string& name);

// Warns if no top of the train net has a weight in its loss.
void warn_of_no_loss(const Net& net, const std::string& name);

// Names the fields that say how a GPU computes, of a solver that trains on the CPU.
void warn_of_gpu_fields(const SolverParameter& param, const std::string& name);

}  // namespace shoal
