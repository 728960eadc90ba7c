// Saves what a solver has come to, in files or in memory, and lets it go on from there.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shoal/proto/run.pb.h"
#include "shoal/solver/reporter.h"
#include "shoal/solver/solver_core.h"

namespace shoal {

class Snapshots : SolverPart {
 public:
  Snapshots(const SolverCore& core, Reporter& reporter) : SolverPart(core), reporter_(reporter) {}

  // As those of Solver. Those that restore return how far the loop has come then.
  Status write();
  Progress restore(const std::string& state_file);
  Result<std::shared_ptr<const SolverMemory>> save_state();
  Progress restore_state(const SolverMemory* memory, const Solver::Continuation& how);

  // The present iteration's.
  bool is_written() const { return written_at_ == progress_.iteration; }
  // The score of the best test so far, if there was one.
  std::optional<double> best() const { return best_; }
  void note_best(double score) { best_ = score; }
  // Returns this member's part of the gather for a snapshot.
  std::string own_state() const;
  // The states of all nets, replicas included. After settle().
  RunState net_states() const;
  // A snapshot in the midst of a test has the states from before it: the test is done again by the
  // solver that goes on.
  void test_begins() { before_ = net_states(); }
  void test_ends() { before_.reset(); }
  // A snapshot has these states of the nets, not their present ones.
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
  std::optional<double> best_;
  std::optional<std::int64_t> written_at_;  // the iteration of the last snapshot
  std::vector<std::int64_t> kept_;          // iterations of this run's snapshots on the disk
  std::optional<RunState> before_;          // states of the nets before what has not ended
};

}  // namespace shoal
