// Models and solver states in BVLC Caffe's HDF5 files; write_hdf5 of io.h writes them.
#pragma once

#include <span>
#include <string>

namespace shoal {

class NetParameter;
class SolverState;

// Throw ConfigError (kConfig) that names the file and the dataset.
NetParameter read_hdf5_weights(const std::string& path);
SolverState read_hdf5_state(const std::string& path);

// Returns why a model that is read again cannot hold layer `name` beside `all` that have params, or
// "".
std::string why_no_hdf5_group(const std::string& name, std::span<const std::string> all);

}  // namespace shoal
