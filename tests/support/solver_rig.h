// A small net over records with everything that a run keeps between iterations: shuffled data, crops and mirrors, dropout, running means.
#pragma once

#include <string>
#include <vector>

#include "shoal/net/net.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/solver.h"

namespace shoal::test {

// Makes 40 records of 1 x 6 x 6 with labels 0 to 3 under `path`, a datumfile.
void make_digits(const std::string& path);

// Phase TRAIN: batches of 8 of `path`, shuffled, cropped to 4 x 4, mirrored; convolution, BatchNorm, Dropout, InnerProduct, loss.
// Phase TEST: batches of 5 in order, accuracy too.
std::string small_net(const std::string& path);

// A solver on that net. `more` is prototxt and wins over: base_lr 0.05, momentum 0.9, lr_policy "fixed", random_seed 3, max_iter 12,
// display 0, snapshots under `prefix`, none after training.
SolverParameter small_solver(const std::string& path, const std::string& prefix, const std::string& more = "");

SolverOptions with_name(const std::string& name, int threads = 1);

// Every learned number.
std::vector<float> all_params(const Net& net);

}  // namespace shoal::test
