// The updater over a list of exchanges, and which layer goes by which of them.
#include "shoal/solver/exchange.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "shoal/net/net.h"
#include "shoal/proto/config_error.h"

namespace shoal {
namespace {

struct OwnParts final : OwnState {
  std::vector<std::shared_ptr<const OwnState>> parts;  // by exchange
};

// Passes each call to all exchanges, and the sum of their gradients' squares to each of them.
class ExchangeUpdater final : public Updater, public Checkpointed {
 public:
  explicit ExchangeUpdater(std::vector<std::unique_ptr<Exchange>> exchanges)
      : exchanges_(std::move(exchanges)), policy_(exchanges_.front()->policy()) {
    for (const auto& exchange : exchanges_) {
      const TeamPolicy& other = exchange->policy();
      policy_.bounded = policy_.bounded && other.bounded;
      policy_.in_step = policy_.in_step || other.in_step;
      policy_.shares_iterations = policy_.shares_iterations || other.shares_iterations;
      policy_.shares_running_sums = policy_.shares_running_sums || other.shares_running_sums;
    }
  }

  const TeamPolicy& policy() const override { return policy_; }

  Result<Permission> wait_to_begin(std::int64_t iteration) override {
    Permission permission{Begin::kBegin, iteration};
    for (const auto& exchange : exchanges_) {
      const Result<Permission> one = exchange->wait_to_begin(iteration);
      if (!one.ok() || one.value().begin != Begin::kBegin) return one;
      if (exchange->policy().shares_iterations) permission = one.value();
    }
    return permission;
  }

  Status begin(std::int64_t iteration, float rate) override {
    return each([&](Exchange& exchange) { return exchange.begin(iteration, rate); });
  }
  Status before_forward(int layer) override {
    return each([&](Exchange& exchange) { return exchange.before_forward(layer); });
  }
  Status after_backward(std::span<const int> layers) override {
    return each([&](Exchange& exchange) { return exchange.after_backward(layers); });
  }

  std::int64_t bytes_together() const override {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const auto& exchange : exchanges_) least = std::min(least, exchange->bytes_together());
    return least;
  }

  bool is_quiet() const override {
    return std::ranges::all_of(exchanges_, [](const auto& one) { return one->is_quiet(); });
  }
  Status look() override {
    for (const auto& exchange : exchanges_) exchange->gradients();
    return {};
  }

  // the gradients of several would all have to be looked at before the first update
  bool queues_updates() const override {
    return exchanges_.size() == 1 && exchanges_.front()->queues_updates();
  }
  Status queue_update(Tensor& verdict) override {
    exchanges_.front()->queue_update(verdict);
    return {};
  }

  Result<StepOutcome> end_step(StepEnd how) override {
    Gradients all;
    for (const auto& exchange : exchanges_) {
      const Gradients one = exchange->gradients();
      all.finite = all.finite && one.finite;
      all.squares += one.squares;
    }
    const bool finite = all.finite && std::isfinite(all.squares);
    if (how == StepEnd::kUpdate && !finite) return StepOutcome::kRefused;
    const Status status = each(
        [&](Exchange& exchange) { return exchange.end_step(how != StepEnd::kSkip, all.squares); });
    if (!status.ok()) return status.error();
    return StepOutcome::kApplied;
  }

  Result<bool> another_step() override {
    bool another = false;
    for (const auto& exchange : exchanges_) {
      const Result<bool> one = exchange->another_step();
      if (!one.ok()) return one;
      another = another || one.value();
    }
    return another;
  }

  Status settle(Settle how) override {
    return each([&](Exchange& exchange) { return exchange.settle(how); });
  }
  Checkpointed& state() override { return *this; }
  float mean_loss(float own) override { return own; }
  std::vector<Net*> replicas() override { return {}; }

  std::optional<double> seconds_waited() const override {
    std::optional<double> seconds;
    for (const auto& exchange : exchanges_)
      if (const auto one = exchange->seconds_waited()) seconds = seconds.value_or(0) + *one;
    return seconds;
  }

  Status prepare_save() override {
    return each([](Exchange& exchange) { return exchange.prepare_save(); });
  }

  std::vector<Tensor*> histories() override {
    std::vector<Tensor*> all = exchanges_.front()->histories();
    for (std::size_t i = 1; i < exchanges_.size(); ++i) {
      const std::vector<Tensor*> others = exchanges_[i]->histories();
      for (std::size_t h = 0; h < all.size(); ++h)
        if (!all[h]) all[h] = others[h];
    }
    return all;
  }

  void start_at(std::int64_t iteration, const std::vector<std::int64_t>& all) override {
    for (const auto& exchange : exchanges_) exchange->start_at(iteration, all);
  }

  std::shared_ptr<const OwnState> own_state() override {
    const auto own = std::make_shared<OwnParts>();
    for (const auto& exchange : exchanges_) own->parts.push_back(exchange->own_state());
    return own;
  }
  void take_own_state(std::shared_ptr<const OwnState> own) override {
    const auto* parts = static_cast<const OwnParts*>(own.get());
    for (std::size_t i = 0; i < exchanges_.size(); ++i)
      exchanges_[i]->take_own_state(parts ? parts->parts.at(i) : nullptr);
  }

  void put(RunState& run) override {
    for (const auto& exchange : exchanges_) exchange->put(run);
  }
  void take(const RunState& run, const std::string& file) override {
    for (const auto& exchange : exchanges_) exchange->take(run, file);
  }

 private:
  template <class F>
  Status each(F call) {
    for (const auto& exchange : exchanges_)
      if (Status status = call(*exchange); !status.ok()) return status;
    return {};
  }

  const std::vector<std::unique_ptr<Exchange>> exchanges_;
  TeamPolicy policy_;
};

// The layer that owns a param which this layer shares, or the layer itself.
std::size_t owner_of(const Net& net, std::size_t layer) {
  for (const auto& blob : net.layers()[layer]->params())
    for (const NetParam& param : net.params())
      if (param.blob->data.shares_with(blob->data)) return static_cast<std::size_t>(param.layer);
  return layer;
}

}  // namespace

std::vector<std::size_t> routes_of(const Net& net, const std::vector<ExchangeOffer>& offers) {
  std::vector<std::size_t> routes(net.layers().size());
  for (std::size_t layer = 0; layer < routes.size(); ++layer) {
    if (const std::size_t owner = owner_of(net, layer); owner < layer) {
      routes[layer] = routes[owner];
      continue;
    }
    const Layer& of = *net.layers()[layer];
    const auto taken =
        std::ranges::find_if(offers, [&](const ExchangeOffer& offer) { return offer.takes(of); });
    if (taken == offers.end() && !of.params().empty())
      throw ConfigError(Code::kConfig, "no exchange takes the params of layer '", of.name(), "'");
    const auto last = static_cast<std::ptrdiff_t>(offers.size()) - 1;
    routes[layer] = static_cast<std::size_t>(std::min(taken - offers.begin(), last));
  }
  return routes;
}

std::unique_ptr<Updater> make_updater(Net& net, const std::vector<ExchangeOffer>& offers) {
  const std::vector<std::size_t> routes = routes_of(net, offers);
  std::vector<std::unique_ptr<Exchange>> exchanges;
  for (std::size_t offer = 0; offer < offers.size(); ++offer) {
    Layers layers(routes.size());
    bool is_used = offer + 1 == offers.size();
    for (std::size_t layer = 0; layer < routes.size(); ++layer) {
      layers[layer] = routes[layer] == offer;
      is_used = is_used || (layers[layer] && !net.layers()[layer]->params().empty());
    }
    if (is_used) exchanges.push_back(offers[offer].make(net, layers));
  }
  return std::make_unique<ExchangeUpdater>(std::move(exchanges));
}

}  // namespace shoal
