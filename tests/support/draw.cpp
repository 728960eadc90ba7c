// Makes of a LayerCase a rig with numbers in it.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "shoal/base/log.h"
#include "shoal/base/random.h"
#include "support/layer_cases.h"
#include "support/layer_rig.h"

namespace shoal::test {
namespace {

constexpr float kGap = 0.1f;  // twice the largest step of the gradient check is less

float away(float x, const std::vector<float>& kinks) {
  for (const float kink : kinks)
    if (std::fabs(x - kink) < kGap)
      x = kink + (x < kink ? -kGap : kGap) * (1 + std::fabs(x - kink));
  return x;
}

Numbers distinct_numbers(std::size_t count, int bottom, Random& random) {
  std::vector<int> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  Numbers numbers;
  for (const int rank : order)
    numbers.push_back(0.2f * (static_cast<float>(rank) - static_cast<float>(count) / 2) +
                      0.07f * static_cast<float>(bottom));
  return numbers;
}

// Returns rows of five numbers: an image and the corners of a box.
Numbers draw_rois(const BottomSpec& spec, std::size_t count, Random& random) {
  Numbers numbers;
  while (numbers.size() < count) {
    const float x = random.uniform(-0.1f, 0.8f) * spec.low,
                y = random.uniform(-0.1f, 0.8f) * spec.low;
    const auto image = static_cast<float>(random.below(static_cast<std::uint64_t>(spec.high)));
    for (const float number : {image, x, y, x + random.uniform(0, 0.4f) * spec.low,
                               y + random.uniform(0, 0.4f) * spec.low})
      numbers.push_back(number);
  }
  return numbers;
}

// Returns rows of five numbers: a class, and centre and size of a box.
Numbers draw_truths(const BottomSpec& spec, std::size_t count, Random& random) {
  Numbers numbers;
  for (int row = 1; numbers.size() < count; ++row) {
    const auto label = static_cast<float>(random.below(static_cast<std::uint64_t>(spec.high)));
    const Numbers truth = {label, random.uniform(0.05f, 0.95f), random.uniform(0.05f, 0.95f),
                           random.uniform(0.1f, 0.6f), random.uniform(0.1f, 0.6f)};
    const bool is_there = row % 4 != 0;
    for (const float number : truth) numbers.push_back(is_there ? number : 0.0f);
  }
  return numbers;
}

Numbers draw(const BottomSpec& spec, std::size_t count, int bottom, Random random) {
  using Kind = BottomSpec::Kind;
  if (spec.kind == Kind::kFixed) return spec.numbers;
  if (spec.kind == Kind::kDistinct) return distinct_numbers(count, bottom, random);
  if (spec.kind == Kind::kRois) return draw_rois(spec, count, random);
  if (spec.kind == Kind::kTruths) return draw_truths(spec, count, random);
  Numbers numbers(count);
  for (float& x : numbers) {
    switch (spec.kind) {
      case Kind::kUniform: x = random.uniform(spec.low, spec.high); break;
      case Kind::kAwayFrom: x = away(random.gaussian(0, 1), spec.kinks); break;
      case Kind::kIntegers:
        x = static_cast<float>(random.below(static_cast<std::uint64_t>(spec.high)));
        break;
      default: x = random.gaussian(0, 1);
    }
  }
  return numbers;
}

void draw_params(const LayerCase& c, LayerRig& rig, const Random& random) {
  if (c.params == ParamFill::kAsMade) return;
  for (int i = 0; i < rig.params(); ++i) {
    Random stream = random.fork(str("param ", i));
    for (float& x : rig.param_value(i))
      x = c.params == ParamFill::kPositive ? stream.uniform(0.5f, 1.5f) : stream.gaussian(0, 0.5f);
  }
  rig.load_params();
}

}  // namespace

LayerParameter layer_of(const LayerCase& c, bool in_place) {
  std::string text =
      str("layer { name: '", c.name, "' type: '", c.type, "' phase: ", Phase_Name(c.phase), " ");
  for (std::size_t i = 0; i < c.bottoms.size(); ++i) text += str("bottom: 'b", i, "' ");
  for (int i = 0; i < c.tops; ++i) text += str("top: '", i == 0 && in_place ? 'b' : 't', i, "' ");
  return parse_layer(text + c.param + " }");
}

std::vector<Shape> bottom_shapes(const LayerCase& c, int batch) {
  std::vector<Shape> shapes;
  for (const BottomSpec& spec : c.bottoms) {
    std::vector<std::int64_t> dims = spec.shape.dims();
    if (!dims.empty()) dims[0] *= batch;
    shapes.emplace_back(dims);
  }
  return shapes;
}

std::unique_ptr<LayerRig> make_rig(const LayerCase& c, const RigOptions& options) {
  auto rig =
      std::make_unique<LayerRig>(layer_of(c, options.in_place), bottom_shapes(c, options.batch),
                                 options.threads, options.seed, options.device);
  const Random random(options.seed, stream_of(c.name));
  draw_params(c, *rig, random);
  for (int i = 0; i < rig->bottoms(); ++i)
    rig->input(i) = draw(c.bottoms[static_cast<std::size_t>(i)], rig->input(i).size(), i,
                         random.fork(str("bottom ", i)));
  return rig;
}

std::vector<Numbers> draw_top_grads(const LayerCase& c, LayerRig& rig, std::uint64_t seed) {
  std::vector<Numbers> grads;
  for (int i = 0; i < rig.tops(); ++i) {
    Random random = Random(seed, stream_of(c.name)).fork(str("top ", i));
    Numbers& numbers = grads.emplace_back(static_cast<std::size_t>(rig.top(i).data.count()), 0.0f);
    if (std::ranges::count(c.zero_tops, i) > 0) continue;
    for (float& x : numbers) x = rig.has_loss() ? rig.loss_weight(i) : random.gaussian(0, 1);
  }
  return grads;
}

}  // namespace shoal::test
