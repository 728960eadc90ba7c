// Solvers of small jobs, and their simulation.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/simulate/simulation.h"
#include "support/data_files.h"
#include "support/solver_rig.h"

namespace shoal::test::simulation {

// Returns a solver with batches of 4 of 40 records, divided among the workers, and two layers that
// learn.
inline SolverParameter digits_solver(const std::string& folder, const std::string& more = "") {
  const std::string path = fresh_directory(folder) + "/digits";
  make_digits(path);
  SolverParameter param = parse_solver(
      "base_lr: 0.02 momentum: 0.9 lr_policy: 'fixed' random_seed: 3 display: 0 "
      "snapshot_after_train: false " +
          (more.empty() ? "max_iter: 12" : more),
      "job");
  const std::string data = "data_param { source: '" + path +
                           "' backend: DATUMFILE batch_size: 4 shared_file_system: true } "
                           "transform_param { scale: 0.01 } ";
  *param.mutable_net_param() =
      parse_net("layer { name: 'data' type: 'Data' top: 'data' top: 'label' " + data +
                    "}"
                    "layer { name: 'ip1' type: 'InnerProduct' bottom: 'data' top: 'ip1' "
                    "inner_product_param { num_output: 16 weight_filler { type: 'xavier' } } }"
                    "layer { name: 'relu' type: 'ReLU' bottom: 'ip1' top: 'ip1' }"
                    "layer { name: 'ip2' type: 'InnerProduct' bottom: 'ip1' top: 'ip2' "
                    "inner_product_param { num_output: 10 weight_filler { type: 'xavier' } } }"
                    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip2' bottom: 'label' "
                    "top: 'loss' }",
                "job.prototxt");
  return param;
}

// Returns a solver with one layer, one row of 36 x 10 numbers, so that a server's answers begin
// when all of a push is there.
inline SolverParameter one_row_solver(const std::string& folder, int max_iter) {
  SolverParameter param = digits_solver(folder);
  *param.mutable_net_param() = parse_net(
      "layer { name: 'data' type: 'Data' top: 'data' top: 'label' data_param { source: '" +
          param.net_param().layer(0).data_param().source() +
          "' backend: DATUMFILE batch_size: 4 shared_file_system: true } transform_param { scale: "
          "0.01 } }"
          "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' inner_product_param { "
          "num_output: 10 bias_term: false weight_filler { type: 'xavier' } } }"
          "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }",
      "job.prototxt");
  param.set_max_iter(max_iter);
  return param;
}

// Returns the solver with these phases, each as in `scheme { }`.
inline SolverParameter in_phases(SolverParameter param, const std::vector<std::string>& schemes) {
  for (const std::string& scheme : schemes)
    param.MergeFrom(parse_solver("scheme { " + scheme + " }", "schemes"));
  return param;
}
inline SolverParameter with(SolverParameter param, const std::string& scheme) {
  return in_phases(std::move(param), {scheme});
}

inline simulate::Outcome run(const SolverParameter& param, const std::string& cluster,
                             const simulate::SimulationOptions& options) {
  return or_throw(simulate::simulate(param, simulate::parse_cluster(cluster, "cluster"), options));
}

}  // namespace shoal::test::simulation
