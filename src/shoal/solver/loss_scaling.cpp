#include "shoal/solver/loss_scaling.h"

#include <algorithm>
#include <utility>

#include "shoal/base/log.h"
#include "shoal/net/net.h"
#include "shoal/ops/vector.h"
#include "shoal/proto/run.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/net_params.h"

namespace shoal {
namespace {

constexpr std::int64_t kPatience = 1000;  // steps before a larger scale is tried
constexpr float kLargest = 1 << 24;

class LossScaling final : public ForwardingUpdater {
 public:
  LossScaling(const SolverParameter& param, Net& net, std::unique_ptr<Updater> inner)
      : ForwardingUpdater(std::move(inner)),
        net_(net),
        adaptive_(param.global_grad_scale_adaptive()) {
    set_scale(param.global_grad_scale());
  }

  Status after_backward(std::span<const int> layers) override {
    ops::scale_all(net_.context(), 1 / scale_, gradients_of(net_, layers));
    return inner().after_backward(layers);
  }

  bool queues_updates() const override { return false; }  // the scale follows each outcome

  Result<StepOutcome> end_step(StepEnd how) override {
    Result<StepOutcome> outcome = inner().end_step(how);
    if (!outcome.ok() || how != StepEnd::kUpdate || !adaptive_) return outcome;
    if (outcome.value() == StepOutcome::kApplied) {
      if (++steps_ >= kPatience) set_scale(std::min(2 * scale_, kLargest));
      return outcome;
    }
    if (scale_ <= 1) return outcome;
    set_scale(std::max(1.0f, scale_ / 2));
    LOG(INFO) << "A gradient is not finite: this step is skipped, and gradients are scaled by "
              << scale_ << " from now on";
    return inner().end_step(StepEnd::kSkip);
  }

  void put(RunState& run) override {
    inner().put(run);
    run.set_loss_scale(scale_);
    run.set_steps_at_scale(steps_);
  }
  void take(const RunState& run, const std::string& file) override {
    inner().take(run, file);
    if (!run.has_loss_scale()) return;
    set_scale(run.loss_scale());
    steps_ = run.steps_at_scale();
  }

 private:
  void set_scale(float scale) {
    scale_ = scale;
    steps_ = 0;
    for (const auto& layer : net_.layers()) layer->scale_gradients(scale);
  }

  Net& net_;
  const bool adaptive_;
  float scale_ = 1;
  std::int64_t steps_ = 0;  // since the scale changed
};

}  // namespace

bool scales_loss(const SolverParameter& param, const Context& context) {
  return param.precision() == SolverParameter::FLOAT16 && !context.device().is_host();
}

bool skips_steps(const SolverParameter& param, const Context& context) {
  return scales_loss(param, context) && param.global_grad_scale_adaptive();
}

std::unique_ptr<Updater> make_loss_scaling(const SolverParameter& param, Net& net,
                                           std::unique_ptr<Updater> inner) {
  return std::make_unique<LossScaling>(param, net, std::move(inner));
}

}  // namespace shoal
