// An exchange: the way in which the gradients of some layers of a net become their new params. An
// updater is a list of exchanges, each of which owns some of the layers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shoal/solver/updater.h"

namespace shoal {

class Layer;
class Net;
class SolverParameter;

// By layer of a net: whether it belongs to an exchange.
using Layers = std::vector<bool>;

// The size and health of the gradients of a step.
struct Gradients {
  bool finite = true;
  double squares = 0;  // sum over all numbers; 0 unless the exchange needs it to clip
};

// The calls come as those of Updater do, and for every layer: an exchange acts on the params that
// its own layers own, and waits for those params in whichever layer uses them.
class Exchange : public Checkpointed {
 public:
  virtual const TeamPolicy& policy() const = 0;
  virtual Result<Permission> wait_to_begin(std::int64_t iteration) = 0;
  virtual Status begin(std::int64_t iteration, float rate) = 0;
  virtual Status before_forward(int layer) = 0;
  virtual Status after_backward(std::span<const int> layers) = 0;
  virtual std::int64_t bytes_together() const { return kFewBytes; }
  virtual bool is_quiet() const { return false; }
  // After the last after_backward: of its own layers.
  virtual Gradients gradients() = 0;
  // As Updater's.
  virtual bool queues_updates() const { return false; }
  virtual void queue_update(Tensor& /*verdict*/) {}
  // Ends the step, with an update if `update`. `squares` is the sum over all exchanges.
  virtual Status end_step(bool update, double squares) = 0;
  virtual Result<bool> another_step() = 0;
  virtual Status settle(Settle how) = 0;
  virtual std::optional<double> seconds_waited() const = 0;
};

// An exchange that takes some of a net's layers, and how it is made for them.
struct ExchangeOffer {
  std::function<bool(const Layer& layer)> takes;
  std::function<std::unique_ptr<Exchange>(Net& net, const Layers& layers)> make;
};

// By layer, the index of the first offer that takes it. Layers that share a param go with the layer
// that owns it. Throws ConfigError for a layer with params that no offer takes.
std::vector<std::size_t> routes_of(const Net& net, const std::vector<ExchangeOffer>& offers);

// Makes an exchange for each offer that gets a layer with params (the last offer's in any case) and
// an updater over them. It has the policy of the strictest.
std::unique_ptr<Updater> make_updater(Net& net, const std::vector<ExchangeOffer>& offers);

// The rule of `param` applied here, to whatever layers it is given. Throws ConfigError; `name`
// stands in front of its words.
ExchangeOffer local_offer(const SolverParameter& param, const std::string& name);
// An updater of that alone.
std::unique_ptr<Updater> make_local_updater(const SolverParameter& param, const std::string& name,
                                            Net& net);

}  // namespace shoal
