// An exchange: the way in which the gradients of some layers of a net become their new params. An
// updater is a list of exchanges, which own every layer once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shoal/solver/recoverable.h"
#include "shoal/solver/updater.h"

namespace shoal {

class Net;
class SolverParameter;

// By layer of a net: the layer belongs to an exchange.
using Layers = std::vector<bool>;

// The size and health of the gradients of a step.
struct Gradients {
  bool finite = true;
  double squares = 0;  // sum over all numbers; 0 unless this worker alone clips them
};

// Takes the layers that it owns through a step. Called on the solver's thread, as Updater is, for
// every layer. For each step, in this order:
//   begin (the first of an iteration's steps), before_forward, after_backward,
//   gradients, hand_in, apply
// An error ends the run, but for an interruption: then the calls of Recoverable follow.
class Exchange : public Checkpointed, public Recoverable {
 public:
  // Waits until iteration `iteration` may begin. Returns the permission, or why it does not begin.
  virtual Result<Permission> wait_to_begin(std::int64_t iteration) {
    return Permission{Begin::kBegin, iteration};
  }
  virtual Status begin(std::int64_t iteration, float rate) = 0;
  // Carries on sums and updates for which other workers have sent their part. Does not wait. Called
  // before each of the two that follow.
  virtual void progress() {}
  // Returns when the layer's params are those of this iteration.
  virtual Status before_forward(int layer) = 0;
  // Begins to send the layers' gradients, which are complete.
  virtual Status after_backward(std::span<const int> layers) = 0;
  // Returns size and health of this worker's gradients. Waits for the device.
  virtual Gradients gradients() = 0;
  // Sends the gradients that have not left, or (not `update`) that there are none. Returns the sum
  // of the squares of all workers' gradients, for which it waits, if the workers are to clip them;
  // else 0.
  virtual Result<double> hand_in(bool /*update*/) { return 0; }
  // Ends the step, with an update if `update`. `squares`: those of all exchanges, both kinds.
  virtual Status apply(bool update, double squares) = 0;
  virtual Result<bool> another_step() { return false; }
  virtual Status settle(Settle how) = 0;
  virtual std::optional<double> seconds_waited() const { return std::nullopt; }
  virtual void put(RunState&) {}
  virtual void take(const RunState&, const std::string& /*file*/) {}

  // These are as in Updater.
  virtual bool send_left_out() { return false; }
  virtual std::int64_t bytes_together() const { return kFewBytes; }
  virtual bool is_quiet() const { return false; }
  virtual bool queues_updates() const { return false; }
  virtual void queue_update(Tensor& /*verdict*/) {}
};

// Makes an updater over these exchanges, one or more, of a team that this policy binds. Its calls
// reach them in this order.
std::unique_ptr<Updater> make_updater(std::vector<std::unique_ptr<Exchange>> exchanges,
                                      const TeamPolicy& policy = {});
// Makes an updater that applies the rule of `param` in this process, to all layers. Throws
// ConfigError; `name` stands in front of its words.
std::unique_ptr<Updater> make_local_updater(const SolverParameter& param, const std::string& name,
                                            Net& net);

}  // namespace shoal
