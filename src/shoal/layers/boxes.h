// Boxes of layers that find objects: areas, overlaps, and the suppression of boxes that overlap a
// better one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace shoal {

struct Box {
  float xmin = 0, ymin = 0, xmax = 0, ymax = 0;
};

// A box reaches to its corners, or over the whole pixels at its corners, which makes it one wider
// and higher.
enum class Extent { kCorners, kPixels };

// Returns 0 for a box whose corners are in the wrong order.
float area(const Box& box, Extent extent);

// Returns the part of the two boxes together that both cover, from 0 to 1.
float overlap(const Box& a, const Box& b, Extent extent);

struct Suppression {
  float threshold = 0.3f;   // overlap above which the lesser box goes
  std::int64_t top_k = -1;  // boxes that are looked at, the best ones; below 0: all
  std::int64_t most = -1;   // boxes that stay; below 0: all
  float eta = 1;  // below 1: times the threshold after each kept box, while it is above 0.5
  Extent extent = Extent::kCorners;
};

// Returns the numbers of the boxes that stay, best score first. Of equal scores the box with the
// lower number is better.
std::vector<std::int64_t> suppress(std::span<const Box> boxes, std::span<const float> scores,
                                   const Suppression& suppression);

}  // namespace shoal
