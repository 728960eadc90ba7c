// The description of a job, resolved once: the solver with its nets in it, and its phases.
#pragma once

#include <string>
#include <vector>

#include "shoal/parallel/scheme_words.h"
#include "shoal/proto/solver.pb.h"

namespace shoal::parallel {

// A value that is passed down: nothing below reads a prototxt or a groups file again, so that a
// file which changes while a job trains changes nothing in it.
struct JobSpec {
  SolverParameter solver;  // its nets are train_net_param and test_net_param, whatever they were
  std::string name;        // of the prototxt, for errors
  std::vector<Phase> phases;
};

// Reads the files that the solver names. Throws ConfigError.
JobSpec read_job_spec(const SolverParameter& solver, const std::string& name);

// Returns what must be the same in all processes of a job, as text with a field a line: the spec
// without what may differ from machine to machine: paths, names of devices, what is logged and
// where snapshots go.
std::string configuration_of(const JobSpec& spec);

}  // namespace shoal::parallel
