#include "shoal/optim/rule.h"

#include <algorithm>
#include <cctype>

#include "shoal/base/error.h"

namespace shoal::optim {
namespace {

constexpr struct {
  Rule rule;
  const char* name;
  int histories;
} kRules[] = {
    {Rule::kSgd, "SGD", 1},           {Rule::kNesterov, "Nesterov", 1},
    {Rule::kAdaGrad, "AdaGrad", 1},   {Rule::kRmsProp, "RMSProp", 1},
    {Rule::kAdaDelta, "AdaDelta", 2}, {Rule::kAdam, "Adam", 2},
};

bool same_letters(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

bool is_decay(float value) { return value >= 0 && value < 1; }

}  // namespace

std::optional<Rule> rule_named(std::string_view name) {
  for (const auto& entry : kRules)
    if (same_letters(name, entry.name)) return entry.rule;
  return std::nullopt;
}

const char* name_of(Rule rule) { return kRules[static_cast<int>(rule)].name; }
int histories(Rule rule) { return kRules[static_cast<int>(rule)].histories; }

std::vector<std::string> rule_names() {
  std::vector<std::string> names;
  for (const auto& entry : kRules) names.push_back(entry.name);
  return names;
}

std::string validate(const RuleOptions& o) {
  if (!std::isfinite(o.momentum)) return str("momentum is ", o.momentum, "; it must be finite");
  if (o.momentum < 0) return str("momentum is ", o.momentum, "; it must not be negative");
  switch (o.rule) {
    case Rule::kSgd:
    case Rule::kNesterov: return "";
    case Rule::kAdaGrad:
    case Rule::kRmsProp:
      if (o.momentum != 0)
        return str("momentum is ", o.momentum, ", and ", name_of(o.rule),
                   " has none: leave it out");
      if (o.rule == Rule::kRmsProp && !is_decay(o.rms_decay))
        return str("rms_decay is ", o.rms_decay, "; it must be in [0, 1)");
      break;
    case Rule::kAdaDelta:
    case Rule::kAdam:
      if (!is_decay(o.momentum))
        return str("momentum is ", o.momentum, "; for ", name_of(o.rule), " it must be in [0, 1)");
      if (o.rule == Rule::kAdam && !is_decay(o.momentum2))
        return str("momentum2 is ", o.momentum2, "; it must be in [0, 1)");
      break;
  }
  if (!std::isfinite(o.delta)) return str("delta is ", o.delta, "; it must be finite");
  if (o.delta < 0) return str("delta is ", o.delta, "; it must not be negative");
  return "";
}

Step make_step(const RuleOptions& o, const StepInputs& in) {
  Step step{o.rule,
            in.regularization,
            in.rate * in.lr_mult,
            in.weight_decay * in.decay_mult,
            in.gradient_scale,
            o.momentum,
            o.momentum2,
            o.rms_decay,
            o.delta};
  if (o.rule == Rule::kAdam) {
    const double t = static_cast<double>(in.iteration) + 1;
    const double correction =
        std::sqrt(1 - std::pow(double{o.momentum2}, t)) / (1 - std::pow(double{o.momentum}, t));
    step.rate = static_cast<float>(in.rate * in.lr_mult * static_cast<float>(correction));
  }
  return step;
}

}  // namespace shoal::optim
