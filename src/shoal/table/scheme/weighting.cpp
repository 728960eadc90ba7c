#include "shoal/table/scheme/weighting.h"

#include <algorithm>

namespace shoal::table {
namespace {

constexpr Choice<Weighting::Function> kFunctions[] = {
    {"none", Weighting::Function::kNone},
    {"inverse", Weighting::Function::kInverse},
    {"polynomial", Weighting::Function::kPolynomial},
    {"exponential", Weighting::Function::kExponential},
    {"cutoff", Weighting::Function::kCutoff}};
constexpr Choice<Weighting::Definition> kDefinitions[] = {
    {"counter", Weighting::Definition::kCounter}, {"version", Weighting::Definition::kVersion}};
constexpr Choice<Weighting::On> kOn[] = {{"gradient", Weighting::On::kGradient},
                                         {"rate", Weighting::On::kRate}};

}  // namespace

double Weighting::weight(Version version, Version used, Version last) const {
  const Version missed = definition == Definition::kVersion ? version - used : 1 + version - last;
  double y = std::max(floor, static_cast<double>(missed));
  if (cap > 0) y = std::min(y, cap);
  switch (function) {
    case Function::kNone: return 1;
    case Function::kInverse: return 1 / y;
    case Function::kPolynomial: return 1 / (1 + a * (y - 1));
    case Function::kExponential: return std::exp(-a * (y - 1));
    case Function::kCutoff: return y <= a ? 1 : 0;
  }
  return 1;
}

void Weighting::put(double weight, Merge& merge) const {
  (on == On::kRate ? merge.rate_scale : merge.scale) *= static_cast<float>(weight);
}

Weighting read_weighting(Parameters& parameters, Weighting::Function otherwise,
                         ContributionKind payload) {
  using Function = Weighting::Function;
  Weighting weighting;
  weighting.function = parameters.one_of("weighting", kFunctions, otherwise);
  if (weighting.function == Function::kNone) return weighting;
  weighting.definition =
      parameters.one_of("weighting_definition", kDefinitions, Weighting::Definition::kCounter);
  if (weighting.function != Function::kInverse)
    weighting.a = parameters.number("weighting_a", weighting.function == Function::kCutoff
                                                       ? Range{.least = 1}
                                                       : Range{.above = 0});
  weighting.floor = parameters.number("weighting_floor", {.least = 1}, 1);
  weighting.cap = parameters.number("weighting_cap", {.least = 0}, 0);
  if (weighting.cap > 0 && weighting.cap < weighting.floor)
    parameters.refuse("weighting_cap is below weighting_floor");
  if (payload == ContributionKind::kGradient)
    weighting.on = parameters.one_of("weighting_on", kOn, Weighting::On::kGradient);
  return weighting;
}

}  // namespace shoal::table
