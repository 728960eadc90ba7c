#include "shoal/layers/boxes.h"

#include <algorithm>
#include <numeric>

namespace shoal {

float area(const Box& box, Extent extent) {
  if (box.xmax < box.xmin || box.ymax < box.ymin) return 0;
  const float more = extent == Extent::kPixels ? 1.0f : 0.0f;
  return (box.xmax - box.xmin + more) * (box.ymax - box.ymin + more);
}

float overlap(const Box& a, const Box& b, Extent extent) {
  const Box both{std::max(a.xmin, b.xmin), std::max(a.ymin, b.ymin), std::min(a.xmax, b.xmax),
                 std::min(a.ymax, b.ymax)};
  const float common = area(both, extent);
  return common > 0 ? common / (area(a, extent) + area(b, extent) - common) : 0;
}

std::vector<std::int64_t> suppress(std::span<const Box> boxes, std::span<const float> scores,
                                   const Suppression& suppression) {
  std::vector<std::int64_t> order(boxes.size()), kept;
  std::iota(order.begin(), order.end(), 0);
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  std::ranges::stable_sort(
      order, [&](std::int64_t a, std::int64_t b) { return scores[at(a)] > scores[at(b)]; });
  if (suppression.top_k >= 0)
    order.resize(std::min(order.size(), static_cast<std::size_t>(suppression.top_k)));
  float threshold = suppression.threshold;
  for (const std::int64_t box : order) {
    const bool stays = std::ranges::none_of(kept, [&](std::int64_t better) {
      return overlap(boxes[at(box)], boxes[at(better)], suppression.extent) > threshold;
    });
    if (!stays) continue;
    kept.push_back(box);
    if (static_cast<std::int64_t>(kept.size()) == suppression.most) break;
    if (suppression.eta < 1 && threshold > 0.5f) threshold *= suppression.eta;
  }
  return kept;
}

}  // namespace shoal
