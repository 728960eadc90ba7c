#include "shoal/optim/rate.h"

#include <algorithm>
#include <cmath>

#include "shoal/base/error.h"

namespace shoal::optim {
namespace {

constexpr const char* kPolicies[] = {"fixed",     "step", "exp",     "inv",
                                     "multistep", "poly", "sigmoid", "plateau"};

// Does not round to float before the base: in Caffe one operand is an integer.
double integer_power(float gamma, std::int64_t exponent) {
  return std::pow(double{gamma}, static_cast<double>(exponent));
}

}  // namespace

std::optional<Policy> policy_named(std::string_view name) {
  const auto* found = std::find(std::begin(kPolicies), std::end(kPolicies), name);
  if (found == std::end(kPolicies)) return std::nullopt;
  return static_cast<Policy>(found - kPolicies);
}

std::vector<std::string> policy_names() { return {std::begin(kPolicies), std::end(kPolicies)}; }

std::string validate(const RateOptions& o) {
  if (!std::isfinite(o.base)) return str("base_lr is ", o.base, "; it must be finite");
  if (o.base < 0) return str("base_lr is ", o.base, "; it must not be negative");
  if (!std::isfinite(o.gamma) || !std::isfinite(o.power)) return "gamma and power must be finite";
  switch (o.policy) {
    case Policy::kFixed:
    case Policy::kExp: break;
    case Policy::kStep:
      if (o.stepsize <= 0)
        return str("stepsize is ", o.stepsize, "; lr_policy \"step\" needs one of 1 or more");
      break;
    case Policy::kInv:
      if (o.gamma < 0)
        return str("gamma is ", o.gamma, "; for lr_policy \"inv\" it must not be negative");
      break;
    case Policy::kMultistep:
      if (!std::is_sorted(o.stepvalues.begin(), o.stepvalues.end()))
        return "the stepvalues must rise";
      break;
    case Policy::kPoly:
      if (o.max_iter <= 0)
        return str("max_iter is ", o.max_iter, "; lr_policy \"poly\" needs one of 1 or more");
      break;
    case Policy::kSigmoid:
      if (o.gamma < 0)
        return str("gamma is ", o.gamma, "; for lr_policy \"sigmoid\" it must not be negative");
      if (o.stepsize <= 0)
        return str("stepsize is ", o.stepsize, "; lr_policy \"sigmoid\" needs one of 1 or more");
      break;
    case Policy::kPlateau:
      for (const std::int64_t window : o.windows)
        if (window < 1) return str("plateau_winsize is ", window, "; it must be 1 or more");
      break;
  }
  return "";
}

std::int64_t steps_taken(const RateOptions& o, std::int64_t iteration, std::int64_t before) {
  if (o.policy == Policy::kStep) return iteration / o.stepsize;
  if (o.policy != Policy::kMultistep) return before;
  const bool more = before < static_cast<std::int64_t>(o.stepvalues.size());
  return more && iteration >= o.stepvalues[static_cast<std::size_t>(before)] ? before + 1 : before;
}

std::int64_t Plateau::steps(const RateOptions& options, std::int64_t iteration, float loss,
                            std::int64_t before) {
  if (loss < least) {
    least = loss;
    since = iteration;
  }
  if (before >= static_cast<std::int64_t>(options.windows.size())) return before;
  if (iteration - since < options.windows[static_cast<std::size_t>(before)]) return before;
  since = iteration;
  return before + 1;
}

float rate_at(const RateOptions& o, std::int64_t iteration, std::int64_t steps) {
  const float i = static_cast<float>(iteration);
  switch (o.policy) {
    case Policy::kFixed: return o.base;
    case Policy::kStep:
    case Policy::kPlateau:
    case Policy::kMultistep: return static_cast<float>(o.base * integer_power(o.gamma, steps));
    case Policy::kExp: return static_cast<float>(o.base * integer_power(o.gamma, iteration));
    case Policy::kInv: return o.base * std::pow(1 + o.gamma * i, -o.power);
    case Policy::kPoly:
      // A run that goes on past max_iter would meet the root of a negative number.
      if (iteration >= o.max_iter) return 0;
      return o.base * std::pow(1 - i / static_cast<float>(o.max_iter), o.power);
    case Policy::kSigmoid:
      return o.base * (1 / (1 + std::exp(-o.gamma * (i - static_cast<float>(o.stepsize)))));
  }
  return o.base;
}

float scaled(float rate, const RateScaling& scaling, std::int64_t iteration) {
  const double part = iteration < scaling.warmup
                          ? static_cast<double>(iteration + 1) / static_cast<double>(scaling.warmup)
                          : 1;
  return static_cast<float>(rate * (1 + (scaling.factor - 1) * part));
}

}  // namespace shoal::optim
