// The settings of a solver's prototxt, checked, in the types of the modules that carry them out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shoal/optim/rate.h"
#include "shoal/optim/rule.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/tensor/context.h"

namespace shoal {

class Net;

struct Recipe {
  optim::RuleOptions rule;
  optim::RateOptions rate;
  optim::Regularization regularization = optim::Regularization::kL2;
  float weight_decay = 0;
  float clip = -1;        // limit of the norm of all gradients; below 0: none
  int iter_size = 1;      // passes an update
  bool may_skip = false;  // on_nan leaves out a step whose loss or gradient is not finite
};

// Reads the settings. Throws ConfigError for every number that makes no sense; `name`, the
// prototxt's, stands in front of its words.
Recipe read_recipe(const SolverParameter& param, const std::string& name);

// Returns memory_limit in bytes, as NetOptions has it.
std::size_t memory_limit_of(const SolverParameter& param);

Precision precision_of(SolverParameter::Precision precision);

// Return the train net and the test nets, with their states and the solver's sources of data merged
// in. Throw ConfigError unless there is exactly one source of a train net, and test_iter and
// test_state have a value for every test net.
NetParameter train_net_of(const SolverParameter& param, const std::string& name);
// Returns the items of a batch of each client's nets: the parts of a GLOBAL batch, or parts in
// proportion to the clients' weights, as batch_by says; empty: all are as written. Throws
// ConfigError where a batch is smaller than the number of nets, or is no multiple of it and
// processes have several.
std::vector<std::int64_t> batches_of(const SolverParameter& param, const std::string& name,
                                     const Share& share);
// Returns the train net of one of several that train together, with its own batch_size.
NetParameter train_net_of(const SolverParameter& param, const std::string& name,
                          const Share& share);
// Returns the batch_size of the train net's first layer that has one, as written; 0 if none has.
std::int64_t written_batch(const SolverParameter& param, const std::string& name);
// Gives all layers of the net that have a batch_size this one. Throws ConfigError if none has.
void set_batch_size(NetParameter& net, std::uint32_t items);
// Makes the data layers of the net that have a source read `source`; a Data layer finds its format.
// Returns the number of these layers.
int set_data_source(NetParameter& net, const std::string& source);
// Returns the items of a batch of the net: the first axis of the first top of its first layer
// without bottoms.
std::int64_t batch_size(const Net& net);
// Returns the weight of the mean gradient of a client's nets beside other clients': the items of
// its batches over the mean of all clients', so 1 where all are equal.
float contribution_weight(const SolverParameter& param, const std::string& name,
                          const Share& share);
std::vector<NetParameter> test_nets_of(const SolverParameter& param, const std::string& name);

// Returns the solver with its nets in it, as train_net_param and test_net_param with their sources
// of data, in place of the files' names. Test nets whose test_iter is 0 are left out. Throws
// ConfigError.
SolverParameter with_nets(const SolverParameter& param, const std::string& name);

}  // namespace shoal
