// A small training that tests run on one device and another: a convolutional net on drawn digits
// that tests itself, clips, decays and saves.
#pragma once

#include <string>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/table/table.h"
#include "shoal/tensor/device.h"
#include "support/layer_rig.h"

namespace shoal::test {

// Returns the solver, in a fresh folder of this name, with this text added.
SolverParameter device_solver(const std::string& folder, const std::string& more);
// Returns the bytes of the params and histories in the snapshot of an iteration.
std::string saved(const SolverParameter& param, int iteration);
// Returns all params of the snapshot's model.
Numbers model_of(const SolverParameter& param, int iteration);
// Trains to the end, from a snapshot if one is named; device null: on the CPU; table null: alone.
// weights: of the workers' shares, as RunOptions has them.
Status train_on(const Device* device, const SolverParameter& param, table::Table* table = nullptr,
                const std::string& snapshot = "", const std::vector<double>& weights = {});

}  // namespace shoal::test
