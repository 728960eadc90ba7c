// An updater around another, for computation that takes as long as somebody says: an iteration's
// time is divided among the stretches between those of the solver's calls that have to do with the
// table.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "shoal/simulate/cluster.h"
#include "shoal/solver/updater.h"

namespace shoal::simulate {

// When an iteration's parts are computed, in parts of its time: after begin, after a layer's
// before_forward and its after_backward. Layers whose rows nobody sends have none of their own.
struct Segments {
  double begin = 0;
  std::vector<double> forward, backward;  // by layer
  // by layer: the table has something to do at its hooks
  std::vector<bool> acts;
};
Segments segments_of(const Net& net, const LayerShares& shares, int iter_size, bool overlap);

class Segmented : public Updater {
 public:
  Segmented(std::unique_ptr<Updater> inner, const Segments& segments)
      : inner_(std::move(inner)), segments_(segments) {}

  Result<Leave> ask_leave(std::int64_t iteration) final {
    if (Status status = arrive(); !status.ok()) return status.error();
    return inner_->ask_leave(iteration);
  }
  Status begin(std::int64_t iteration, float rate) final {
    if (Status status = arrive(); !status.ok()) return status;
    if (Status status = inner_->begin(iteration, rate); !status.ok()) return status;
    starts();
    return pass(segments_.begin);
  }
  Status before_forward(int layer) final {
    if (!acts(layer)) return inner_->before_forward(layer);
    if (Status status = arrive(); !status.ok()) return status;
    if (Status status = inner_->before_forward(layer); !status.ok()) return status;
    return pass(segments_.forward[static_cast<std::size_t>(layer)]);
  }
  Status after_backward(int layer) final {
    if (!acts(layer)) return inner_->after_backward(layer);
    if (Status status = arrive(); !status.ok()) return status;
    if (Status status = inner_->after_backward(layer); !status.ok()) return status;
    return pass(segments_.backward[static_cast<std::size_t>(layer)]);
  }
  float mean_loss(float own) final { return loss_ = inner_->mean_loss(own); }

  Result<Outcome> update(std::int64_t iteration, float rate, NonFinite when) final {
    if (Status status = arrive(); !status.ok()) return status.error();
    Result<Outcome> outcome = inner_->update(iteration, rate, when);
    if (outcome.ok() && outcome.value() == Outcome::kApplied) ends(true, loss_);
    return outcome;
  }
  Status skip(std::int64_t iteration) final {
    if (Status status = arrive(); !status.ok()) return status;
    Status status = inner_->skip(iteration);
    ends(false, loss_);
    return status;
  }
  Result<bool> another_step() final {
    if (Status status = arrive(); !status.ok()) return status.error();
    Result<bool> another = inner_->another_step();
    if (!another.ok() || !another.value()) return another;
    starts();
    if (Status status = pass(segments_.begin); !status.ok()) return status.error();
    return true;
  }
  bool clears_gradients() const final { return inner_->clears_gradients(); }
  Status settle() final { return inner_->settle(); }
  Status refresh() final { return inner_->refresh(); }
  bool bounded() const final { return inner_->bounded(); }
  bool in_step() const final { return inner_->in_step(); }
  bool shares_iterations() const final { return inner_->shares_iterations(); }
  std::int64_t rate_iteration(std::int64_t iteration) const final {
    return inner_->rate_iteration(iteration);
  }
  bool shares_running_sums() const final { return inner_->shares_running_sums(); }
  std::vector<Tensor*> histories() final { return inner_->histories(); }
  std::optional<double> seconds_waited() const final { return inner_->seconds_waited(); }
  Status prepare_save() final { return inner_->prepare_save(); }
  void save(SolverState& state) const final { inner_->save(state); }
  void restore(const SolverState& state, const std::string& file) final {
    inner_->restore(state, file);
  }
  void start_at(std::int64_t iteration, const std::vector<std::int64_t>& all) final {
    inner_->start_at(iteration, all);
  }
  std::shared_ptr<const OwnState> own_state() final { return inner_->own_state(); }
  void take_own_state(std::shared_ptr<const OwnState> own) final {
    inner_->take_own_state(std::move(own));
  }
  void take_over_states(const RunState* own, const std::vector<const NetRunState*>& all,
                        const std::string& file) final {
    inner_->take_over_states(own, all, file);
  }
  void put_states(RunState& run) final { inner_->put_states(run); }
  void take_states(const RunState& run, const std::string& file) final {
    inner_->take_states(run, file);
  }

 protected:
  // The stretch that began with the last pass() is over.
  virtual Status arrive() = 0;
  virtual void starts() {}  // an iteration, or another local step of it
  // A stretch begins that is such a part of the iteration's time.
  virtual Status pass(double share) = 0;
  // An iteration or local step, with this loss, unless it was left out.
  virtual void ends(bool counts, float loss) { (void)counts, (void)loss; }

 private:
  bool acts(int layer) const { return segments_.acts[static_cast<std::size_t>(layer)]; }

  const std::unique_ptr<Updater> inner_;
  const Segments segments_;
  float loss_ = 0;
};

}  // namespace shoal::simulate
