#include "shoal/parallel/replicas.h"

#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>
#include <vector>

#include "shoal/base/log.h"
#include "shoal/layers/factored.h"
#include "shoal/net/net.h"
#include "shoal/ops/vector.h"
#include "shoal/parallel/replica_barrier.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/net_params.h"
#include "shoal/solver/recipe.h"

namespace shoal::parallel {
namespace {

Context::Options options_of(Context& first, int replica) {
  Share share = first.share();
  share.replica = replica;
  return {.device = &first.device(),
          .threads = first.threads(),
          .seed = first.common().state().seed,
          .share = share,
          .precision = first.precision()};
}

// Null: the layer adds to its params' gradients.
FactorSink* sink_of(const Layer& layer) {
  const auto* factored = dynamic_cast<const Factored*>(&layer);
  return factored ? factored->factors_go_to() : nullptr;
}

struct Replica {
  Replica(const NetParameter& param, const Context::Options& options)
      : index(options.share.replica), context(options), net(param, context) {}

  Tensor& param(std::size_t layer, std::size_t i) { return net.layers()[layer]->params()[i]->data; }

  const int index;
  Context context;
  Net net;
  int pass = 0;    // of iter_size
  float loss = 0;  // of the passes so far, summed
};

class Replicas final : public ForwardingUpdater {
 public:
  Replicas(const SolverParameter& param, const std::string& name, Net& first,
           std::unique_ptr<Updater> inner)
      : ForwardingUpdater(std::move(inner)),
        first_(first),
        passes_(read_recipe(param, name).iter_size),
        barrier_(first.context().share().replicas, static_cast<int>(first.layers().size())) {
    for (int r = 1; r < first.context().share().replicas; ++r) {
      const Context::Options options = options_of(first.context(), r);
      others_.push_back(
          std::make_unique<Replica>(train_net_of(param, name, options.share), options));
      share_params(others_.back()->net);
      connect(*others_.back());
    }
    for (const auto& other : others_)
      threads_.emplace_back([this, &replica = *other] {
        while (barrier_.wait_begin(replica.index))
          barrier_.finished(replica.index, iterate(replica));
      });
  }

  ~Replicas() override { barrier_.close(); }

  Status begin(std::int64_t iteration, float rate) override {
    if (Status status = barrier_.give_up(); !status.ok()) return status;
    if (Status status = inner().begin(iteration, rate); !status.ok()) return status;
    return barrier_.begin();
  }

  Status before_forward(int layer) override {
    if (Status status = inner().before_forward(layer); !status.ok()) return status;
    const auto of = static_cast<std::size_t>(layer);
    for (std::size_t i = 0; i < first_.layers()[of]->params().size(); ++i)
      if (is_running_sum(first_, of, i))
        for (const auto& other : others_)
          ops::copy(first_.context(), param(of, i), other->param(of, i));
    barrier_.params_ready(layer);
    return {};
  }

  Status after_backward(int layer) override {
    if (Status status = barrier_.wait_backward(layer); !status.ok()) return status;
    if (sink_of(*first_.layers()[static_cast<std::size_t>(layer)]))
      return inner().after_backward(layer);
    for (std::size_t p = 0; p < first_.params().size(); ++p) {
      const NetParam& param = first_.params()[p];
      if (param.layer != layer || param.lr_mult == 0) continue;
      for (const auto& other : others_)
        ops::axpy(first_.context(), 1, other->net.params()[p].blob->grad, param.blob->grad);
      ops::scale(first_.context(), share(), param.blob->grad);
    }
    return inner().after_backward(layer);
  }

  float mean_loss(float own) override {
    for (const auto& other : others_) own += other->loss / static_cast<float>(passes_);
    return inner().mean_loss(own * share());
  }

  Result<bool> another_step() override {
    Result<bool> another = inner().another_step();
    if (!another.ok() || !another.value()) return another;
    if (Status status = barrier_.begin(); !status.ok()) return status.error();
    return another;
  }

  Result<StepOutcome> end_step(StepEnd how) override {
    if (Status status = barrier_.wait_finished(); !status.ok()) return status.error();
    const bool finite =
        std::ranges::all_of(others_, [](const auto& other) { return std::isfinite(other->loss); });
    Result<StepOutcome> outcome = StepOutcome::kRefused;
    if (finite || how != StepEnd::kUpdate) outcome = inner().end_step(how);
    if (!outcome.ok() || how == StepEnd::kSkip) return outcome;
    if (outcome.value() == StepOutcome::kApplied)
      average_running_sums();
    else
      tell_non_finite();
    return outcome;
  }

  Status settle(Settle how) override {
    if (Status status = barrier_.give_up(); !status.ok()) return status;
    return inner().settle(how);
  }

  std::vector<Net*> replicas() override {
    std::vector<Net*> nets;
    for (const auto& other : others_) nets.push_back(&other->net);
    return nets;
  }

 private:
  float share() const { return 1 / static_cast<float>(others_.size() + 1); }
  Tensor& param(std::size_t layer, std::size_t i) {
    return first_.layers()[layer]->params()[i]->data;
  }

  // All but running sums, which each pass of a net changes.
  void share_params(Net& net) {
    CHECK(net.params().size() == first_.params().size())
        << net.params().size() << " params in a replica of a net with " << first_.params().size();
    for (std::size_t layer = 0; layer < net.layers().size(); ++layer)
      for (std::size_t i = 0; i < net.layers()[layer]->params().size(); ++i)
        if (!is_running_sum(net, layer, i))
          net.layers()[layer]->params()[i]->data.share(param(layer, i));
  }

  void connect(Replica& replica) {
    for (std::size_t layer = 0; layer < first_.layers().size(); ++layer)
      if (FactorSink* const sink = sink_of(*first_.layers()[layer]))
        dynamic_cast<Factored&>(*replica.net.layers()[layer]).give_factors_to(sink);
    replica.net.before_forward([this, &replica](int layer) {
      return replica.pass == 0 ? barrier_.wait_params(layer) : Status();
    });
    replica.net.after_backward([this, &replica](int layer) {
      if (replica.pass == passes_ - 1) barrier_.finished_backward(replica.index, layer);
      return Status();
    });
  }

  // On the replica's own thread.
  Status iterate(Replica& replica) {
    replica.net.clear_gradients();
    replica.loss = 0;
    for (replica.pass = 0; replica.pass < passes_; ++replica.pass) {
      const Result<float> loss = replica.net.forward();
      if (!loss.ok()) return loss.error();
      replica.loss += loss.value();
      if (Status status = replica.net.backward(); !status.ok()) return status;
    }
    return {};
  }

  void average_running_sums() {
    for_each_running_sum(first_, [this](Tensor& sum, std::size_t layer, std::size_t i) {
      for (const auto& other : others_) ops::axpy(first_.context(), 1, other->param(layer, i), sum);
      ops::scale(first_.context(), share(), sum);
    });
  }

  // The solver looks for the cause in its own net alone.
  void tell_non_finite() {
    if (std::exchange(told_, true)) return;
    for (const auto& other : others_)
      if (const std::string first = other->net.find_non_finite(); !first.empty())
        LOG(WARNING) << "replica " << other->index << ", whose loss is "
                     << other->loss / static_cast<float>(passes_)
                     << ": the first that is not finite: " << first;
  }

  Net& first_;
  const int passes_;
  ReplicaBarrier barrier_;
  std::vector<std::unique_ptr<Replica>> others_;  // 1, 2, ...
  bool told_ = false;
  std::vector<std::jthread> threads_;  // of others_; joined first
};

}  // namespace

std::unique_ptr<Updater> make_replicas(const SolverParameter& param, const std::string& name,
                                       Net& first, std::unique_ptr<Updater> inner) {
  return std::make_unique<Replicas>(param, name, first, std::move(inner));
}

}  // namespace shoal::parallel
