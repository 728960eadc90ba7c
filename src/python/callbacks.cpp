#include "python/callbacks.h"

#include <optional>
#include <utility>

#include "shoal/base/try.h"

namespace shoal::python {
namespace {

class Calling final : public ForwardingUpdater {
 public:
  Calling(std::unique_ptr<Updater> inner, Moments moments)
      : ForwardingUpdater(std::move(inner)), moments_(std::move(moments)) {}

  Status begin(std::int64_t iteration, float rate) override {
    iteration_ = iteration;
    rate_ = rate;
    loss_.reset();
    if (moments_.begins) TRY(moments_.begins(iteration, rate));
    return inner().begin(iteration, rate);
  }
  Status queue_update(Tensor& verdict) override {
    if (moments_.gradients) TRY(moments_.gradients());
    return inner().queue_update(verdict);
  }
  Result<StepOutcome> end_step(StepEnd how) override {
    if (how == StepEnd::kUpdate && moments_.gradients) TRY(moments_.gradients());
    return inner().end_step(how);
  }
  Result<bool> another_step() override {
    const Result<bool> another = inner().another_step();
    TRY(another);
    if (!another.value() && moments_.ends)
      TRY(moments_.ends(iteration_ + 1, rate_, loss_.value_or(0)));
    return another;
  }
  float mean_loss(float own) override {
    const float loss = inner().mean_loss(own);
    if (!loss_) loss_ = loss;  // a step after the first has other params
    return loss;
  }

 private:
  const Moments moments_;
  std::int64_t iteration_ = 0;
  float rate_ = 0;
  std::optional<float> loss_;
};

}  // namespace

std::unique_ptr<Updater> make_calling(std::unique_ptr<Updater> inner, Moments moments) {
  return std::make_unique<Calling>(std::move(inner), std::move(moments));
}

}  // namespace shoal::python
