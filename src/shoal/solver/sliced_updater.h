// Wraps an updater so that computation takes a stated time: each iteration is divided into slices
// (compute_slices.h) between those calls of the solver that may wait or send.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "shoal/solver/compute_slices.h"
#include "shoal/solver/updater.h"

namespace shoal {

class SlicedUpdater : public Updater {
 public:
  SlicedUpdater(std::unique_ptr<Updater> inner, ComputeSlices slices)
      : inner_(std::move(inner)), slices_(std::move(slices)) {}

  Result<Leave> ask_leave(std::int64_t iteration) final {
    if (Status status = finish_slice(); !status.ok()) return status.error();
    return inner_->ask_leave(iteration);
  }
  Status begin(std::int64_t iteration, float rate) final {
    if (Status status = finish_slice(); !status.ok()) return status;
    if (Status status = inner_->begin(iteration, rate); !status.ok()) return status;
    starts_step();
    return start_slice(slices_.begin);
  }
  Status before_forward(int layer) final {
    if (!has_params(layer)) return inner_->before_forward(layer);
    if (Status status = finish_slice(); !status.ok()) return status;
    if (Status status = inner_->before_forward(layer); !status.ok()) return status;
    return start_slice(slices_.forward[static_cast<std::size_t>(layer)]);
  }
  Status after_backward(int layer) final {
    if (!has_params(layer)) return inner_->after_backward(layer);
    if (Status status = finish_slice(); !status.ok()) return status;
    if (Status status = inner_->after_backward(layer); !status.ok()) return status;
    return start_slice(slices_.backward[static_cast<std::size_t>(layer)]);
  }
  float mean_loss(float own) final { return loss_ = inner_->mean_loss(own); }

  Result<Outcome> update(std::int64_t iteration, float rate, NonFinite when) final {
    if (Status status = finish_slice(); !status.ok()) return status.error();
    Result<Outcome> outcome = inner_->update(iteration, rate, when);
    if (outcome.ok() && outcome.value() == Outcome::kApplied) ends_step(true, loss_);
    return outcome;
  }
  Status skip(std::int64_t iteration) final {
    if (Status status = finish_slice(); !status.ok()) return status;
    Status status = inner_->skip(iteration);
    ends_step(false, loss_);
    return status;
  }
  Result<bool> another_step() final {
    if (Status status = finish_slice(); !status.ok()) return status.error();
    Result<bool> another = inner_->another_step();
    if (!another.ok() || !another.value()) return another;
    starts_step();
    if (Status status = start_slice(slices_.begin); !status.ok()) return status.error();
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
  // Ends the slice that the last start_slice() began.
  virtual Status finish_slice() = 0;
  // An iteration, or another local step of it, begins.
  virtual void starts_step() {}
  // Begins a slice that takes this part of the iteration's time.
  virtual Status start_slice(double share) = 0;
  // An iteration or a local step has ended. `counts`: it was not skipped.
  virtual void ends_step(bool counts, float loss) {
    (void)counts;
    (void)loss;
  }

 private:
  bool has_params(int layer) const { return slices_.has_params[static_cast<std::size_t>(layer)]; }

  const std::unique_ptr<Updater> inner_;
  const ComputeSlices slices_;
  float loss_ = 0;
};

}  // namespace shoal
