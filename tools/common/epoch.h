// Counts the records of an epoch, for processes that share them or have parts of their own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shoal/parallel/job/job_spec.h"
#include "shoal/solver/solver.h"
#include "shoal/solver/team.h"
#include "shoal/tensor/context.h"

namespace shoal {

// Logs how many iterations of a process that trains alone are an epoch.
void report_epoch(const SolverParameter& param, const std::string& name, const Solver& solver);

struct Records {
  std::uint64_t own = 0;  // that this process reads in an epoch; 0 if that is not cheaply known
  bool parts = false;     // other processes have others
};
Records records_for(const parallel::JobSpec& job, const Share& share);

// Returns the records of an epoch of the whole job, as far as this process can tell: all parts are
// taken to be as large as its own.
std::uint64_t epoch_of_job(const Records& records, const Share& share);

// Has the chief say, where that is cheap to know, if the workers' parts differ in size: who has
// read all of its own begins it anew.
void compare_parts(const Records& records, Team& team);
// Compares what each process is told for itself, and by which it takes its records out of those
// that all share. The chief says where it differs.
void compare_shares(int replicas, const std::vector<double>& weights, Team& team);

}  // namespace shoal
