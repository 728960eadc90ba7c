// How the gradients of an iteration become new params: the one thing that differs between a run on
// one machine and a distributed one. The solver knows this interface and nothing behind it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shoal/base/error.h"

namespace shoal {

class Net;
class NetRunState;
class RunState;
class SolverParameter;
class SolverState;
class Tensor;

// Called on the solver's thread, in this order, for each iteration:
//   ask_leave(iteration)
//   begin(iteration, rate)
//   and once, or for each of its local steps:
//     before_forward(i)   for every layer, first layer first, in the first of iter_size passes
//     after_backward(i)   for every layer, last layer first, in the last pass: the sums of its
//     params' gradients are complete update(...)         once; or skip() another_step()
class Updater {
 public:
  virtual ~Updater() = default;

  enum class Leave {
    kBegin,  // the iteration may begin
    kAgree,  // the team agrees on something first: take part in it, then ask again
    kOver,   // there is none to do any more: this member's part of the run is done
  };
  // Waits until the iteration may begin.
  virtual Result<Leave> ask_leave(std::int64_t iteration) {
    (void)iteration;
    return Leave::kBegin;
  }
  // `iteration` counts from 0; `rate` is the solver's in it.
  virtual Status begin(std::int64_t iteration, float rate) {
    (void)iteration, (void)rate;
    return {};
  }
  // Returns when the layer's params are those that this iteration is to see.
  virtual Status before_forward(int layer) {
    (void)layer;
    return {};
  }
  virtual Status after_backward(int layer) {
    (void)layer;
    return {};
  }

  // After the last pass: the iteration's loss, where the solver's net had `own`. More than one net
  // here may have had its part in it.
  virtual float mean_loss(float own) { return own; }

  enum class NonFinite { kRefuse, kApply };
  enum class Outcome { kApplied, kRefused };
  // Ends the step with an update at this rate. kRefused: a gradient is not finite, nothing was
  // changed, and the call may be repeated with kApply, or skip() may follow.
  virtual Result<Outcome> update(std::int64_t iteration, float rate, NonFinite when) = 0;
  // After after_backward(layer): updates the layer's params already, as update() with these would,
  // which leaves them out then. False: it cannot, and did nothing. For who hands on what a layer
  // has learned while those below it still compute.
  virtual bool update_layer(int layer, std::int64_t iteration, float rate) {
    (void)layer, (void)iteration, (void)rate;
    return false;
  }
  // Ends the step without one; its gradients are forgotten.
  virtual Status skip(std::int64_t iteration) = 0;
  // Whether another local step is part of the same iteration; if not, it is over.
  virtual Result<bool> another_step() { return false; }
  // The updater clears the params' gradients before the next step adds to them; otherwise the
  // solver does.
  virtual bool clears_gradients() const { return false; }

  // Returns when the params hold all updates so far: before a test, a snapshot, and the end.
  virtual Status settle() { return {}; }
  // After settle(): the params take whatever others added since. They are the team's from then on,
  // until the next begin().
  virtual Status refresh() { return {}; }
  // Members of a team stay so close to each other that all can test, save and stop at one
  // iteration. If not, each does so at one of its own.
  virtual bool bounded() const { return true; }
  // If not: some others are in step with this one all the same. It stops where they do, and not at
  // once.
  virtual bool in_step() const { return false; }
  // The iterations of a run are the team's, so many of each member: each goes on as long as there
  // are any, until ask_leave() says that it is over.
  virtual bool shares_iterations() const { return false; }
  // The iteration whose rate is that of `iteration`: another, where members share them.
  virtual std::int64_t rate_iteration(std::int64_t iteration) const { return iteration; }
  // What forward passes change, running means and the like, is among the params that others see;
  // otherwise the solver sees to it.
  virtual bool shares_running_sums() const { return false; }
  // Seconds spent in waiting for params so far; nothing if they are here anyway.
  virtual std::optional<double> seconds_waited() const { return {}; }

  // The rule's first history of every param, then its second, where they are here; else none.
  virtual std::vector<Tensor*> histories() { return {}; }
  // Fetches what save() is to write, where that is elsewhere. After settle().
  virtual Status prepare_save() { return {}; }
  // Adds the history to `state`, in Caffe's order.
  virtual void save(SolverState& state) const = 0;
  // Takes the history of `state`, read from `file`. Throws ConfigError unless count and shapes are
  // those of this net and rule.
  virtual void restore(const SolverState& state, const std::string& file) = 0;
  // On all members of a team, after restore() on the chief: this one goes on from this iteration.
  // `all`: whence each does, by its index, where they keep to no common clock; empty: all from this
  // one.
  virtual void start_at(std::int64_t iteration, const std::vector<std::int64_t>& all) {
    (void)iteration, (void)all;
  }
  // What an updater of a team's member has here and nobody else has, a momentum of its own say: for
  // another one of the same scheme to go on with.
  struct OwnState {
    std::vector<std::vector<float>> weights, histories;
    std::int64_t updates = 0;
  };
  // after settle(); null: nothing
  virtual std::shared_ptr<const OwnState> own_state() { return nullptr; }
  // After start_at(). Null: this member is new, and begins with the team's params and zeros.
  virtual void take_own_state(std::shared_ptr<const OwnState> own) { (void)own; }
  // What nets of the updater's own keep between iterations, to and from `run`. take_states throws
  // ConfigError.
  virtual void put_states(RunState& run) { (void)run; }
  virtual void take_states(const RunState& run, const std::string& file) { (void)run, (void)file; }
  // The same where the data is divided among other nets than before; null: this member is new.
  virtual void take_over_states(const RunState* own, const std::vector<const NetRunState*>& all,
                                const std::string& file) {
    (void)own, (void)all, (void)file;
  }
};

// The rule of `param` applied to the params of `net` here. Throws ConfigError; `name` stands in
// front of its words.
std::unique_ptr<Updater> make_local_updater(const SolverParameter& param, const std::string& name,
                                            Net& net);

}  // namespace shoal
