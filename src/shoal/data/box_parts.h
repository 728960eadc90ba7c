// Boxes of a picture, as parts of its width and height, and where they lie in a part of it.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "shoal/base/random.h"

namespace shoal {

class BatchSampler;
class EmitConstraint;

struct BoxPart {
  float xmin = 0, ymin = 0, xmax = 1, ymax = 1;  // of the picture's width and height
  float width() const { return xmax - xmin; }
  float height() const { return ymax - ymin; }
};

// A true box of a picture.
struct TruePart {
  float group = 0, instance = 0;  // its class, and its number among those
  BoxPart box;
  bool difficult = false;
};

// Returns the part of the two boxes together that both cover.
float shared_part(const BoxPart& a, const BoxPart& b);
// Returns the part of `box` that lies in `area`.
float covered_part(const BoxPart& box, const BoxPart& area);

// Returns the box as parts of `area`, cut off at its border; nothing if nothing of it lies there.
std::optional<BoxPart> project(const BoxPart& box, const BoxPart& area);
// Returns whether a crop to `area` keeps the box: with its centre in it, or enough of it.
bool is_kept(const BoxPart& box, const BoxPart& area, const EmitConstraint& constraint);
// Brings boxes to `area`; those that it does not keep are left out. null: all that it touches stay.
void project_all(const BoxPart& area, const EmitConstraint* constraint,
                 std::vector<TruePart>& boxes);

// Returns the parts of a picture that the samplers find, each after max_trials at most: those that
// satisfy sample_constraint with some box. Samplers without use_original_image find nothing.
// Source: SSD's GenerateBatchSamples, which counts a constraint as satisfied if a part of it is.
std::vector<BoxPart> sample_parts(std::span<const BatchSampler> samplers,
                                  const std::vector<TruePart>& boxes, Random& random);

// Returns the whole picture once in five times, and in three of them a part somewhere in it whose
// sides lack up to `jitter` of the picture's; in the fifth up to half as much. keeps_shape: both
// sides lack the same. Source: MobileNet-YOLO's GenerateJitterSamples.
BoxPart jittered_part(float jitter, bool keeps_shape, Random& random);

}  // namespace shoal
