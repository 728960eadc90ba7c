// The updater over a list of exchanges.
#include "shoal/solver/exchange.h"
#include "shoal/base/try.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

namespace shoal {
namespace {

struct OwnParts final : OwnState {
  std::vector<std::shared_ptr<const OwnState>> parts;  // by exchange
};

// Passes each call to all exchanges, and the sum of their gradients' squares to each of them.
class ExchangeUpdater final : public Updater, public Checkpointed, public Recoverable {
 public:
  ExchangeUpdater(std::vector<std::unique_ptr<Exchange>> exchanges, const TeamPolicy& policy)
      : exchanges_(std::move(exchanges)), policy_(policy) {}

  const TeamPolicy& policy() const override { return policy_; }

  // Asks the exchanges: at most one of them has a pacer.
  Result<Permission> wait_to_begin(std::int64_t iteration) override {
    Permission permission{Begin::kBegin, iteration};
    for (const auto& exchange : exchanges_) {
      const Result<Permission> one = exchange->wait_to_begin(iteration);
      if (!one.ok() || one.value().begin != Begin::kBegin) return one;
      if (one.value().rate_iteration != iteration) permission = one.value();
    }
    return permission;
  }

  Status begin(std::int64_t iteration, float rate) override {
    return each([&](Exchange& exchange) { return exchange.begin(iteration, rate); });
  }
  Status before_forward(int layer) override {
    progress();
    return each([&](Exchange& exchange) { return exchange.before_forward(layer); });
  }
  Status after_backward(std::span<const int> layers) override {
    progress();
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

  // The gradients of several exchanges would all have to be examined before the first update.
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
    const bool update = how != StepEnd::kSkip;
    for (const auto& exchange : exchanges_) {
      const Result<double> squares = exchange->hand_in(update);
      TRY(squares);
      all.squares += squares.value();
    }
    const Status status =
        each([&](Exchange& exchange) { return exchange.apply(update, all.squares); });
    TRY(status);
    return StepOutcome::kApplied;
  }

  Result<bool> another_step() override {
    bool another = false;
    for (const auto& exchange : exchanges_) {
      const Result<bool> one = exchange->another_step();
      TRY(one);
      another = another || one.value();
    }
    return another;
  }

  Status settle(Settle how) override {
    if (is_recovered_) return {};
    return each([&](Exchange& exchange) { return exchange.settle(how); });
  }
  bool send_left_out() override {
    return std::ranges::count_if(exchanges_, [](const auto& one) { return one->send_left_out(); }) >
           0;
  }
  Checkpointed& state() override { return *this; }
  Recoverable* recoverable() override { return this; }
  float mean_loss(float own) override { return own; }
  std::vector<Net*> replicas() override { return {}; }

  std::optional<double> seconds_waited() const override {
    std::optional<double> seconds;
    for (const auto& exchange : exchanges_)
      if (const auto one = exchange->seconds_waited()) seconds = seconds.value_or(0) + *one;
    return seconds;
  }

  std::vector<StateRow> rows() override {
    std::vector<StateRow> all;
    for (const auto& exchange : exchanges_) std::ranges::copy(exchange->rows(), back_inserter(all));
    return all;
  }
  Status prepare_save() override {
    if (is_recovered_) return {};
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
      exchanges_[i]->take_own_state(parts && i < parts->parts.size() ? parts->parts[i] : nullptr);
  }

  // Returns the bytes of each exchange behind their number, if there are any.
  std::string own_bytes() override {
    std::string all;
    bool any = false;
    for (const auto& exchange : exchanges_) {
      const std::string bytes = exchange->own_bytes();
      const auto size = static_cast<std::uint64_t>(bytes.size());
      all.append(reinterpret_cast<const char*>(&size), sizeof size).append(bytes);
      any = any || size > 0;
    }
    return any ? all : "";
  }
  Status take_own_bytes(std::string_view bytes) override {
    for (const auto& exchange : exchanges_) {
      std::uint64_t size = 0;
      if (bytes.size() < sizeof size) return Error{Code::kConfig, "it is cut off"};
      std::memcpy(&size, bytes.data(), sizeof size);
      bytes.remove_prefix(sizeof size);
      if (size > bytes.size()) return Error{Code::kConfig, "it is cut off"};
      if (size > 0) TRY(exchange->take_own_bytes(bytes.substr(0, size)));
      bytes.remove_prefix(size);
    }
    return {};
  }

  void put(RunState& run) override {
    for (const auto& exchange : exchanges_) exchange->put(run);
  }
  void take(const RunState& run, const std::string& file) override {
    for (const auto& exchange : exchanges_) exchange->take(run, file);
  }

  // ---- after an interruption: the units of all exchanges, one exchange's behind the other's ----
  Result<Standing> interrupt() override {
    Standing all{.done = std::numeric_limits<std::int64_t>::max()};
    units_.clear();
    for (const auto& exchange : exchanges_) {
      const Result<Standing> one = exchange->interrupt();
      TRY(one);
      all.done = std::min(all.done, one.value().done);
      for (std::size_t unit = 0; unit < one.value().versions.size(); ++unit)
        units_.push_back({exchange.get(), unit});
      std::ranges::copy(one.value().versions, std::back_inserter(all.versions));
    }
    return all;
  }
  Status fetch_unit(std::size_t u) override { return units_.at(u).of->fetch_unit(units_[u].unit); }
  void give_unit(std::size_t u, std::string& out) override {
    units_.at(u).of->give_unit(units_[u].unit, out);
  }
  Status take_unit(std::size_t u, std::int64_t version, std::string_view bytes) override {
    return units_.at(u).of->take_unit(units_[u].unit, version, bytes);
  }
  void give_part(std::size_t u, std::int64_t iteration, std::string& out) override {
    units_.at(u).of->give_part(units_[u].unit, iteration, out);
  }
  Result<double> sum_parts(std::size_t u, std::int64_t iteration,
                           std::span<const std::string_view> parts) override {
    return units_.at(u).of->sum_parts(units_[u].unit, iteration, parts);
  }
  void update_unit(std::size_t u, double squares) override {
    units_.at(u).of->update_unit(units_[u].unit, squares);
  }
  void go_on_from(std::int64_t iterations, bool leads) override {
    is_recovered_ = true;
    for (const auto& exchange : exchanges_) exchange->go_on_from(iterations, leads);
  }

 private:
  struct Unit {
    Exchange* of = nullptr;
    std::size_t unit = 0;
  };
  template <class F>
  Status each(F call) {
    for (const auto& exchange : exchanges_) TRY(call(*exchange));
    return {};
  }

  void progress() {
    for (const auto& exchange : exchanges_) exchange->progress();
  }

  const std::vector<std::unique_ptr<Exchange>> exchanges_;
  const TeamPolicy policy_;
  std::vector<Unit> units_;
  bool is_recovered_ = false;  // params and histories stay as they are, and nothing is waited for
};

}  // namespace

std::unique_ptr<Updater> make_updater(std::vector<std::unique_ptr<Exchange>> exchanges,
                                      const TeamPolicy& policy) {
  return std::make_unique<ExchangeUpdater>(std::move(exchanges), policy);
}

}  // namespace shoal
