#include "shoal/data/box_parts.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "shoal/proto/detection.pb.h"

namespace shoal {
namespace {

float area_of(const BoxPart& box) {
  return std::max(box.width(), 0.0f) * std::max(box.height(), 0.0f);
}

BoxPart common(const BoxPart& a, const BoxPart& b) {
  return {std::max(a.xmin, b.xmin), std::max(a.ymin, b.ymin), std::min(a.xmax, b.xmax),
          std::min(a.ymax, b.ymax)};
}

// Draws a part by its side and its shape, which are bound so that it fits.
BoxPart draw_part(const Sampler& sampler, Random& random) {
  const float scale = random.uniform(sampler.min_scale(), sampler.max_scale());
  const float drawn = random.uniform(sampler.min_aspect_ratio(), sampler.max_aspect_ratio());
  const float square = scale * scale;
  const float ratio = std::min(std::max(drawn, square), 1 / square);
  const float width = std::min(scale * std::sqrt(ratio), 1.0f),
              height = std::min(scale / std::sqrt(ratio), 1.0f);
  const float x = random.uniform(0, 1 - width), y = random.uniform(0, 1 - height);
  return {x, y, x + width, y + height};
}

bool satisfies(const BoxPart& part, const BoxPart& box, const SampleConstraint& constraint) {
  const auto within = [](float x, bool has_least, float least, bool has_most, float most) {
    return !(has_least && x < least) && !(has_most && x > most);
  };
  const SampleConstraint& c = constraint;
  return within(shared_part(part, box), c.has_min_jaccard_overlap(), c.min_jaccard_overlap(),
                c.has_max_jaccard_overlap(), c.max_jaccard_overlap()) &&
         within(covered_part(part, box), c.has_min_sample_coverage(), c.min_sample_coverage(),
                c.has_max_sample_coverage(), c.max_sample_coverage()) &&
         within(covered_part(box, part), c.has_min_object_coverage(), c.min_object_coverage(),
                c.has_max_object_coverage(), c.max_object_coverage());
}

bool is_constrained(const SampleConstraint& c) {
  return c.has_min_jaccard_overlap() || c.has_max_jaccard_overlap() ||
         c.has_min_sample_coverage() || c.has_max_sample_coverage() ||
         c.has_min_object_coverage() || c.has_max_object_coverage();
}

}  // namespace

float shared_part(const BoxPart& a, const BoxPart& b) {
  const float both = area_of(common(a, b));
  return both > 0 ? both / (area_of(a) + area_of(b) - both) : 0;
}

float covered_part(const BoxPart& box, const BoxPart& area) {
  const float both = area_of(common(box, area));
  return both > 0 ? both / area_of(box) : 0;
}

std::optional<BoxPart> project(const BoxPart& box, const BoxPart& area) {
  const auto x = [&](float at) { return std::clamp((at - area.xmin) / area.width(), 0.0f, 1.0f); };
  const auto y = [&](float at) { return std::clamp((at - area.ymin) / area.height(), 0.0f, 1.0f); };
  const BoxPart part{x(box.xmin), y(box.ymin), x(box.xmax), y(box.ymax)};
  if (!(area_of(part) > 0)) return std::nullopt;
  return part;
}

bool is_kept(const BoxPart& box, const BoxPart& area, const EmitConstraint& constraint) {
  if (constraint.emit_type() == EmitConstraint::MIN_OVERLAP)
    return covered_part(box, area) > constraint.emit_overlap();
  const float x = (box.xmin + box.xmax) / 2, y = (box.ymin + box.ymax) / 2;
  return x >= area.xmin && x <= area.xmax && y >= area.ymin && y <= area.ymax;
}

void project_all(const BoxPart& area, const EmitConstraint* constraint,
                 std::vector<TruePart>& boxes) {
  std::vector<TruePart> kept;
  for (TruePart& one : boxes) {
    if (constraint && !is_kept(one.box, area, *constraint)) continue;
    const std::optional<BoxPart> part = project(one.box, area);
    if (!part) continue;
    one.box = *part;
    kept.push_back(one);
  }
  boxes = std::move(kept);
}

std::vector<BoxPart> sample_parts(std::span<const BatchSampler> samplers,
                                  const std::vector<TruePart>& boxes, Random& random) {
  std::vector<BoxPart> found;
  for (const BatchSampler& sampler : samplers) {
    if (!sampler.use_original_image()) continue;
    std::uint32_t samples = 0;
    for (std::uint32_t trial = 0; trial < sampler.max_trials(); ++trial) {
      if (sampler.has_max_sample() && samples >= sampler.max_sample()) break;
      const BoxPart part = draw_part(sampler.sampler(), random);
      const SampleConstraint& constraint = sampler.sample_constraint();
      if (is_constrained(constraint) && std::ranges::none_of(boxes, [&](const TruePart& one) {
            return satisfies(part, one.box, constraint);
          }))
        continue;
      found.push_back(part);
      ++samples;
    }
  }
  return found;
}

BoxPart jittered_part(float jitter, bool keeps_shape, Random& random) {
  const float kind = random.unit();
  if (kind < 0.2f) return {};
  const float most = kind < 0.4f ? jitter / 2 : jitter;
  const float width = random.uniform(1 - most, 1),
              height = keeps_shape ? width : random.uniform(1 - most, 1);
  const float x = random.uniform(0, 1 - width), y = random.uniform(0, 1 - height);
  return {x, y, x + width, y + height};
}

}  // namespace shoal
