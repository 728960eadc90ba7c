#include "shoal/parallel/replicas/replicas.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <iterator>
#include <thread>
#include <utility>
#include <vector>

#include "shoal/base/log.h"
#include "shoal/base/try.h"
#include "shoal/layers/factored.h"
#include "shoal/net/forward_state.h"
#include "shoal/net/net.h"
#include "shoal/ops/vector.h"
#include "shoal/parallel/replicas/replica_barrier.h"
#include "shoal/parallel/replicas/replica_numbers.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/exchange.h"
#include "shoal/solver/net_params.h"
#include "shoal/solver/recipe.h"

namespace shoal::parallel {
namespace {

Context::Options options_of(Context& first, int replica, const Device* device) {
  Share share = first.share();
  share.replica = replica;
  return {.device = device,
          .threads = first.threads(),
          .seed = first.common().state().seed,
          .share = share,
          .precision = first.precision(),
          .deterministic = first.deterministic(),
          .direct_convolution = first.direct_convolution(),
          .recordings = first.recordings(),
          .tuning = first.tuning()};
}

// Returns null if the layer adds to its params' gradients.
FactorSink* sink_of(const Layer& layer) {
  const auto* factored = dynamic_cast<const Factored*>(&layer);
  return factored ? factored->factors_go_to() : nullptr;
}

// Joins neighbouring layers whose params have at most `most` bytes in all.
std::vector<LayerRange> ranges_of(const Net& net, std::int64_t most) {
  std::vector<LayerRange> ranges;
  std::int64_t bytes = 0;
  for (int layer = 0; layer < static_cast<int>(net.layers().size()); ++layer) {
    std::int64_t own = 0;
    for (const auto& param : net.layers()[layer]->params())
      own += static_cast<std::int64_t>(param->data.bytes());
    if (ranges.empty() || most == 0 || bytes + own > most) {
      ranges.push_back({.first = layer});
      bytes = 0;
    }
    ranges.back().last = layer;
    bytes += own;
    std::vector<int>& summed = ranges.back().summed;
    if (!sink_of(*net.layers()[layer])) summed.insert(summed.begin(), layer);
  }
  return ranges;
}

struct Replica {
  Replica(const NetParameter& param, const Context::Options& options, std::size_t memory_limit,
          bool overwrites)
      : index(options.share.replica),
        context(options),
        net(param, context, {.memory_limit = memory_limit}) {
    if (overwrites) net.overwrite_gradients(Layers(net.layers().size(), true));
  }

  const int index;
  Context context;
  Net net;
  ForwardState before;  // this step, if the step may be skipped
  int pass = 0;         // of iter_size
  float loss = 0;       // of the passes so far, summed
};

class Replicas final : public ForwardingUpdater {
 public:
  Replicas(const SolverParameter& param, const std::string& name, Net& first,
           const std::vector<const Device*>& devices, std::unique_ptr<Updater> inner)
      : ForwardingUpdater(std::move(inner)),
        first_(first),
        recipe_(read_recipe(param, name)),
        ranges_(ranges_of(first, first.context().device().is_host() ? 0 : bytes_together())),
        barrier_(first.context().share().replicas, static_cast<int>(first.layers().size())) {
    std::vector<Net*> nets{&first};
    const bool overwrites = recipe_.iter_size == 1 && !first.context().device().is_host();
    for (int r = 1; r < first.context().share().replicas; ++r) {
      const Context::Options options = options_of(
          first.context(), r,
          devices.empty() ? &first.context().device() : devices[static_cast<std::size_t>(r) - 1]);
      others_.push_back(std::make_unique<Replica>(train_net_of(param, name, options.share), options,
                                                  memory_limit_of(param), overwrites));
      nets.push_back(&others_.back()->net);
      connect(*others_.back());
    }
    numbers_ = make_replica_numbers(nets, ranges_, this->inner().is_quiet());
    for (const auto& other : others_)
      threads_.emplace_back([this, &replica = *other] {
        while (barrier_.wait_begin(replica.index))
          barrier_.finished(replica.index, iterate(replica));
      });
  }

  ~Replicas() override { barrier_.close(); }

  Status begin(std::int64_t iteration, float rate) override {
    TRY(barrier_.give_up());
    TRY(inner().begin(iteration, rate));
    return begin_step();
  }

  // Asks for all params of a range before its first layer.
  Status before_forward(int layer) override {
    if (numbers_->sends_all()) return inner().before_forward(layer);
    const int at = range_of(layer);
    const LayerRange& range = ranges_[at];
    if (layer != range.first) return {};
    for (int of = range.first; of <= range.last; ++of) TRY(inner().before_forward(of));
    numbers_->send(at);
    barrier_.params_ready(range.last);
    return {};
  }

  Status after_backward(std::span<const int> layers) override {
    for (const int layer : layers) {
      const int at = range_of(layer);
      if (layer != ranges_[at].first) continue;
      TRY(barrier_.wait_backward(layer));
      numbers_->sum(at);
      summing_.push_back(at);
    }
    return finish_sums([this](int range) { return numbers_->summed(range); });
  }

  bool queues_updates() const override { return false; }
  Status look() override {
    TRY(finish_passes());
    return inner().look();
  }

  std::int64_t bytes_together() const override {
    return std::min(inner().bytes_together(), kFewBytes);
  }

  // Returns the mean. A replica knows its loss at the end of its passes; if one does not come,
  // end_step() returns the error.
  float mean_loss(float own) override {
    if (!barrier_.wait_finished().ok()) return own;
    for (const auto& other : others_) own += other->loss / static_cast<float>(recipe_.iter_size);
    return inner().mean_loss(own * share());
  }

  Result<bool> another_step() override {
    Result<bool> another = inner().another_step();
    if (!another.ok() || !another.value()) return another;
    TRY(begin_step());
    return another;
  }

  Result<StepOutcome> end_step(StepEnd how) override {
    TRY(finish_passes());
    if (how == StepEnd::kSkip && recipe_.may_skip)
      for (const auto& other : others_) other->before.restore(other->net);
    const bool finite =
        std::ranges::all_of(others_, [](const auto& other) { return std::isfinite(other->loss); });
    Result<StepOutcome> outcome = StepOutcome::kRefused;
    if (finite || how != StepEnd::kUpdate) outcome = inner().end_step(how);
    numbers_->throw_if_failed();
    if (!outcome.ok() || how == StepEnd::kSkip) return outcome;
    if (outcome.value() == StepOutcome::kApplied)
      average_running_sums();
    else
      tell_non_finite();
    return outcome;
  }

  Status settle(Settle how) override {
    TRY(barrier_.give_up());
    return inner().settle(how);
  }

  // The replicas stop, wherever they are: their passes are left out, as is this one.
  Recoverable* recoverable() override {
    (void)barrier_.give_up();
    return inner().recoverable();
  }

  std::vector<Net*> replicas() override {
    std::vector<Net*> nets;
    for (const auto& other : others_) nets.push_back(&other->net);
    return nets;
  }

 private:
  float share() const { return 1 / static_cast<float>(others_.size() + 1); }
  int range_of(int layer) const {
    const auto after = std::ranges::upper_bound(ranges_, layer, {}, &LayerRange::first);
    return static_cast<int>(after - ranges_.begin()) - 1;
  }

  Status begin_step() {
    summing_.clear();
    for (const auto& other : others_)
      for (std::size_t layer = 0; layer < first_.layers().size(); ++layer)
        other->net.layers()[layer]->scale_gradients(first_.layers()[layer]->gradient_scale());
    numbers_->begin();
    TRY(barrier_.begin());
    if (numbers_->sends_all()) barrier_.params_ready(ranges_.back().last);
    return {};
  }

  // Ends the passes of all replicas.
  Status finish_passes() {
    TRY(barrier_.wait_finished());
    return finish_sums([](int) { return true; });
  }

  // Hands on the layers of ranges whose sums have been made, in order, until `done(range)` is
  // false.
  template <class Done>
  Status finish_sums(Done done) {
    std::vector<int> made;
    std::vector<Tensor*> sums;
    for (; !summing_.empty() && done(summing_.front()); summing_.pop_front()) {
      const LayerRange& range = ranges_[summing_.front()];
      numbers_->finish(summing_.front());
      for (int layer = range.last; layer >= range.first; --layer) made.push_back(layer);
      std::ranges::copy(gradients_of(first_, range.summed), std::back_inserter(sums));
    }
    ops::scale_all(first_.context(), share(), sums);
    return made.empty() ? Status() : inner().after_backward(made);
  }

  void connect(Replica& replica) {
    for (std::size_t layer = 0; layer < first_.layers().size(); ++layer)
      if (FactorSink* const sink = sink_of(*first_.layers()[layer]))
        dynamic_cast<Factored&>(*replica.net.layers()[layer]).give_factors_to(sink);
    const auto before_forward = [this, &replica](int layer) -> Status {
      const int at = range_of(layer);
      if (replica.pass > 0 || layer != ranges_[at].first) return Status();
      TRY(barrier_.wait_params(ranges_[at].last));
      numbers_->take(replica.index, at);
      return Status();
    };
    const auto after_backward = [this, &replica](std::span<const int> layers) {
      if (replica.pass < recipe_.iter_size - 1) return Status();
      for (const int layer : layers) {
        const int at = range_of(layer);
        if (layer == ranges_[at].first) numbers_->offer(replica.index, at);
        barrier_.finished_backward(replica.index, layer);
      }
      return Status();
    };
    replica.net.before_forward(before_forward, bytes_together());
    replica.net.after_backward(after_backward, bytes_together());
  }

  // Runs on the replica's own thread.
  Status iterate(Replica& replica) {
    try {
      return pass(replica);
    } catch (const DeviceError& error) {
      return error.error();
    }
  }
  Status pass(Replica& replica) {
    replica.net.clear_gradients();
    replica.loss = 0;
    if (recipe_.may_skip) replica.before.save(replica.net);
    for (replica.pass = 0; replica.pass < recipe_.iter_size; ++replica.pass) {
      TRY(replica.net.run_forward());
      TRY(replica.net.backward());
      replica.loss += replica.net.loss();  // which waits for the device
    }
    return {};
  }

  void average_running_sums() {
    numbers_->sum_running();
    std::vector<Tensor*> sums;
    for_each_running_sum(first_, [&](Tensor& sum) { sums.push_back(&sum); });
    ops::scale_all(first_.context(), share(), sums);
  }

  // Logs the number that is not finite: the solver looks for the cause in its own net alone.
  void tell_non_finite() {
    if (std::exchange(told_, true)) return;
    for (const auto& other : others_)
      if (const std::string first = other->net.find_non_finite(); !first.empty())
        LOG(WARNING) << "replica " << other->index << ", whose loss is "
                     << other->loss / static_cast<float>(recipe_.iter_size)
                     << ": the first that is not finite: " << first;
  }

  Net& first_;
  const Recipe recipe_;
  const std::vector<LayerRange> ranges_;
  ReplicaBarrier barrier_;
  std::vector<std::unique_ptr<Replica>> others_;  // 1, 2, ...
  std::unique_ptr<ReplicaNumbers> numbers_;
  std::deque<int> summing_;  // ranges of whose layers inner() is to hear
  bool told_ = false;
  std::vector<std::jthread> threads_;  // of others_; joined first
};

}  // namespace

std::unique_ptr<Updater> make_replicas(const SolverParameter& param, const std::string& name,
                                       Net& first, const std::vector<const Device*>& devices,
                                       std::unique_ptr<Updater> inner) {
  return std::make_unique<Replicas>(param, name, first, devices, std::move(inner));
}

}  // namespace shoal::parallel
