// Decides which boxes of a net are to learn which true boxes, and which are to learn that they show
// nothing (SSD). All of one image.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "shoal/layers/boxes.h"

namespace shoal {

class MultiBoxLossParameter;

struct LabelledBox {
  Box box;
  int label = 0;
};

struct Matches {
  static constexpr int kNone = -1;
  // Crosses the image's border, with ignore_cross_boundary_bbox.
  static constexpr int kLeftOut = -2;
  std::vector<int> truth;       // for each box: the number of its true box, or one of these
  std::vector<float> overlaps;  // its overlap with that, or the largest with any; 0 if below 1e-6
};

// Gives each true box the box that overlaps it most, the pair with the largest overlap first; with
// PER_PREDICTION also each other box the true box that it overlaps most, by overlap_threshold or
// more. Of equal overlaps the lower box, then the lower true box counts. `label`: only true boxes
// of it; none: all. Source: SSD's MatchBBox.
Matches match(std::span<const Box> boxes, std::span<const LabelledBox> truth,
              std::optional<int> label, const MultiBoxLossParameter& param);

// Returns the boxes that are to learn that they show nothing, in order, and takes boxes out of
// `matches` that are not to learn at all.
//   MAX_NEGATIVE  of the boxes without a match whose overlap is below neg_overlap, those with the
//                 largest losses: neg_pos_ratio for each that has a match
//   HARD_EXAMPLE  the sample_size boxes with the largest losses, with a match or without; a match
//                 of another box is taken out
// With nms_param a box that overlaps one of a larger loss is not among them, nor one of an area
// below 1e-5. Of equal losses the lower box counts as the larger. Source: SSD's MineHardExamples.
std::vector<std::int64_t> mine(Matches& matches, std::span<const float> losses,
                               std::span<const Box> boxes, const MultiBoxLossParameter& param);

}  // namespace shoal
