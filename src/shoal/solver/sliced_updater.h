// Wraps an updater so that computation takes a stated time: each iteration is divided into slices
// (compute_slices.h) between those calls of the solver that may wait or send.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "shoal/base/try.h"
#include "shoal/solver/compute_slices.h"
#include "shoal/solver/updater.h"

namespace shoal {

class SlicedUpdater : public ForwardingUpdater {
 public:
  SlicedUpdater(std::unique_ptr<Updater> inner, ComputeSlices slices)
      : ForwardingUpdater(std::move(inner)), slices_(std::move(slices)) {}

  Result<Permission> wait_to_begin(std::int64_t iteration) final {
    TRY(finish_slice());
    return inner().wait_to_begin(iteration);
  }
  Status begin(std::int64_t iteration, float rate) final {
    TRY(finish_slice());
    TRY(inner().begin(iteration, rate));
    starts_step();
    return start_slice(slices_.begin);
  }
  Status before_forward(int layer) final {
    if (!has_params(layer)) return inner().before_forward(layer);
    TRY(finish_slice());
    TRY(inner().before_forward(layer));
    return start_slice(slices_.forward[static_cast<std::size_t>(layer)]);
  }
  // Each layer comes alone (bytes_together).
  Status after_backward(std::span<const int> layers) final {
    const int layer = layers[0];
    if (!has_params(layer)) return inner().after_backward(layers);
    TRY(finish_slice());
    TRY(inner().after_backward(layers));
    return start_slice(slices_.backward[static_cast<std::size_t>(layer)]);
  }
  std::int64_t bytes_together() const final { return 0; }
  bool is_quiet() const final { return false; }
  bool queues_updates() const final { return false; }
  float mean_loss(float own) final { return loss_ = inner().mean_loss(own); }

  Result<StepOutcome> end_step(StepEnd how) final {
    TRY(finish_slice());
    Result<StepOutcome> outcome = inner().end_step(how);
    if (outcome.ok() && outcome.value() == StepOutcome::kApplied)
      ends_step(how != StepEnd::kSkip, loss_);
    return outcome;
  }
  Result<bool> another_step() final {
    TRY(finish_slice());
    Result<bool> another = inner().another_step();
    if (another.ok() && !another.value()) ends_task();
    if (!another.ok() || !another.value()) return another;
    starts_step();
    TRY(start_slice(slices_.begin));
    return true;
  }

 protected:
  // Ends the slice that the last start_slice() began.
  virtual Status finish_slice() = 0;
  // Called when an iteration, or another local step of it, begins.
  virtual void starts_step() {}
  // Begins a slice that takes this part of the iteration's time.
  virtual Status start_slice(double share) = 0;
  // Called when the last step of an iteration or a task of local steps has ended.
  virtual void ends_task() {}
  // Called when an iteration or a local step has ended. `counts`: it was not skipped.
  virtual void ends_step(bool counts, float loss) {
    (void)counts;
    (void)loss;
  }

 private:
  bool has_params(int layer) const { return slices_.has_params[static_cast<std::size_t>(layer)]; }

  const ComputeSlices slices_;
  float loss_ = 0;
};

}  // namespace shoal
