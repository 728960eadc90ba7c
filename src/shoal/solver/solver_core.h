// The shared parts of a solver: its nets, its updater and its team, which stay as they were built,
// and the progress of the loop, which only the loop changes.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shoal/proto/solver.pb.h"
#include "shoal/solver/recipe.h"
#include "shoal/solver/solver.h"

namespace shoal {

// The progress of a solver's loop. The loop changes it; the other parts of a solver read it.
struct Progress {
  std::int64_t iteration = 0;          // iterations done
  std::int64_t rate_iteration = 0;     // whose rate is that of the next iteration
  std::int64_t started_iteration = 0;  // where this solver's part of the run began
  std::int64_t steps = 0;              // of the rate
  float rate = 0;
  optim::Plateau plateau{};
  std::deque<float> recent_losses{};  // at most average_loss
  bool goes_on = false;               // from another solver's memory
  double seconds_before = 0;          // of the solvers before it in the run

  bool falls_on(int interval) const { return interval > 0 && iteration % interval == 0; }
  float smoothed_loss() const;
};

// The shared parts. Constant once built, except for the changes that nets and updater make in
// themselves.
class SolverCore {
 public:
  using Clock = std::chrono::steady_clock;
  // Builds the nets and the updater; loads no weights. `catch_up` takes the outcome of all
  // iterations that were queued ahead (RunAhead).
  SolverCore(const SolverParameter& given, SolverOptions given_options, const Progress& of_loop,
             std::function<Status()> catch_up);
  SolverCore(const SolverCore&) = delete;

  bool in_team() const { return team.size() > 1; }
  // Returns whether members are at iterations of their own, and do something together only where
  // all have stopped for it.
  bool apart() const { return options.team != nullptr && !policy.bounded; }
  bool wants_snapshots() const { return param.snapshot() > 0 || param.snapshot_after_train(); }
  Action asked() const { return options.action ? options.action() : Action::kNone; }
  std::vector<Net*> nets() const;  // the train net, then the test nets
  std::int64_t items_per_update() const;
  // Returns, for a test by test net `index`, the batches of each member that takes part.
  std::vector<std::int64_t> test_batches(int index) const;
  double own_items() const;

  void copy_weights(const std::string& model_file) const;
  // Copies the chief's layers of the test phase alone to all members. The updater brings what the
  // train net learns.
  void share_test_weights() const;
  // Puts all updates into the params, after catch_up(): of this member and, if all do this
  // `together`, of the team, the same on all members.
  Status settle_all(bool together) const;
  // Returns the chief's outcome, on all members.
  Status share_outcome(Status chiefs) const;

  const SolverParameter param;
  const Progress& progress;
  SolverOptions options;
  const Recipe recipe;
  Team alone;
  Team& team;
  // The contexts of the train net, then of the test nets, which borrow them.
  std::vector<std::unique_ptr<Context>> contexts;
  // The batch of all nets that train together, under batch_semantics: GLOBAL; else 0.
  std::int64_t whole_batch = 0;
  float weight = 1;  // of this member's items beside others'
  std::unique_ptr<Net> net;
  std::vector<std::unique_ptr<Net>> test_nets;
  std::unique_ptr<Updater> updater;
  TeamPolicy policy;
  optim::RateScaling rate_scaling;

 private:
  Context& add_context(const Share& share);
  void tuned(const std::function<void()>& build);
  void keep_tuning();
  void build_net();
  void build_test_nets();

  const std::function<Status()> catch_up_;
  std::uint64_t seed_ = 0;
};

// A part of a solver, with names for the objects it uses most.
class SolverPart {
 protected:
  explicit SolverPart(const SolverCore& core)
      : core_(core),
        progress_(core.progress),
        param_(core.param),
        options_(core.options),
        team_(core.team),
        net_(*core.net),
        updater_(*core.updater) {}

  const SolverCore& core_;
  const Progress& progress_;
  const SolverParameter& param_;
  const SolverOptions& options_;
  Team& team_;
  Net& net_;
  Updater& updater_;
};

inline double seconds_since(SolverCore::Clock::time_point start) {
  return std::chrono::duration<double>(SolverCore::Clock::now() - start).count();
}
// Returns the layers of `net` that `other` has not, with their numbers.
NetParameter own_layers(const Net& net, const Net& other);

}  // namespace shoal
