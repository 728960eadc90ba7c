// Trains a net: the loop, its tests, its snapshots and its log lines, which are Caffe's. Alone, or
// as one of a team whose members all make the same calls: then what each says below of a member's
// part holds.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
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

class RunState;
class SolverParameter;
class SolverState;
struct Recipe;
struct SolverMemory;  // what a snapshot holds, without files

// kContinues: another solver goes on at the end; kRegroups: or before it; kLeft: the others of the
// team do.
enum class Ending { kDone, kStopped, kRequeue, kContinues, kRegroups, kLeft };

struct SolverOptions {
  int threads = 1;              // that kernels may use
  std::string name = "solver";  // of the prototxt, for errors
  // asked after every iteration and, alone, every batch of a test
  std::function<Action()> action{};
  std::function<std::unique_ptr<Updater>(Net&)> make_updater{};  // default: make_local_updater
  Share share{};                                                 // of the data, in a team
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

  Net& net() { return *net_; }
  std::span<const std::unique_ptr<Net>> test_nets() const { return test_nets_; }
  std::int64_t iteration() const { return iteration_; }  // iterations done
  // of all nets that train together; 0 if the net reads nothing
  std::int64_t items_per_update() const;
  double own_items() const;  // of this member's nets among them
  // of the last iteration's first local step, the mean of its passes
  float last_loss() const { return last_loss_; }
  // mean of the last average_loss iterations
  float smoothed_loss() const;
  float rate() const { return rate_; }  // of the last iteration

 private:
  using Clock = std::chrono::steady_clock;
  struct Best {
    std::string output;  // "" if no best model is kept
    bool largest = true;
    std::optional<double> value;  // of the best test so far
  };

  // Building.
  Context& add_context(const Share& share);
  void build_net();
  void build_test_nets();
  void connect_hooks();
  void check_best();
  // The loop.
  Status iterate();
  Status local_step(bool first);
  Result<bool> run_passes();
  Status apply();
  Status finish();
  Action ask() const { return options_.action ? options_.action() : Action::kNone; }
  Status at_boundary();
  Result<bool> wait_to_begin();
  Status act(Action action);
  bool falls_on(int interval) const { return interval > 0 && iteration_ % interval == 0; }
  // What on_nan says about `what`, which is not finite. An error ends the run; true: update all the
  // same; false: the iteration was left out.
  Result<bool> judge_non_finite(const std::string& what);
  bool params_are_finite();
  void save_running_sums();
  void restore_running_sums();
  // The team.
  Team& team() { return options_.team ? *options_.team : alone_; }
  const Team& team() const { return options_.team ? *options_.team : alone_; }
  bool in_team() const { return team().size() > 1; }
  // Members are at iterations of their own, and do something together only where all have stopped
  // for it.
  bool apart() const { return options_.team != nullptr && !policy_.bounded; }
  Status stop_for_others();
  Status end_apart();
  Result<bool> wants_last_snapshot();
  Status settle_all(bool together);
  Status share_outcome(Status chiefs);
  void share_test_weights();
  double seconds() const;
  Status gather_states(RunState& run);
  RunState share_resumption(std::string& file, RunState run);
  std::vector<std::int64_t> own_iterations(const RunState& run) const;
  // Reports.
  void report_start() const;
  void observe_display(bool counts);
  void observe_test(int index, const std::vector<TestScore>& scores, double loss);
  void pass_on_averages();
  Status end_observing();
  void note_loss(float loss);
  void display();
  void display_speed(double seconds);
  double seconds_waited() const;
  void mark(Meter::Mark mark) const;
  // Tests.
  Status test_all();
  Status run_batches(int index, std::vector<TestScore>& scores, double& loss);
  Status sum_scores(std::vector<TestScore>& scores, double& loss);
  Status keep_best(const std::vector<TestScore>& scores);
  // Snapshots.
  RunState run_state() const;
  SolverState solver_state() const;
  Error rescue(Error error);
  Status write_files(const RunState& run);
  void put_states(RunState& run) const;
  void take_states(const RunState& run, const std::string& file);
  void take_replica_states(const RunState& run, const std::string& file);
  void restore_histories(const SolverState& state, const std::string& file);
  void take_over_states(const SolverMemory* own, const RunState& all, const std::string& file);
  Result<bool> leave();
  std::string read_files(const std::string& state_file, RunState& run);
  Status remove_old_snapshots();

  std::unique_ptr<SolverParameter> param_;
  SolverOptions options_;
  Team alone_;
  std::unique_ptr<Recipe> recipe_;
  std::uint64_t seed_ = 0;
  // of the train net, then of the test nets, which borrow them
  std::vector<std::unique_ptr<Context>> contexts_;
  // of all nets that train together, under batch_semantics: GLOBAL; else 0
  std::int64_t whole_batch_ = 0;
  float weight_ = 1;  // of this member's items beside others'
  std::unique_ptr<Net> net_;
  std::vector<std::unique_ptr<Net>> test_nets_;
  std::unique_ptr<Updater> updater_;
  TeamPolicy policy_;

  std::int64_t iteration_ = 0, steps_ = 0;
  int pass_ = 0;                     // of iter_size, counted from 0
  std::int64_t rate_iteration_ = 0;  // whose rate is that of the next iteration
  float rate_ = 0, last_loss_ = 0;
  std::deque<float> recent_losses_;   // at most average_loss
  std::optional<Ending> ending_;      // asked for while the loop ran
  std::uint64_t bad_iterations_ = 0;  // whose loss or gradient was not finite
  // params that forward changes, as they were before the iteration
  std::vector<std::vector<float>> running_sums_;
  Best best_;
  std::optional<std::int64_t> snapshot_at_;  // the iteration of the last snapshot
  // iterations of the snapshots of this run that are on the disk
  std::vector<std::int64_t> kept_;
  // states of the nets when the test that runs now began
  std::unique_ptr<RunState> before_test_;
  // the iteration before which the team last agreed on what to do
  std::optional<std::int64_t> agreed_at_;
  bool observed_ = false;  // by the chief's observer
  // when the displays were whose averages have not come
  std::map<std::int64_t, double> shown_seconds_;

  Clock::time_point started_at_, shown_at_;
  bool goes_on_ = false;       // from another solver's memory
  double seconds_before_ = 0;  // of those before it in the run
  std::int64_t started_iteration_ = 0, shown_iteration_ = 0;
  // in tests and snapshots since the last display
  double away_seconds_ = 0;
  // seconds_waited() and the updater's at the last display
  double shown_wait_ = 0, shown_rows_wait_ = 0;
  bool warned_of_waiting_ = false;
};

}  // namespace shoal
