// How long a worker computes, and how that is divided among layers.
#include <algorithm>
#include <cmath>

#include "shoal/base/error.h"
#include "shoal/net/net.h"
#include "shoal/simulate/cluster.h"

namespace shoal::simulate {
namespace {

constexpr double kElement = 10;  // what it takes to go over an element, in multiply-adds

// Of a forward pass, in multiply-adds.
double work_of(const Net& net, int layer) {
  const Layer& each = *net.layers()[static_cast<std::size_t>(layer)];
  // reads data, beside the others' work
  if (net.bottoms(layer).empty()) return 0;
  double work = 0;
  for (const Blob* bottom : net.bottoms(layer))
    work += kElement * static_cast<double>(bottom->data.count());
  for (const Blob* top : net.tops(layer)) work += kElement * static_cast<double>(top->data.count());
  const bool multiplies = each.type() == "Convolution" || each.type() == "Deconvolution" ||
                          each.type() == "InnerProduct";
  if (!multiplies) return work;
  const Blob& many = each.type() == "Deconvolution" ? *net.bottoms(layer)[0] : *net.tops(layer)[0];
  const auto outputs = static_cast<double>(many.shape().axes() > 1 ? many.shape()[1] : 1);
  return work + static_cast<double>(each.params()[0]->data.count()) *
                    static_cast<double>(many.data.count()) / outputs;
}

}  // namespace

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

// From one change of the factor to the next.
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
  LayerShares shares;
  double sum = 0;
  for (int i = 0; i < static_cast<int>(net.layers().size()); ++i) {
    double forward = 0, backward = 0;
    if (compute.layers.empty()) {
      forward = work_of(net, i);
      const bool learns = !net.layers()[static_cast<std::size_t>(i)]->params().empty();
      backward = net.needs_backward(i) ? forward * (learns ? 2 : 1) : 0;
    } else {
      const std::string& name = net.layers()[static_cast<std::size_t>(i)]->name();
      const auto found = std::ranges::find(compute.layers, name, &Compute::Layer::name);
      if (found == compute.layers.end())
        throw ConfigError(Code::kConfig, "the measured times of layers have none of layer '", name,
                          "': they are another net's");
      forward = found->forward, backward = found->backward;
    }
    shares.forward.push_back(forward);
    shares.backward.push_back(backward);
    sum += forward + backward;
  }
  if (sum == 0) shares.forward.back() = sum = 1;
  for (double& share : shares.forward) share /= sum;
  for (double& share : shares.backward) share /= sum;
  return shares;
}

}  // namespace shoal::simulate
