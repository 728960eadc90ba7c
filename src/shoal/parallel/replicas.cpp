#include "shoal/parallel/replicas.h"

#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>
#include <vector>

#include "shoal/base/log.h"
#include "shoal/net/net.h"
#include "shoal/ops/vector.h"
#include "shoal/parallel/meeting.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/net_state.h"
#include "shoal/solver/recipe.h"

namespace shoal::parallel {
namespace {

Context::Options options_of(Context& first, int replica) {
  Share share = first.share();
  share.replica = replica;
  return {.device = &first.device(),
          .threads = first.threads(),
          .seed = first.common().state().seed,
          .share = share};
}

// Calls f(layer, index) for the params that a forward pass changes and no rule: running means and
// the like.
template <class F>
void for_each_running_sum(const Net& net, F f) {
  for (std::size_t layer = 0; layer < net.layers().size(); ++layer)
    for (std::size_t i = 0; i < net.layers()[layer]->params().size(); ++i)
      if (net.layers()[layer]->default_lr_mult(static_cast<int>(i)) == 0) f(layer, i);
}

struct Replica {
  Replica(const NetParameter& param, const Context::Options& options)
      : index(options.share.replica), context(options), net(param, context) {}

  Tensor& data(std::size_t layer, std::size_t i) { return net.layers()[layer]->params()[i]->data; }

  const int index;
  Context context;
  Net net;
  int pass = 0;    // of iter_size
  float loss = 0;  // of the passes so far, summed
};

class Replicas final : public Updater {
 public:
  Replicas(const SolverParameter& param, const std::string& name, Net& first,
           std::unique_ptr<Updater> inner)
      : inner_(std::move(inner)),
        first_(first),
        passes_(read_recipe(param, name).iter_size),
        meeting_(first.context().share().replicas, static_cast<int>(first.layers().size())) {
    for (int r = 1; r < first.context().share().replicas; ++r) {
      const Context::Options options = options_of(first.context(), r);
      others_.push_back(
          std::make_unique<Replica>(train_net_of(param, name, options.share), options));
      share_params(others_.back()->net);
      connect(*others_.back());
    }
    for (const auto& other : others_)
      threads_.emplace_back([this, &replica = *other] {
        while (meeting_.wait_begin(replica.index))
          meeting_.finished(replica.index, iterate(replica));
      });
  }

  ~Replicas() override { meeting_.close(); }

  Status begin(std::int64_t iteration, float rate) override {
    if (Status status = meeting_.give_up(); !status.ok()) return status;
    if (Status status = inner_->begin(iteration, rate); !status.ok()) return status;
    return meeting_.begin();
  }

  Status before_forward(int layer) override {
    if (Status status = inner_->before_forward(layer); !status.ok()) return status;
    for_each_running_sum(first_, [&](std::size_t l, std::size_t i) {
      if (l != static_cast<std::size_t>(layer)) return;
      for (const auto& other : others_) ops::copy(first_.context(), sum(l, i), other->data(l, i));
    });
    meeting_.params_ready(layer);
    return {};
  }

  Status after_backward(int layer) override {
    if (Status status = meeting_.wait_backward(layer); !status.ok()) return status;
    for (std::size_t p = 0; p < first_.params().size(); ++p) {
      const NetParam& param = first_.params()[p];
      if (param.layer != layer || param.lr_mult == 0) continue;
      for (const auto& other : others_)
        ops::axpy(first_.context(), 1, other->net.params()[p].blob->grad, param.blob->grad);
      ops::scale(first_.context(), share(), param.blob->grad);
    }
    return inner_->after_backward(layer);
  }

  float mean_loss(float own) override {
    for (const auto& other : others_) own += other->loss / static_cast<float>(passes_);
    return inner_->mean_loss(own * share());
  }

  Result<Leave> ask_leave(std::int64_t iteration) override { return inner_->ask_leave(iteration); }

  Result<bool> another_step() override {
    Result<bool> another = inner_->another_step();
    if (!another.ok() || !another.value()) return another;
    if (Status status = meeting_.begin(); !status.ok()) return status.error();
    return another;
  }

  Result<Outcome> update(std::int64_t iteration, float rate, NonFinite when) override {
    if (Status status = meeting_.wait_finished(); !status.ok()) return status.error();
    const bool finite =
        std::ranges::all_of(others_, [](const auto& other) { return std::isfinite(other->loss); });
    Result<Outcome> outcome = Outcome::kRefused;
    if (finite || when == NonFinite::kApply) outcome = inner_->update(iteration, rate, when);
    if (!outcome.ok()) return outcome;
    if (outcome.value() == Outcome::kApplied)
      average_running_sums();
    else
      tell_non_finite();
    return outcome;
  }

  Status skip(std::int64_t iteration) override {
    if (Status status = meeting_.wait_finished(); !status.ok()) return status;
    return inner_->skip(iteration);
  }

  bool clears_gradients() const override { return inner_->clears_gradients(); }
  Status settle() override { return inner_->settle(); }
  Status refresh() override { return inner_->refresh(); }
  bool bounded() const override { return inner_->bounded(); }
  bool in_step() const override { return inner_->in_step(); }
  bool shares_iterations() const override { return inner_->shares_iterations(); }
  std::int64_t rate_iteration(std::int64_t iteration) const override {
    return inner_->rate_iteration(iteration);
  }
  bool shares_running_sums() const override { return inner_->shares_running_sums(); }
  std::vector<Tensor*> histories() override { return inner_->histories(); }
  std::optional<double> seconds_waited() const override { return inner_->seconds_waited(); }
  Status prepare_save() override { return inner_->prepare_save(); }
  void save(SolverState& state) const override { inner_->save(state); }
  void restore(const SolverState& state, const std::string& file) override {
    inner_->restore(state, file);
  }

  void start_at(std::int64_t iteration, const std::vector<std::int64_t>& all) override {
    inner_->start_at(iteration, all);
  }

  void put_states(RunState& run) override {
    if (const Status status = meeting_.give_up(); !status.ok())
      LOG(WARNING) << status.error().message << "; its state is not saved";
    else
      for (const auto& other : others_) put_state(other->net, *run.add_replica());
    inner_->put_states(run);
  }

  std::shared_ptr<const OwnState> own_state() override { return inner_->own_state(); }
  void take_own_state(std::shared_ptr<const OwnState> own) override {
    inner_->take_own_state(std::move(own));
  }

  void take_over_states(const RunState* own, const std::vector<const NetRunState*>& all,
                        const std::string& file) override {
    for (std::size_t i = 0; i < others_.size(); ++i) {
      const bool known = own && static_cast<int>(i) < own->replica_size();
      take_over_state(others_[i]->net, known ? &own->replica(static_cast<int>(i)) : nullptr, all,
                      file);
    }
    inner_->take_over_states(own, all, file);
  }

  void take_states(const RunState& run, const std::string& file) override {
    const int known = run.replica_size(), wanted = static_cast<int>(others_.size());
    if (known != wanted)
      LOG(WARNING)
          << file << " is from a run with " << known + 1 << " replicas; now there are "
          << wanted + 1
          << ": the data goes on where it was, divided anew, with random numbers from the seed";
    for (int i = 0; i < wanted; ++i) {
      Net& net = others_[static_cast<std::size_t>(i)]->net;
      NetRunState state = known == wanted ? run.replica(i) : run.net(0);
      if (known != wanted) put_random(net, *state.mutable_random());
      take_state(net, state, file);
    }
    inner_->take_states(run, file);
  }

 private:
  float share() const { return 1 / static_cast<float>(others_.size() + 1); }
  Tensor& sum(std::size_t layer, std::size_t i) {
    return first_.layers()[layer]->params()[i]->data;
  }

  // All but running sums, which each pass of a net changes.
  void share_params(Net& net) {
    CHECK(net.params().size() == first_.params().size())
        << net.params().size() << " params in a replica of a net with " << first_.params().size();
    for (std::size_t layer = 0; layer < net.layers().size(); ++layer)
      for (std::size_t i = 0; i < net.layers()[layer]->params().size(); ++i)
        if (net.layers()[layer]->default_lr_mult(static_cast<int>(i)) != 0)
          net.layers()[layer]->params()[i]->data.share(sum(layer, i));
  }

  void connect(Replica& replica) {
    replica.net.before_forward([this, &replica](int layer) {
      return replica.pass == 0 ? meeting_.wait_params(layer) : Status();
    });
    replica.net.after_backward([this, &replica](int layer) {
      if (replica.pass == passes_ - 1) meeting_.finished_backward(replica.index, layer);
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
    for_each_running_sum(first_, [this](std::size_t layer, std::size_t i) {
      for (const auto& other : others_)
        ops::axpy(first_.context(), 1, other->data(layer, i), sum(layer, i));
      ops::scale(first_.context(), share(), sum(layer, i));
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

  const std::unique_ptr<Updater> inner_;
  Net& first_;
  const int passes_;
  Meeting meeting_;
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
