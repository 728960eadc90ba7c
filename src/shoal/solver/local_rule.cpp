#include "shoal/solver/local_rule.h"

#include <cmath>
#include <limits>
#include <utility>

#include "shoal/net/net.h"
#include "shoal/ops/vector.h"
#include "shoal/proto/solver.pb.h"

namespace shoal {

LocalRule::LocalRule(const Recipe& recipe, bool keep_gradients, Net& net, Context& context,
                     Layers layers)
    : recipe_(recipe),
      keep_gradients_(keep_gradients),
      net_(net),
      context_(context),
      layers_(std::move(layers)),
      versions_(net.params().size()) {
  for (int h = 0; h < optim::histories(recipe.rule.rule); ++h) {
    histories_.emplace_back();
    for (const NetParam& param : net.params())
      histories_.back().emplace_back(
          layers_[static_cast<std::size_t>(param.layer)] ? param.blob->shape() : Shape{0});
  }
  forget();
}

bool LocalRule::learns(const NetParam& param) const {
  return param.lr_mult != 0 && layers_[static_cast<std::size_t>(param.layer)];
}

// Clears gradients. Updates clear the gradients that they take, unless those are to be kept or will
// be overwritten.
void LocalRule::before_forward(int layer) {
  if (!keep_gradients_ || !layers_[static_cast<std::size_t>(layer)]) return;
  clear_gradients([layer](int of) { return of == layer; });
}

void LocalRule::look(int layer) {
  for (const NetParam& param : net_.params())
    if (param.layer == layer && learns(param)) fresh_.push_back(&param.blob->grad);
}

// Examines all gradients at once, since each time the device is waited for.
Gradients LocalRule::gradients() {
  if (recipe_.clip >= 0)
    looked_at_.squares += ops::sum_of_squares(context_, fresh_);
  else
    looked_at_.finite = looked_at_.finite && ops::all_finite(context_, fresh_);
  fresh_.clear();
  return looked_at_;
}

// Updates all params at once: a device has fewer launches.
void LocalRule::update(std::int64_t iteration, float rate, double squares) {
  ops::update(context_, updates_of_all(iteration, rate, squares));
  forget();
}

void LocalRule::queue_update(std::int64_t iteration, float rate, Tensor& verdict) {
  ops::judge(context_, fresh_, recipe_.clip, verdict);
  ops::update(context_, updates_of_all(iteration, rate, 0), &verdict);
  forget();
}

std::vector<ops::ParamUpdate> LocalRule::updates_of_all(std::int64_t iteration, float rate,
                                                        double squares) {
  std::vector<ops::ParamUpdate> updates;
  for (std::size_t i = 0; i < net_.params().size(); ++i)
    if (learns(net_.params()[i]) && !is_updated_[i])
      updates.push_back(update_of(i, iteration, rate, squares));
  return updates;
}

// Updates one layer, unless a clip limits the norm: its scale is known when all gradients are.
bool LocalRule::update_layer(int layer, std::int64_t iteration, float rate) {
  if (recipe_.clip >= 0 || !gradients().finite) return false;
  std::vector<ops::ParamUpdate> updates;
  for (std::size_t i = 0; i < net_.params().size(); ++i) {
    const NetParam& param = net_.params()[i];
    if (param.layer != layer || !learns(param)) continue;
    updates.push_back(update_of(i, iteration, rate, 0));
    is_updated_[i] = true;
  }
  ops::update(context_, updates);
  return true;
}

void LocalRule::skip() {
  clear_gradients([this](int layer) { return layers_[static_cast<std::size_t>(layer)]; });
  forget();
}

template <class Picks>
void LocalRule::clear_gradients(Picks picks) {
  std::vector<Tensor*> gradients;
  for (const NetParam& param : net_.params())
    if (picks(param.layer) && !param.overwritten) gradients.push_back(&param.blob->grad);
  ops::fill_all(context_, 0, gradients);
}

std::vector<Tensor*> LocalRule::histories() {
  std::vector<Tensor*> all;
  for (auto& history : histories_)
    for (std::size_t i = 0; i < history.size(); ++i) {
      const auto layer = static_cast<std::size_t>(net_.params()[i].layer);
      all.push_back(layers_[layer] ? &history[i] : nullptr);
    }
  return all;
}

std::vector<StateRow> LocalRule::rows() const {
  std::vector<StateRow> rows;
  for (std::size_t i = 0; i < net_.params().size(); ++i) {
    const NetParam& param = net_.params()[i];
    if (layers_[static_cast<std::size_t>(param.layer)])
      rows.push_back({i, 0, static_cast<std::size_t>(param.blob->data.count()), versions_[i]});
  }
  return rows;
}

float LocalRule::gradient_scale(double squares) const {
  const double norm = std::sqrt(squares);
  const double clip = recipe_.clip >= 0 && norm > recipe_.clip ? recipe_.clip / norm : 1;
  return static_cast<float>(clip / recipe_.iter_size);
}

ops::ParamUpdate LocalRule::update_of(std::size_t i, std::int64_t iteration, float rate,
                                      double squares) {
  const NetParam& param = net_.params()[i];
  const optim::StepInputs inputs{iteration,
                                 rate,
                                 param.lr_mult,
                                 recipe_.weight_decay,
                                 param.decay_mult,
                                 recipe_.regularization,
                                 gradient_scale(squares)};
  ops::ParamUpdate update{.step = optim::make_step(recipe_.rule, inputs),
                          .w = &param.blob->data,
                          .grad = &param.blob->grad,
                          .histories = {},
                          .clears = !keep_gradients_ && !param.overwritten};
  for (auto& history : histories_) update.histories.push_back(&history[i]);
  versions_[i] = iteration + 1;
  return update;
}

void LocalRule::forget() {
  fresh_.clear();
  looked_at_ = {};
  is_updated_.assign(net_.params().size(), false);
}

namespace {

// The rule applied in this process after every step: nothing is sent.
class LocalExchange final : public Exchange {
 public:
  LocalExchange(const Recipe& recipe, bool keep_gradients, Net& net, const Layers& all)
      : rule_(recipe, keep_gradients, net, net.context(), all) {
    // On a device the memory's rate limits a step: zeros need neither be written nor read.
    if (recipe.iter_size == 1 && !net.context().device().is_host()) net.overwrite_gradients(all);
  }

  Status begin(std::int64_t iteration, float rate) override {
    iteration_ = iteration;
    rate_ = rate;
    return {};
  }
  Status before_forward(int layer) override {
    rule_.before_forward(layer);
    return {};
  }
  Status after_backward(std::span<const int> layers) override {
    for (const int layer : layers) rule_.look(layer);
    return {};
  }
  std::int64_t bytes_together() const override { return std::numeric_limits<std::int64_t>::max(); }
  bool is_quiet() const override { return true; }
  Gradients gradients() override { return rule_.gradients(); }
  bool queues_updates() const override { return true; }
  void queue_update(Tensor& verdict) override { rule_.queue_update(iteration_, rate_, verdict); }
  Status apply(bool update, double squares) override {
    if (update)
      rule_.update(iteration_, rate_, squares);
    else
      rule_.skip();
    return {};
  }
  Status settle(Settle) override { return {}; }

  std::vector<StateRow> rows() override { return rule_.rows(); }
  std::vector<Tensor*> histories() override { return rule_.histories(); }
  void start_at(std::int64_t iteration, const std::vector<std::int64_t>&) override {
    rule_.start_at(iteration);
  }

 private:
  LocalRule rule_;
  std::int64_t iteration_ = 0;
  float rate_ = 0;
};

}  // namespace

std::unique_ptr<Updater> make_local_updater(const SolverParameter& param, const std::string& name,
                                            Net& net) {
  std::vector<std::unique_ptr<Exchange>> one;
  one.push_back(std::make_unique<LocalExchange>(read_recipe(param, name), param.snapshot_diff(),
                                                net, Layers(net.layers().size(), true)));
  return make_updater(std::move(one));
}

}  // namespace shoal
