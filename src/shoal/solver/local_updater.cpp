#include <algorithm>
#include <cmath>
#include <vector>

#include "recipe.h"
#include "shoal/net/net.h"
#include "shoal/ops/update.h"
#include "shoal/ops/vector.h"
#include "shoal/proto/io.h"
#include "shoal/solver/updater.h"

namespace shoal {
namespace {

// Looks at each gradient once while it is fresh (is it finite? its part of the norm), then updates all params in one pass over each.
class LocalUpdater final : public Updater {
 public:
  LocalUpdater(const Recipe& recipe, bool keep_gradients, Net& net) : recipe_(recipe), keep_gradients_(keep_gradients), net_(net) {
    for (int h = 0; h < optim::histories(recipe.rule.rule); ++h) {
      histories_.emplace_back();
      for (const NetParam& param : net.params()) histories_.back().emplace_back(param.blob->shape());
    }
  }

  Status after_backward(int layer) override {
    for (const NetParam& param : net_.params()) {
      if (param.layer != layer || param.lr_mult == 0) continue;
      if (recipe_.clip >= 0) squares_ += ops::sum_of_squares(net_.context(), param.blob->grad);
      else finite_ = finite_ && ops::all_finite(net_.context(), param.blob->grad);
    }
    return {};
  }

  Result<Outcome> update(std::int64_t iteration, float rate, NonFinite when) override {
    if (when == NonFinite::kRefuse && !(finite_ && std::isfinite(squares_))) return Outcome::kRefused;
    optim::StepInputs inputs{iteration, rate, 1, recipe_.weight_decay, 1, recipe_.regularization, gradient_scale()};
    for (std::size_t i = 0; i < net_.params().size(); ++i) {
      const NetParam& param = net_.params()[i];
      if (param.lr_mult == 0) continue;
      inputs.lr_mult = param.lr_mult;
      inputs.decay_mult = param.decay_mult;
      std::vector<Tensor*> histories;
      for (auto& history : histories_) histories.push_back(&history[i]);
      ops::update(net_.context(), optim::make_step(recipe_.rule, inputs), param.blob->data, param.blob->grad, histories,
                  keep_gradients_ ? ops::Gradient::kKeep : ops::Gradient::kClear);
    }
    forget();
    return Outcome::kApplied;
  }

  Status skip(std::int64_t) override {
    net_.clear_gradients();
    forget();
    return {};
  }

  bool clears_gradients() const override { return !keep_gradients_; }

  void save(SolverState& state) const override {
    for (const auto& history : histories_)
      for (const Tensor& tensor : history) {
        BlobProto* blob = state.add_history();
        for (const std::int64_t dim : tensor.shape().dims()) blob->mutable_shape()->add_dim(dim);
        blob->mutable_data()->Add(tensor.host().begin(), tensor.host().end());
      }
  }

  void restore(const SolverState& state, const std::string& file) override {
    const std::size_t params = net_.params().size();
    if (state.history_size() != static_cast<int>(histories_.size() * params))
      throw ConfigError(Code::kConfig, file, " holds ", state.history_size(), " histories, and a solver of type ",
                        optim::name_of(recipe_.rule.rule), " for the ", params, " params of net '", net_.name(), "' has ",
                        histories_.size() * params, ": the file is from another net or another type of solver");
    for (std::size_t h = 0; h < histories_.size(); ++h)
      for (std::size_t i = 0; i < params; ++i)
        restore_one(histories_[h][i], net_.params()[i], state.history(static_cast<int>(h * params + i)), file);
  }

 private:
  float gradient_scale() const {
    const double norm = std::sqrt(squares_);
    const double clip = recipe_.clip >= 0 && norm > recipe_.clip ? recipe_.clip / norm : 1;
    return static_cast<float>(clip / recipe_.iter_size);
  }

  void forget() { squares_ = 0, finite_ = true; }

  // Caffe of 2014 wrote four axes for every blob: as many numbers are the same history.
  void restore_one(Tensor& history, const NetParam& param, const BlobProto& from, const std::string& file) const {
    if (from.data_size() != history.count())
      throw ConfigError(Code::kConfig, file, ": the history of param ", param.index, " of layer '",
                        net_.layers()[static_cast<std::size_t>(param.layer)]->name(), "' has shape ", Shape(blob_dims(from)).str(),
                        ", and the param ", history.shape().str(), ": the file is from another net");
    std::copy(from.data().begin(), from.data().end(), history.out());
  }

  const Recipe recipe_;
  const bool keep_gradients_;
  Net& net_;
  std::vector<std::vector<Tensor>> histories_;   // of the rule's history h and param i
  double squares_ = 0;                           // sum of the squares of this iteration's gradients, if they are to be clipped
  bool finite_ = true;
};

}  // namespace

std::unique_ptr<Updater> make_local_updater(const SolverParameter& param, const std::string& name, Net& net) {
  return std::make_unique<LocalUpdater>(read_recipe(param, name), param.snapshot_diff(), net);
}

}  // namespace shoal
