// Draws how long a worker computes, and divides measured times among layers.
#include <algorithm>
#include <cmath>

#include "shoal/base/error.h"
#include "shoal/net/net.h"
#include "shoal/simulate/compute_model.h"

namespace shoal::simulate {

double Compute::draw(std::size_t n, Random& random) const {
  if (!trace.empty()) return trace[n % trace.size()];
  switch (distribution) {
    case Distribution::kConstant: return mean;
    case Distribution::kUniform:
      return mean * (1 - jitter + 2 * jitter * static_cast<double>(random.unit()));
    case Distribution::kNormal:
      return std::max(0.1 * mean, mean * (1 + jitter * static_cast<double>(random.gaussian(0, 1))));
    case Distribution::kLognormal: {
      const double variance = std::log(1 + jitter * jitter);
      return mean * std::exp(std::sqrt(variance) * static_cast<double>(random.gaussian(0, 1)) -
                             variance / 2);
    }
    case Distribution::kExponential:
      return mean * (1 - jitter - jitter * std::log(1 - static_cast<double>(random.unit())));
  }
  return mean;
}

// Goes from one change of the factor to the next.
Instant Compute::done(Instant now, double seconds) const {
  while (true) {
    double factor = 1;
    Instant until = Instant::max();
    for (const Slow& each : slow) {
      if (each.from <= now && now < each.to) {
        factor *= each.factor;
        until = std::min(until, each.to);
      } else if (now < each.from) {
        until = std::min(until, each.from);
      }
    }
    if (factor > 0) {
      const Instant end = now + to_instant(seconds * factor);
      if (end <= until) return end;
      seconds -= to_seconds(until - now) / factor;
    }
    now = until;
  }
}

LayerShares shares_of(const Net& net, const Compute& compute) {
  if (compute.layers.empty()) return estimated_shares(net);
  LayerShares shares;
  for (const auto& layer : net.layers()) {
    const auto found = std::ranges::find(compute.layers, layer->name(), &Compute::Layer::name);
    if (found == compute.layers.end())
      throw ConfigError(Code::kConfig, "the measured times of layers have none of layer '",
                        layer->name(), "': they are another net's");
    shares.forward.push_back(found->forward);
    shares.backward.push_back(found->backward);
  }
  normalize(shares);
  return shares;
}

}  // namespace shoal::simulate
