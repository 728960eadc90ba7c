// Trains a net: the loop, its tests, its snapshots and its log lines, which are Caffe's. Alone, or
// as one of a team whose members all make the same calls: then what each says below of a member's
// part holds.
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

// kContinues: another solver goes on at the end; kRegroups: or before it; kLeft: the others of the
// team do.
enum class Ending { kDone, kStopped, kRequeue, kContinues, kRegroups, kLeft };

struct SolverOptions {
  const Device* device = nullptr;  // of its nets; null: the CPU; outlives the solver
  int threads = 1;                 // that kernels may use
  std::string name = "solver";     // of the prototxt, for errors
  // asked after every iteration and, alone, every batch of a test
  std::function<Action()> action{};
  std::function<std::unique_ptr<Updater>(Net&)> make_updater{};  // default: make_local_updater
  Share share{};                                                 // of the data, in a team
  // Kernels are chosen by measured times, of a team by the chief's where processors are alike;
  // null: by rule. All of a team have it, or none.
  std::shared_ptr<ops::ConvTuning> tuning{};
  Team* team = nullptr;  // which outlives the solver; null: alone
  // of a whole team's displays and tests, on its chief; outlives the solver
  Observer* observer = nullptr;
  Meter* meter = nullptr;  // of this member's time; outlives the solver
  // For the log of a team.
  // records that all members together go through in an epoch; 0: not known
  std::uint64_t epoch = 0;
  std::string averaging = "the mean of all gradients is taken";  // how gradients become updates
};

struct TestScore {
  std::string output;
  float loss_weight = 0;
  double mean = 0;  // over the batches
};

// All on one thread. Run-time errors carry the exit code that a tool should end with: kData,
// kNonFinite, kSnapshot ...
class Solver {
 public:
  // Builds the train net and the test nets, loads the param's `weights`. Throws ConfigError for
  // whatever is wrong in solver, nets and weights, and for a snapshot_prefix where nothing can be
  // written. Of a team the chief alone needs weights and the prefix.
  explicit Solver(const SolverParameter& param, SolverOptions options = {});
  ~Solver();
  Solver(const Solver&) = delete;

  // Params by layer name, into the train net (whose params the test nets use). In a team on the
  // chief, before the first iteration: an updater that keeps params elsewhere brings them to the
  // others.
  void copy_weights(const std::string& model_file);
  // Goes on from a .solverstate as if the run had not stopped: iteration, rate steps, history,
  // random numbers, places in the data. One of BVLC Caffe's has only the first three; what is not
  // exact is then logged. Throws ConfigError. In a team the chief reads the files. A snapshot of a
  // team of another size goes on from the same part of the epoch.
  void restore(const std::string& state_file);

  // One for the whole team, to go on from by restore_state(), in another solver of the same net:
  // what the chief needs for that, and on the others what is their own. Afterwards this solver is
  // at its end.
  Result<std::shared_ptr<const SolverMemory>> save_state();
  // As restore(), the first thing that the solver does, after `iteration` iterations. A member that
  // was not there when the others saved has no memory.
  struct Continuation {
    std::int64_t iteration = 0;              // that this member has behind it
    std::vector<std::int64_t> iterations{};  // and each, by its index; empty: all as many
    // members keep what is their own alone (Checkpointed::own_state); otherwise all go on with the
    // chief's
    bool same_scheme = false;
    // otherwise the data is divided anew, as Layer::load_states says
    bool same_members = true;
  };
  void restore_state(const SolverMemory* memory, const Continuation& how);

  // From the present iteration to max_iter, with tests, snapshots and the lines that frame them. If
  // the data ends the run, a snapshot is written first, where any are asked for.
  Result<Ending> solve();
  // The same; but if `end` is before max_iter it ends there, with kContinues, or where the team
  // says kRegroup, with kRegroups: what frames the end is another's, who goes on with the state.
  Result<Ending> solve_until(std::int64_t end);
  // n iterations, with the tests and snapshots that fall on them.
  Result<Ending> step(std::int64_t n);
  // One test of test net `index`, whose batches a team divides; the scores are the whole team's.
  // Empty if it was interrupted. A chief whose team is not bounded tests alone, on the params as
  // they are.
  Result<std::vector<TestScore>> test(int index);
  // One for the whole team: the chief writes it.
  Status snapshot();

  Net& net();
  std::span<const std::unique_ptr<Net>> test_nets() const;
  std::int64_t iteration() const;  // iterations done
  // of all nets that train together; 0 if the net reads nothing
  std::int64_t items_per_update() const;
  double own_items() const;  // of this member's nets among them
  // Of the last iteration's first local step, the mean of its passes. Where iterations are queued
  // ahead (docs/gpus.md), an action that is asked sees that of the iteration before; so it is with
  // smoothed_loss().
  float last_loss() const { return last_loss_; }
  // mean of the last average_loss iterations
  float smoothed_loss() const;
  float rate() const;  // of the last iteration

 private:
  struct Parts;
  void connect_hooks();
  Status iterate_until(std::int64_t end);
  Status iterate(bool ahead);
  Status queue_step();
  Status catch_up(std::uint64_t left);
  Status local_step(bool first);
  Result<bool> run_passes();
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
