#include "shoal/layers/box_matching.h"

#include <algorithm>
#include <numeric>

#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

constexpr float kLeastOverlap = 1e-6f, kLeastArea = 1e-5f;

bool crosses_border(const Box& box) {
  const auto outside = [](float x) { return x < 0 || x > 1; };
  return outside(box.xmin) || outside(box.ymin) || outside(box.xmax) || outside(box.ymax);
}

// Overlaps of boxes with true boxes, row by row; 0 where they do not count.
class Overlaps {
 public:
  Overlaps(std::span<const Box> boxes, std::span<const LabelledBox> truth,
           const std::vector<int>& chosen, Matches& matches)
      : width_(chosen.size()), numbers_(boxes.size() * chosen.size()) {
    for (std::size_t i = 0; i < boxes.size(); ++i) {
      if (matches.truth[i] != Matches::kNone) continue;
      for (std::size_t j = 0; j < width_; ++j) {
        const float common =
            overlap(boxes[i], truth[static_cast<std::size_t>(chosen[j])].box, Extent::kCorners);
        if (!(common > kLeastOverlap)) continue;
        numbers_[i * width_ + j] = common;
        matches.overlaps[i] = std::max(matches.overlaps[i], common);
      }
    }
  }
  float at(std::size_t box, std::size_t truth) const { return numbers_[box * width_ + truth]; }

 private:
  std::size_t width_;
  std::vector<float> numbers_;
};

void match_best_pairs(const Overlaps& overlaps, const std::vector<int>& chosen, Matches& matches) {
  std::vector<bool> taken(chosen.size());
  for (std::size_t pairs = 0; pairs < chosen.size(); ++pairs) {
    float most = 0;
    std::size_t best_box = 0, best_truth = 0;
    for (std::size_t i = 0; i < matches.truth.size(); ++i) {
      if (matches.truth[i] != Matches::kNone) continue;
      for (std::size_t j = 0; j < chosen.size(); ++j) {
        if (taken[j] || !(overlaps.at(i, j) > most)) continue;
        most = overlaps.at(i, j);
        best_box = i;
        best_truth = j;
      }
    }
    if (most == 0) return;
    matches.truth[best_box] = chosen[best_truth];
    matches.overlaps[best_box] = most;
    taken[best_truth] = true;
  }
}

void match_each(const Overlaps& overlaps, const std::vector<int>& chosen, float threshold,
                Matches& matches) {
  for (std::size_t i = 0; i < matches.truth.size(); ++i) {
    if (matches.truth[i] != Matches::kNone) continue;
    float most = 0;
    for (std::size_t j = 0; j < chosen.size(); ++j) {
      const float common = overlaps.at(i, j);
      if (!(common >= threshold && common > most)) continue;
      most = common;
      matches.truth[i] = chosen[j];
    }
    if (most > 0) matches.overlaps[i] = most;
  }
}

bool eligible(const Matches& matches, std::size_t i, const MultiBoxLossParameter& param) {
  if (param.mining_type() == MultiBoxLossParameter::HARD_EXAMPLE) return true;
  return matches.truth[i] == Matches::kNone && matches.overlaps[i] < param.neg_overlap();
}

// Returns the best of `candidates` first: without those that overlap a better one, with nms_param.
std::vector<std::size_t> by_loss(std::vector<std::size_t> candidates, std::span<const float> losses,
                                 std::span<const Box> boxes, const MultiBoxLossParameter& param) {
  const NonMaximumSuppressionParameter& nms = param.nms_param();
  if (!param.has_nms_param() || !(nms.nms_threshold() > 0)) {
    std::ranges::stable_sort(candidates, std::greater{}, [&](std::size_t i) { return losses[i]; });
    return candidates;
  }
  std::erase_if(candidates,
                [&](std::size_t i) { return area(boxes[i], Extent::kCorners) < kLeastArea; });
  std::vector<Box> their_boxes;
  std::vector<float> their_losses;
  for (const std::size_t i : candidates) {
    their_boxes.push_back(boxes[i]);
    their_losses.push_back(losses[i]);
  }
  std::vector<std::size_t> kept;
  for (const std::int64_t i :
       suppress(their_boxes, their_losses,
                {.threshold = nms.nms_threshold(), .top_k = nms.has_top_k() ? nms.top_k() : -1}))
    kept.push_back(candidates[static_cast<std::size_t>(i)]);
  return kept;
}

}  // namespace

Matches match(std::span<const Box> boxes, std::span<const LabelledBox> truth,
              std::optional<int> label, const MultiBoxLossParameter& param) {
  Matches matches{std::vector<int>(boxes.size(), Matches::kNone),
                  std::vector<float>(boxes.size(), 0.0f)};
  std::vector<int> chosen;
  for (std::size_t j = 0; j < truth.size(); ++j)
    if (!label || truth[j].label == *label) chosen.push_back(static_cast<int>(j));
  if (chosen.empty()) return matches;
  for (std::size_t i = 0; i < boxes.size() && param.ignore_cross_boundary_bbox(); ++i)
    if (crosses_border(boxes[i])) matches.truth[i] = Matches::kLeftOut;
  const Overlaps overlaps(boxes, truth, chosen, matches);
  match_best_pairs(overlaps, chosen, matches);
  if (param.match_type() == MultiBoxLossParameter::PER_PREDICTION)
    match_each(overlaps, chosen, param.overlap_threshold(), matches);
  return matches;
}

std::vector<std::int64_t> mine(Matches& matches, std::span<const float> losses,
                               std::span<const Box> boxes, const MultiBoxLossParameter& param) {
  const bool hard = param.mining_type() == MultiBoxLossParameter::HARD_EXAMPLE;
  std::vector<std::size_t> candidates;
  for (std::size_t i = 0; i < matches.truth.size(); ++i)
    if (eligible(matches, i, param)) candidates.push_back(i);
  const auto matched = std::ranges::count_if(matches.truth, [](int t) { return t >= 0; });
  const auto wanted =
      hard ? static_cast<std::size_t>(param.sample_size())
           : static_cast<std::size_t>(static_cast<float>(matched) * param.neg_pos_ratio());
  std::vector<std::size_t> picked = by_loss(std::move(candidates), losses, boxes, param);
  picked.resize(std::min(picked.size(), wanted));
  std::vector<bool> is_picked(matches.truth.size());
  for (const std::size_t i : picked) is_picked[i] = true;
  std::vector<std::int64_t> negatives;
  for (std::size_t i = 0; i < matches.truth.size(); ++i) {
    if (matches.truth[i] >= 0 && hard && !is_picked[i])
      matches.truth[i] = Matches::kNone;
    else if (matches.truth[i] == Matches::kNone && is_picked[i])
      negatives.push_back(static_cast<std::int64_t>(i));
  }
  return negatives;
}

}  // namespace shoal
