// Trains a net: the loop, its tests, its snapshots and its log lines, which are Caffe's. A solver
// trains alone, or as a member of a team whose members all make the same calls.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/net/net.h"
#include "shoal/solver/exchange.h"
#include "shoal/solver/meter.h"
#include "shoal/solver/observer.h"
#include "shoal/solver/team.h"

namespace shoal {

class SolverCore;
struct Progress;
class SolverParameter;
struct SolverMemory;  // what a snapshot holds, without files

// kContinues: stopped at `end`; kRegroups: stopped early for a new generation; kLeft: this member
// left.
enum class Ending { kDone, kStopped, kRequeue, kContinues, kRegroups, kLeft };

struct SolverOptions {
  const Device* device = nullptr;  // of its nets; null: the CPU; outlives the solver
  int threads = 1;                 // that kernels may use
  std::string name = "solver";     // of the prototxt, for errors
  // Asked after every iteration and, in a solver alone, after every batch of a test.
  std::function<Action()> action{};
  std::function<std::unique_ptr<Updater>(Net&)> make_updater{};  // default: make_local_updater
  Share share{};                                                 // of the data, in a team
  // Kernels are chosen by measured times, in a team by the chief's where processors are alike;
  // null: by rule. All of a team have it, or none.
  std::shared_ptr<ops::ConvTuning> tuning{};
  Team* team = nullptr;  // which outlives the solver; null: alone
  // Receives a whole team's displays and tests, on its chief. Outlives the solver.
  Observer* observer = nullptr;
  Meter* meter = nullptr;    // of this member's time; outlives the solver
  bool log_displays = true;  // false: displays are the observer's alone
  // For the log of a team: records that all members read in an epoch; 0: not known.
  std::uint64_t epoch = 0;
  // Its nets are (NetOptions::interactive), and its test nets have a backward pass.
  bool interactive = false;
  std::string averaging = "the mean of all gradients is taken";  // how gradients become updates
};

struct TestScore {
  std::string output;
  float loss_weight = 0;
  double mean = 0;  // over the batches
};

// Trains a net. All calls on one thread. Run-time errors carry the exit code that a tool should end
// with: kData, kNonFinite, kSnapshot ...
class Solver {
 public:
  // Builds the train net and the test nets, and loads the param's `weights`. Throws ConfigError for
  // errors in solver, nets and weights, and for a snapshot_prefix where nothing can be written. In
  // a team only the chief needs weights and the prefix.
  explicit Solver(const SolverParameter& param, SolverOptions options = {});
  ~Solver();
  Solver(const Solver&) = delete;

  // Copies params by layer name into the train net (whose params the test nets use). In a team it
  // is called on the chief, before the first iteration: an updater that keeps params elsewhere
  // brings them to the others.
  void copy_weights(const std::string& model_file);
  // Continues from a .solverstate as if the run had not stopped: iteration, rate steps, history,
  // random numbers, places in the data. One of BVLC Caffe's has only the first three; the log names
  // what is not exact. Throws ConfigError. In a team the chief reads the files. A snapshot of a
  // team of another size continues from the same part of the epoch.
  void restore(const std::string& state_file);

  // Saves one state for the whole team, to continue from by restore_state() in another solver of
  // the same net. The chief's holds all that needs, the others' only their own state. Afterwards
  // this solver is at its end.
  Result<std::shared_ptr<const SolverMemory>> save_state();
  // Continues as restore() does, after `iteration` iterations. It is the first call of the solver.
  // A member that was not there when the others saved has no memory.
  struct Continuation {
    std::int64_t iteration = 0;              // that this member has behind it
    std::vector<std::int64_t> iterations{};  // and each, by its index; empty: all as many
    // Members keep their own state (Checkpointed::own_state). Otherwise all continue with the
    // chief's.
    bool same_scheme = false;
    // Otherwise the data is divided anew, as Layer::load_states says.
    bool same_members = true;
  };
  void restore_state(const SolverMemory* memory, const Continuation& how);

  // Trains from the present iteration to max_iter, with tests, snapshots and the log lines around
  // them. If the data ends the run, a snapshot is written first, if any are asked for.
  Result<Ending> solve();
  // As solve(). But if `end` is before max_iter, training ends there with kContinues, or where the
  // team says kRegroup with kRegroups, and the solver that continues with the state makes the
  // tests, snapshots and log lines of the end.
  Result<Ending> solve_until(std::int64_t end);
  // Trains n iterations, with the tests and snapshots that fall on them.
  Result<Ending> step(std::int64_t n);
  // Brings all of a team to the end of one iteration and ends this part of the run there, after a
  // loss has interrupted a call for the team that was made on this member (is_interruption()).
  // Returns as solve_until() does, which calls it for its own.
  Result<Ending> recover();
  // Tests test net `index`. A team divides its batches, and the scores are the whole team's.
  // Returns no scores if it was interrupted. A chief whose team is not bounded tests alone, on the
  // params as they are.
  Result<std::vector<TestScore>> test(int index);
  // Writes a snapshot. A team's chief writes one for the whole team.
  Status snapshot();

  Net& net();
  std::span<const std::unique_ptr<Net>> test_nets() const;
  std::int64_t iteration() const;  // iterations done
  // Returns the items that all nets that train together read for an update; 0 if the net reads
  // none.
  std::int64_t items_per_update() const;
  double own_items() const;  // of this member's nets among them
  // Returns the loss of the last iteration's first local step, the mean of its passes. Where
  // iterations are queued ahead (docs/gpus.md), an action that is asked sees that of the iteration
  // before. The same holds for smoothed_loss().
  float last_loss() const { return last_loss_; }
  // Returns the mean loss of the last average_loss iterations.
  float smoothed_loss() const;
  float rate() const;  // of the last iteration

 private:
  struct Parts;
  void connect_hooks();
  Result<Ending> train_until(std::int64_t end);
  Result<Ending> conclude(Ending ending);
  Status end_together();
  Status iterate_until(std::int64_t end);
  Status iterate(bool ahead);
  Status queue_step();
  Status catch_up(std::uint64_t left);
  Status local_step(bool first);
  Result<bool> run_passes();
  std::int64_t rate_steps(std::int64_t at);
  bool follows_loss() const;  // the rate does, so that each iteration waits for the one before
  void note_loss(float loss);
  Status apply();
  Status finish();
  Error rescue(Error error);

  const std::unique_ptr<Parts> parts_;
  const SolverCore& core_;
  Progress& at_;
  int pass_ = 0;  // of iter_size, counted from 0
  float last_loss_ = 0;
};

}  // namespace shoal
