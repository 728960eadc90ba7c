// Update rules as formulas on one element, used alike by the local solver, by a table's shards and
// by device kernels.
//
// One update of one element, g being the sum of the gradients of all passes:
//   g <- g * gradient_scale          (1 / iter_size, times clip / norm)
//   g <- g + decay * w   (L2)   or   g + decay * sign(w)   (L1)
//   w <- w - rule(g, histories)
// Source: Caffe 1.0's solvers, whose results these give on the same numbers up to rounding. Their
// papers: Nesterov 1983 as in Sutskever et al. 2013; AdaGrad, Duchi et al. 2011; RMSProp, Tieleman
// and Hinton 2012; AdaDelta, Zeiler 2012; Adam, Kingma and Ba 2015.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/base/on_any_device.h"

namespace shoal::optim {

enum class Rule { kSgd, kNesterov, kAdaGrad, kRmsProp, kAdaDelta, kAdam };
enum class Regularization { kL2, kL1 };

inline constexpr int kMaxHistories = 2;

// Caffe's spelling: "SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"; case does not
// count.
std::optional<Rule> rule_named(std::string_view name);
const char* name_of(Rule rule);
std::vector<std::string> rule_names();
// Returns how many numbers a rule keeps for each element.
int histories(Rule rule);

struct RuleOptions {
  Rule rule = Rule::kSgd;
  // SGD, Nesterov; AdaDelta's decay; Adam's beta1. AdaGrad and RMSProp have none
  float momentum = 0;
  float momentum2 = 0.999f;  // Adam's beta2
  float rms_decay = 0.99f;   // RMSProp
  float delta = 1e-8f;       // AdaGrad, RMSProp, AdaDelta, Adam
  bool operator==(const RuleOptions&) const = default;
};
// Returns the first thing wrong, in words, or "".
std::string validate(const RuleOptions& options);

// The constants of one update of one param.
struct Step {
  Rule rule = Rule::kSgd;
  Regularization regularization = Regularization::kL2;
  // The rate of this iteration, times lr_mult; Adam's bias correction is in it.
  float rate = 0;
  float decay = 0;  // weight_decay times decay_mult
  float gradient_scale = 1;
  float momentum = 0, momentum2 = 0, rms_decay = 0, delta = 0;  // as in RuleOptions
};

// The values that make_step needs for one param. `iteration` counts from 0; `rate` is the solver's
// rate then.
struct StepInputs {
  std::int64_t iteration = 0;
  float rate = 0, lr_mult = 1;
  float weight_decay = 0, decay_mult = 1;
  Regularization regularization = Regularization::kL2;
  float gradient_scale = 1;
};
Step make_step(const RuleOptions& options, const StepInputs& inputs);

// ---- one element ----

// The gradient after scaling and regularization, which the rule works with.
template <Regularization kind>
SHOAL_ON_ANY_DEVICE inline float regularised(const Step& s, float g, float w) {
  g *= s.gradient_scale;
  if constexpr (kind == Regularization::kL1)
    return g + s.decay * (static_cast<float>(w > 0) - static_cast<float>(w < 0));
  else
    return g + s.decay * w;
}

// Returns the amount by which w is to be lowered. h and h2 are the element's histories, which are
// updated; a rule with fewer histories leaves the others alone.
template <Rule rule>
SHOAL_ON_ANY_DEVICE inline float take(const Step& s, float g, float& h, float& h2) {
  if constexpr (rule == Rule::kSgd) {
    return h = s.momentum * h + s.rate * g;
  } else if constexpr (rule == Rule::kNesterov) {
    const float before = h;
    h = s.momentum * h + s.rate * g;
    return (1 + s.momentum) * h - s.momentum * before;
  } else if constexpr (rule == Rule::kAdaGrad) {
    h += g * g;
    return s.rate * (g / (std::sqrt(h) + s.delta));
  } else if constexpr (rule == Rule::kRmsProp) {
    h = s.rms_decay * h + (1 - s.rms_decay) * g * g;
    return s.rate * (g / (std::sqrt(h) + s.delta));
  } else if constexpr (rule == Rule::kAdaDelta) {
    h = s.momentum * h + (1 - s.momentum) * g * g;
    const float u = g * std::sqrt((h2 + s.delta) / (h + s.delta));
    h2 = s.momentum * h2 + (1 - s.momentum) * u * u;
    return s.rate * u;
  } else {
    h = s.momentum * h + (1 - s.momentum) * g;
    h2 = s.momentum2 * h2 + (1 - s.momentum2) * g * g;
    return s.rate * h / (std::sqrt(h2) + s.delta);
  }
}

// ---- n elements ----

// Updates the n weights w by their gradients g. h and h2 are read and written as far as the rule
// has histories, and may be null beyond.
template <Rule rule, Regularization kind>
SHOAL_ON_ANY_DEVICE inline void update_elements(const Step& step, std::int64_t n, float* w,
                                                const float* g, float* h, float* h2) {
  const Step s = step;  // a local copy, which no store of the loop can change: vector code needs it
  constexpr int kept = rule == Rule::kAdaDelta || rule == Rule::kAdam ? 2 : 1;
  for (std::int64_t i = 0; i < n; ++i) {
    float first = h[i], second = 0;
    if constexpr (kept == 2) second = h2[i];
    w[i] -= take<rule>(s, regularised<kind>(s, g[i], w[i]), first, second);
    h[i] = first;
    if constexpr (kept == 2) h2[i] = second;
  }
}

// Does the same for the rule and the regularization that the step names. Both are looked at once
// for all n elements.
SHOAL_ON_ANY_DEVICE inline void update_elements(const Step& s, std::int64_t n, float* w,
                                                const float* g, float* h, float* h2) {
  const auto run = [&]<Rule rule>() {
    if (s.regularization == Regularization::kL1 && s.decay != 0)
      update_elements<rule, Regularization::kL1>(s, n, w, g, h, h2);
    else
      update_elements<rule, Regularization::kL2>(s, n, w, g, h, h2);
  };
  switch (s.rule) {
    case Rule::kSgd: return run.template operator()<Rule::kSgd>();
    case Rule::kNesterov: return run.template operator()<Rule::kNesterov>();
    case Rule::kAdaGrad: return run.template operator()<Rule::kAdaGrad>();
    case Rule::kRmsProp: return run.template operator()<Rule::kRmsProp>();
    case Rule::kAdaDelta: return run.template operator()<Rule::kAdaDelta>();
    case Rule::kAdam: return run.template operator()<Rule::kAdam>();
  }
}

}  // namespace shoal::optim
