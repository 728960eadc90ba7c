// Models and solver states in BVLC Caffe's HDF5 files; write_hdf5 of io.h writes them.
#pragma once

#include <string>

namespace shoal {

class NetParameter;
class SolverState;

// Throw ConfigError (kConfig) that names the file and the dataset.
NetParameter read_hdf5_weights(const std::string& path);
SolverState read_hdf5_state(const std::string& path);

}  // namespace shoal
