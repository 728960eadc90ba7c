#include <algorithm>
#include <cmath>
#include <vector>

#include "shoal/net/net.h"
#include "shoal/ops/update.h"
#include "shoal/ops/vector.h"
#include "shoal/solver/histories.h"
#include "shoal/solver/recipe.h"
#include "shoal/solver/updater.h"

namespace shoal {
namespace {

// Looks at each gradient once while it is fresh (is it finite? its part of the norm), then updates
// all params in one pass over each.
class LocalUpdater final : public Updater {
 public:
  LocalUpdater(const Recipe& recipe, bool keep_gradients, Net& net)
      : recipe_(recipe), keep_gradients_(keep_gradients), net_(net) {
    for (int h = 0; h < optim::histories(recipe.rule.rule); ++h) {
      histories_.emplace_back();
      for (const NetParam& param : net.params())
        histories_.back().emplace_back(param.blob->shape());
    }
    forget();
  }

  Status after_backward(int layer) override {
    for (const NetParam& param : net_.params()) {
      if (param.layer != layer || param.lr_mult == 0) continue;
      if (recipe_.clip >= 0)
        squares_ += ops::sum_of_squares(net_.context(), param.blob->grad);
      else
        finite_ = finite_ && ops::all_finite(net_.context(), param.blob->grad);
    }
    return {};
  }

  Result<Outcome> update(std::int64_t iteration, float rate, NonFinite when) override {
    if (when == NonFinite::kRefuse && !(finite_ && std::isfinite(squares_)))
      return Outcome::kRefused;
    for (std::size_t i = 0; i < net_.params().size(); ++i)
      if (net_.params()[i].lr_mult != 0 && !is_updated_[i]) update_param(i, iteration, rate);
    forget();
    return Outcome::kApplied;
  }

  // The scale of a clip is known when all gradients are.
  bool update_layer(int layer, std::int64_t iteration, float rate) override {
    if (recipe_.clip >= 0 || !finite_) return false;
    for (std::size_t i = 0; i < net_.params().size(); ++i) {
      const NetParam& param = net_.params()[i];
      if (param.layer != layer || param.lr_mult == 0) continue;
      update_param(i, iteration, rate);
      is_updated_[i] = true;
    }
    return true;
  }

  Status skip(std::int64_t) override {
    net_.clear_gradients();
    forget();
    return {};
  }

  bool clears_gradients() const override { return !keep_gradients_; }

  std::vector<Tensor*> histories() override {
    std::vector<Tensor*> all;
    for (auto& history : histories_)
      for (Tensor& tensor : history) all.push_back(&tensor);
    return all;
  }

  void save(SolverState& state) const override {
    for (const auto& history : histories_)
      for (const Tensor& tensor : history) put_history(tensor.shape(), tensor.host(), state);
  }

  void restore(const SolverState& state, const std::string& file) override {
    take_histories(state, file, net_, recipe_.rule.rule,
                   [this](std::size_t h, std::size_t i, std::span<const float> numbers) {
                     std::ranges::copy(numbers, histories_[h][i].out());
                   });
  }

 private:
  float gradient_scale() const {
    const double norm = std::sqrt(squares_);
    const double clip = recipe_.clip >= 0 && norm > recipe_.clip ? recipe_.clip / norm : 1;
    return static_cast<float>(clip / recipe_.iter_size);
  }

  void update_param(std::size_t i, std::int64_t iteration, float rate) {
    const NetParam& param = net_.params()[i];
    const optim::StepInputs inputs{iteration,        rate,
                                   param.lr_mult,    recipe_.weight_decay,
                                   param.decay_mult, recipe_.regularization,
                                   gradient_scale()};
    std::vector<Tensor*> histories;
    for (auto& history : histories_) histories.push_back(&history[i]);
    ops::update(net_.context(), optim::make_step(recipe_.rule, inputs), param.blob->data,
                param.blob->grad, histories,
                keep_gradients_ ? ops::Gradient::kKeep : ops::Gradient::kClear);
  }

  void forget() {
    squares_ = 0, finite_ = true;
    is_updated_.assign(net_.params().size(), false);
  }

  const Recipe recipe_;
  const bool keep_gradients_;
  Net& net_;
  std::vector<std::vector<Tensor>> histories_;  // of the rule's history h and param i
  // sum of the squares of this iteration's gradients, if they are to be clipped
  double squares_ = 0;
  bool finite_ = true;
  std::vector<bool> is_updated_;  // params that this step has updated already
};

}  // namespace

std::unique_ptr<Updater> make_local_updater(const SolverParameter& param, const std::string& name,
                                            Net& net) {
  return std::make_unique<LocalUpdater>(read_recipe(param, name), param.snapshot_diff(), net);
}

}  // namespace shoal
