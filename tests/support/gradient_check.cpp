#include "support/gradient_check.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "shoal/base/random.h"

namespace shoal::test {
namespace {

constexpr float kStep = 0.01f;
constexpr std::size_t kMostElements = 256;

class Slopes {
 public:
  Slopes(LayerRig& rig, const std::vector<Numbers>& upstream) : rig_(rig), upstream_(upstream) {}

  // The slope of the objective in `x`, which is an input or a param value of the rig.
  double at(float& x) const {
    const double near = central(x, kStep), far = central(x, 2 * kStep);
    return (4 * near - far) / 3;
  }

 private:
  std::vector<Numbers> tops() const {
    rig_.load_params();
    rig_.forward();
    return rig_.top_values();
  }
  double central(float& x, float step) const {
    const float middle = x, high = middle + step, low = middle - step;
    x = high;
    const std::vector<Numbers> above = tops();
    x = low;
    const std::vector<Numbers> below = tops();
    x = middle;
    double difference = 0;
    for (std::size_t t = 0; t < upstream_.size(); ++t)
      for (std::size_t i = 0; i < upstream_[t].size(); ++i)
        if (upstream_[t][i] != 0)
          difference += double{upstream_[t][i]} * (double{above[t][i]} - double{below[t][i]});
    return difference / (double{high} - double{low});
  }

  LayerRig& rig_;
  const std::vector<Numbers>& upstream_;
};

std::vector<std::size_t> some_of(std::size_t count, Random random) {
  std::vector<std::size_t> elements(count);
  std::iota(elements.begin(), elements.end(), std::size_t{0});
  std::shuffle(elements.begin(), elements.end(), random);
  elements.resize(std::min(count, kMostElements));
  return elements;
}

// Compares one tensor: `x` is what the rig's next forward will use.
void compare(const std::string& what, const Slopes& slopes, Numbers& x, const Numbers& grad,
             Random random, GradientReport& report) {
  double largest = 0, worst = 0;
  std::string where;
  for (const std::size_t i : some_of(x.size(), random)) {
    const double slope = slopes.at(x[i]), error = std::fabs(slope - grad[i]);
    largest = std::max({largest, std::fabs(slope), std::fabs(double{grad[i]})});
    ++report.compared;
    if (error <= worst) continue;  // false for NaN too
    worst = std::isnan(error) ? INFINITY : error;
    where = str(what, "[", i, "]: backward made ", grad[i], ", the slope is ", slope);
  }
  const double relative = worst == 0 ? 0 : std::isinf(worst) ? worst : worst / largest;
  if (relative > report.worst) report.worst = relative, report.where = where;
}

}  // namespace

GradientReport check_gradient(const LayerCase& c, std::uint64_t seed, const Device* device) {
  const auto rig = make_rig(c, {.seed = seed, .device = device});
  rig->forward();
  const std::vector<Numbers> upstream = draw_top_grads(c, *rig, seed);
  std::vector<bool> propagate;
  for (const BottomSpec& spec : c.bottoms) propagate.push_back(spec.gradient);
  rig->clear_param_grads();
  rig->backward(upstream, propagate);
  const std::vector<Numbers> bottom_grads = rig->bottom_grads(), param_grads = rig->param_grads();

  GradientReport report;
  const Slopes slopes(*rig, upstream);
  const Random random(seed, stream_of("elements"));
  for (int i = 0; i < rig->bottoms(); ++i)
    if (propagate[static_cast<std::size_t>(i)])
      compare(str("bottom ", i), slopes, rig->input(i), bottom_grads[static_cast<std::size_t>(i)],
              random, report);
  for (int i = 0; c.learns && i < rig->params(); ++i)
    compare(str("param ", i), slopes, rig->param_value(i), param_grads[static_cast<std::size_t>(i)],
            random, report);
  return report;
}

}  // namespace shoal::test
