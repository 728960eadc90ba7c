// The step protocol, by which a solver's gradients become new params. An updater on one machine and
// one of a distributed run are the same to the solver.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/base/error.h"

namespace shoal {

class Net;
class Recoverable;
class RunState;
class Tensor;

// The ways in which a member of a team is bound to the others. Constant for an updater's life.
struct TeamPolicy {
  // Members stay so close to each other that all can test, save and stop at one iteration.
  // Otherwise each does so at an iteration of its own.
  bool bounded = true;
  // Some members are in lockstep though the team is not bounded: they stop at one iteration.
  bool in_step = false;
  // The iterations of a run are the team's: a member goes on until there are none left.
  bool shares_iterations = false;
  // Values that forward passes change (running means and the like) are exchanged with the params;
  // otherwise the solver averages them.
  bool shares_running_sums = false;
  // The loss of a member interrupts all others (Code::kInterrupted), since they wait for each other
  // within an iteration.
  bool is_interrupted = false;
};

// Says whether an iteration may begin.
enum class Begin {
  kBegin,  // it may
  kAgree,  // the team agrees on something first: take part in it, then ask again
  kOver,   // no iteration is left: this member's part of the run is done
};
struct Permission {
  Begin begin = Begin::kBegin;
  std::int64_t rate_iteration = 0;  // the iteration whose learning rate applies
};

// The end of a step.
enum class StepEnd {
  kUpdate,        // with an update, unless a gradient is not finite
  kUpdateAnyway,  // with an update, finite or not
  kSkip,          // without one: its gradients are forgotten
};
// kRefused: a gradient is not finite and nothing was changed; another end of the step may follow.
enum class StepOutcome { kApplied, kRefused };

// kOwn: the params hold all updates of this member. kTeams: they also hold the updates that others
// added since; the params are the team's until the next begin().
enum class Settle { kOwn, kTeams };

// The state of an updater that is this member's own, for example a momentum. Opaque to others than
// its maker.
struct OwnState {
  virtual ~OwnState() = default;
};

// Numbers of a param that are updated together: a row of a table, or the whole param.
struct StateRow {
  std::size_t param = 0, offset = 0, length = 0;  // of Net::params(); in numbers
  // Rises with each update of these numbers, and begins as the iteration at which the run does.
  // Members of a team whose params are the same have the same numbers at the same version.
  std::int64_t version = 0;
};

// Saves and restores what updates depend on beside the params. By default that is nothing but the
// histories, which are here.
class Checkpointed {
 public:
  virtual ~Checkpointed() = default;
  // Returns every number of the params once, in rows, with versions as of the last settle().
  // The numbers of a row are the param's, its histories those of histories() at the same place
  // (solver/row_state.h).
  virtual std::vector<StateRow> rows() = 0;
  // Fetches the histories if they are elsewhere, on each member that saves them. After settle().
  virtual Status prepare_save() { return {}; }
  // Returns the rule's first history of every param of the net, then its second: to save, or to
  // restore into. Null for a param whose rule is not this object's business.
  virtual std::vector<Tensor*> histories() = 0;
  // Continues the run from `iteration` with the restored histories, on all members of a team,
  // before any other call. `all[i]`: the first iteration of member i where members have clocks of
  // their own; empty if all start at `iteration`.
  virtual void start_at(std::int64_t iteration, const std::vector<std::int64_t>& all) = 0;
  // Returns the state with which another object of the same scheme continues; null if there is
  // none. After settle().
  virtual std::shared_ptr<const OwnState> own_state() { return nullptr; }
  // Takes that state, after start_at(). Null: this member is new and begins with the team's params
  // and zeros.
  virtual void take_own_state(std::shared_ptr<const OwnState>) {}
  // Returns the part of it that this member's own file of a snapshot holds ("": there is none):
  // what codecs have left out of its pushes. The other takes it, after start_at(). Its error says
  // what is wrong with the bytes.
  virtual std::string own_bytes() { return ""; }
  virtual Status take_own_bytes(std::string_view) { return {}; }
};

// Bytes of params whose transfers may begin together: a network takes a few milliseconds for them,
// in which it does nothing beside computation, and a GPU has recordings of several layers.
constexpr std::int64_t kFewBytes = 4 << 20;

// Turns gradients into new params. Called on the solver's thread. For each iteration, in this
// order:
//   wait_to_begin, begin
//   and once, or for each of its local steps:
//     before_forward(i)      for every layer, first layer first, in the first of iter_size passes
//     after_backward(i, ...) for every layer, last layer first, in the last pass: the sums of its
//                            params' gradients are complete
//     end_step, another_step
// The updater sets the gradients of the params to zero before they are added to.
class Updater {
 public:
  virtual ~Updater() = default;
  virtual const TeamPolicy& policy() const = 0;
  virtual Result<Permission> wait_to_begin(std::int64_t iteration) = 0;
  // `iteration` counts from 0; `rate` is its learning rate.
  virtual Status begin(std::int64_t iteration, float rate) = 0;
  // Returns when the layer's params are those that this step is to use.
  virtual Status before_forward(int layer) = 0;
  virtual Status after_backward(std::span<const int> layers) = 0;
  // Returns the most bytes of params of neighbouring layers for which calls may come together:
  // before_forward for one after the other, and one after_backward for all of them, as Net's hooks
  // may. 0: each layer's calls come on their own. Constant.
  virtual std::int64_t bytes_together() const = 0;
  // Returns whether the params are ready when begin() returns, and after_backward sends nothing to
  // other processes, so that a step may still be forbidden after its passes. Constant.
  virtual bool is_quiet() const = 0;
  // Requires is_quiet(). Examines the gradients, whose passes are done, so that end_step need not.
  // Waits for the device.
  virtual Status look() = 0;
  // Returns whether queue_update may take the place of end_step. Constant.
  virtual bool queues_updates() const = 0;
  // Requires queues_updates(). Does end_step(kUpdate) without a wait. The device adds to the
  // verdict what it finds in the gradients, and obeys it (ops/update.h).
  virtual Status queue_update(Tensor& verdict) = 0;
  virtual Result<StepOutcome> end_step(StepEnd how) = 0;
  // Returns whether another local step belongs to the same iteration.
  virtual Result<bool> another_step() = 0;
  virtual Status settle(Settle how) = 0;
  // Called between two iterations by a member that is to leave. Sends along with the pushes from
  // here on what codecs have left out of its pushes so far, and has them leave nothing out. Returns
  // false if they do so already, or leave nothing out anyhow.
  virtual bool send_left_out() { return false; }
  virtual Checkpointed& state() = 0;
  // Returns the calls that follow an interruption; null: there is none.
  virtual Recoverable* recoverable() { return nullptr; }
  // Write and read what the chief's snapshot holds beside histories. take throws ConfigError.
  virtual void put(RunState& run) = 0;
  virtual void take(const RunState& run, const std::string& file) = 0;

  // ---- what replicas and displays need ----
  // Returns the step's loss, after the last pass. `own`: the loss of the solver's net.
  virtual float mean_loss(float own) = 0;
  // Returns the nets that train beside the solver's. Their states belong to a snapshot. After
  // settle().
  virtual std::vector<Net*> replicas() = 0;
  // Returns the seconds spent waiting for params so far; nothing if params never come from
  // elsewhere.
  virtual std::optional<double> seconds_waited() const = 0;
};

// Passes every call on to another updater. It is the base of updaters that change a few calls.
class ForwardingUpdater : public Updater {
 public:
  explicit ForwardingUpdater(std::unique_ptr<Updater> inner) : inner_(std::move(inner)) {}
  const TeamPolicy& policy() const override { return inner_->policy(); }
  Result<Permission> wait_to_begin(std::int64_t iteration) override {
    return inner_->wait_to_begin(iteration);
  }
  Status begin(std::int64_t iteration, float rate) override {
    return inner_->begin(iteration, rate);
  }
  Status before_forward(int layer) override { return inner_->before_forward(layer); }
  Status after_backward(std::span<const int> layers) override {
    return inner_->after_backward(layers);
  }
  std::int64_t bytes_together() const override { return inner_->bytes_together(); }
  bool is_quiet() const override { return inner_->is_quiet(); }
  Status look() override { return inner_->look(); }
  bool queues_updates() const override { return inner_->queues_updates(); }
  Status queue_update(Tensor& verdict) override { return inner_->queue_update(verdict); }
  Result<StepOutcome> end_step(StepEnd how) override { return inner_->end_step(how); }
  Result<bool> another_step() override { return inner_->another_step(); }
  Status settle(Settle how) override { return inner_->settle(how); }
  bool send_left_out() override { return inner_->send_left_out(); }
  Checkpointed& state() override { return inner_->state(); }
  Recoverable* recoverable() override { return inner_->recoverable(); }
  void put(RunState& run) override { inner_->put(run); }
  void take(const RunState& run, const std::string& file) override { inner_->take(run, file); }
  float mean_loss(float own) override { return inner_->mean_loss(own); }
  std::vector<Net*> replicas() override { return inner_->replicas(); }
  std::optional<double> seconds_waited() const override { return inner_->seconds_waited(); }

 protected:
  Updater& inner() { return *inner_; }
  const Updater& inner() const { return *inner_; }

 private:
  const std::unique_ptr<Updater> inner_;
};

}  // namespace shoal
