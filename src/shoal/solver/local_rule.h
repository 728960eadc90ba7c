// A solver's update rule, applied in this process to the params of some layers of a net.
#pragma once

#include <cstdint>
#include <vector>

#include "shoal/ops/update.h"
#include "shoal/solver/exchange.h"
#include "shoal/solver/recipe.h"
#include "shoal/tensor/tensor.h"

namespace shoal {

class Net;
struct NetParam;

// Examines each gradient (is it finite? its part of the norm), then updates all params in one pass
// over each. For one step: before_forward and look of every layer, then update or skip.
class LocalRule {
 public:
  // keep_gradients: gradients stay as they are after an update, until the next forward pass.
  // `context` computes, on one thread at a time; it is of the net's device.
  LocalRule(const Recipe& recipe, bool keep_gradients, Net& net, Context& context, Layers layers);

  void before_forward(int layer);
  void look(int layer);  // its gradients are complete
  Gradients gradients();
  // `squares`: the sum over the gradients of the whole net, for a clip.
  void update(std::int64_t iteration, float rate, double squares);
  // Updates without gradients() and without a wait, where the rule has all layers: the device
  // judges the gradients (ops/update.h).
  void queue_update(std::int64_t iteration, float rate, Tensor& verdict);
  // Updates that layer's params now, after look(layer), as update() would, which then leaves them
  // out. False: only the gradients of all layers together decide how, and nothing was done.
  bool update_layer(int layer, std::int64_t iteration, float rate);
  void skip();

  // As Checkpointed has them, for its layers. Versions begin at `iteration`.
  std::vector<Tensor*> histories();
  std::vector<StateRow> rows() const;
  void start_at(std::int64_t iteration) { versions_.assign(versions_.size(), iteration); }

 private:
  bool learns(const NetParam& param) const;
  float gradient_scale(double squares) const;
  std::vector<ops::ParamUpdate> updates_of_all(std::int64_t iteration, float rate, double squares);
  ops::ParamUpdate update_of(std::size_t i, std::int64_t iteration, float rate, double squares);
  template <class Picks>
  void clear_gradients(Picks picks);  // of the layers for which picks(layer)
  void forget();

  const Recipe recipe_;
  const bool keep_gradients_;
  Net& net_;
  Context& context_;
  const Layers layers_;
  std::vector<std::vector<Tensor>> histories_;  // of the rule's history h and param i
  // This step's gradients: those not examined yet, and the results for the others.
  std::vector<const Tensor*> fresh_;
  Gradients looked_at_;
  std::vector<bool> is_updated_;        // params that this step has updated already
  std::vector<std::int64_t> versions_;  // by param
};

}  // namespace shoal
