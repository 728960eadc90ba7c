#include "shoal/table/scheme/weighting.h"

#include <algorithm>

namespace shoal::table {
double Weighting::weight(Version version, Version used, Version last) const {
  const Version missed = definition == StalenessBy::kVersion ? version - used : 1 + version - last;
  double y = std::max(floor, static_cast<double>(missed));
  if (cap > 0) y = std::min(y, cap);
  switch (function) {
    case WeightFunction::kNone: return 1;
    case WeightFunction::kInverse: return 1 / y;
    case WeightFunction::kPolynomial: return 1 / (1 + a * (y - 1));
    case WeightFunction::kExponential: return std::exp(-a * (y - 1));
    case WeightFunction::kCutoff: return y <= a ? 1 : 0;
  }
  return 1;
}

void Weighting::put(double weight, Merge& merge) const {
  (on == Weighed::kRate ? merge.rate_scale : merge.scale) *= static_cast<float>(weight);
}

Weighting read_weighting(Parameters& parameters, ContributionKind payload,
                         WeightFunction otherwise) {
  Weighting weighting;
  weighting.function = parameters.weighting(otherwise);
  if (weighting.function == WeightFunction::kNone) return weighting;
  weighting.definition = parameters.weighting_definition();
  if (weighting.function != WeightFunction::kInverse) weighting.a = parameters.weighting_a();
  if (weighting.function == WeightFunction::kCutoff && parameters.given().weighting_a)
    parameters.refuse(why_not("weighting_a", weighting.a, at_least(1)));
  weighting.floor = parameters.weighting_floor();
  weighting.cap = parameters.weighting_cap();
  if (weighting.cap > 0 && weighting.cap < weighting.floor)
    parameters.refuse("weighting_cap is below weighting_floor");
  if (payload == ContributionKind::kGradient) weighting.on = parameters.weighting_on();
  return weighting;
}

}  // namespace shoal::table
