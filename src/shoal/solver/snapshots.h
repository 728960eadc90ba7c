// Saves a solver's state, in files or in memory, and restores it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shoal/proto/run.pb.h"
#include "shoal/solver/own_file.h"
#include "shoal/solver/reporter.h"
#include "shoal/solver/solver_core.h"

namespace shoal {

class Snapshots : SolverPart {
 public:
  Snapshots(const SolverCore& core, Reporter& reporter) : SolverPart(core), reporter_(reporter) {}

  // As in Solver. The functions that restore return how far the loop had come.
  Status write();
  Progress restore(const std::string& state_file);
  Result<std::shared_ptr<const SolverMemory>> save_state();
  Progress restore_state(const SolverMemory* memory, const Solver::Continuation& how);

  // Notes that a loss has interrupted all: the params of this member may not be those of the one
  // that leads from here on.
  void note_recovery() { is_recovered_ = true; }

  // Returns whether the present iteration's is written.
  bool is_written() const { return written_at_ == progress_.iteration; }
  // Returns the score of the best test so far, if there was one.
  std::optional<double> best() const { return best_; }
  void note_best(double score) { best_ = score; }
  // Returns this member's part of the gather for a snapshot.
  std::string own_state() const;
  // Returns the states of all nets, replicas included. After settle().
  RunState net_states() const;
  // Makes a snapshot in the midst of a test hold the states from before it: the solver that goes on
  // repeats the test.
  void test_begins() { before_ = net_states(); }
  void test_ends() { before_.reset(); }
  // Gives a snapshot these states of the nets, not their present ones.
  void go_back(RunState states) { before_ = std::move(states); }

 private:
  RunState run_state() const;
  SolverState solver_state() const;
  Status write_files(const RunState& run);
  Status remove_old_snapshots();
  std::string read_files(const std::string& state_file, RunState& run, Progress& now);
  void restore_histories(const SolverState& state, const std::string& file);
  void take_states(const RunState& run, const std::string& file, Progress& now);
  void take_replica_states(const RunState& run, const std::string& file);
  void take_over_states(const SolverMemory* own, const RunState& all, const std::string& file,
                        Progress& now);
  void take_history(const RunState& run, Progress& now);
  Status gather_states(RunState& run);
  RunState share_resumption(std::string& file, RunState run, Progress& now);

  Reporter& reporter_;
  bool is_recovered_ = false;
  std::optional<double> best_;
  std::optional<std::int64_t> written_at_;  // the iteration of the last snapshot
  std::vector<std::int64_t> kept_;          // iterations of this run's snapshots on the disk
  OwnFile own_file_;
  std::optional<RunState> before_;  // states of the nets before what has not ended
};

}  // namespace shoal
