// What a solver's prototxt asks for, checked and in the words of the modules that carry it out.
#pragma once

#include <string>
#include <vector>

#include "shoal/optim/rate.h"
#include "shoal/optim/rule.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"

namespace shoal {

struct Recipe {
  optim::RuleOptions rule;
  optim::RateOptions rate;
  optim::Regularization regularization = optim::Regularization::kL2;
  float weight_decay = 0;
  float clip = -1;         // limit of the norm of all gradients; below 0: none
  int iter_size = 1;       // passes an update
};

// Throws ConfigError for every number that makes no sense; `name`, the prototxt's, stands in front of its words.
Recipe read_recipe(const SolverParameter& param, const std::string& name);

// Says in the log what Caffe's schema lets pass and hardly anybody means: no max_iter, no base_lr, and the like.
void warn_of_idleness(const SolverParameter& param, const std::string& name);

// The train net and the test nets, with their states merged in. Throws ConfigError unless there is exactly one source of a train
// net, and test_iter and test_state have a value for every test net.
NetParameter train_net_of(const SolverParameter& param, const std::string& name);
std::vector<NetParameter> test_nets_of(const SolverParameter& param, const std::string& name);

}  // namespace shoal
