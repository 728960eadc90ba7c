// The arithmetic of losses. A loss is a sum over items, taken in double in an order that threads do
// not change and divided by `divisor`; it is written to `loss`, one number. Counts must agree
// (CHECK).
//
// Scores and probabilities are (outer, C, inner): one number for each of C classes at each of outer
// x inner items. Labels are (outer, inner), whole numbers as floats; others are cut to whole ones
// towards 0, as BVLC Caffe cuts them. An item whose label is the
// ignored one, or is no class at all, counts nothing and gets gradient 0; check_labels tells the
// two apart.
#pragma once

#include <cstdint>
#include <optional>

#include "shoal/tensor/context.h"

namespace shoal::ops {

struct ClassDesc {
  std::int64_t outer = 1, classes = 1, inner = 1;
  std::optional<int> ignore{};  // the ignored label
  std::int64_t items() const { return outer * inner; }
};

struct LabelCheck {
  std::int64_t counted = 0;  // items whose label is a class that is not ignored
  // The first item whose label is neither a class nor ignored; -1: there is none.
  std::int64_t first_bad = -1;
  std::int64_t first_cut = -1;  // the first that counts and was no whole number; -1: there is none
};
// Reads the labels on the host.
LabelCheck check_labels(Context& ctx, const ClassDesc& desc, const Tensor& labels);

// Sum over items of -ln(max(p of the label, floor)).
void log_loss(Context& ctx, const ClassDesc& desc, const Tensor& probs, const Tensor& labels,
              float floor, double divisor, Tensor& loss);
// Computes dprobs = -scale / max(p, floor) at the label, 0 at the other classes.
void log_loss_backward(Context& ctx, const ClassDesc& desc, const Tensor& probs,
                       const Tensor& labels, float floor, float scale, Tensor& dprobs);
// Computes dscores = scale (p - (1 at the label)): the gradient of log_loss through a softmax that
// made `probs`.
void softmax_log_loss_backward(Context& ctx, const ClassDesc& desc, const Tensor& probs,
                               const Tensor& labels, float scale, Tensor& dscores);

// Sum over items of -alpha (1 - p)^gamma ln(max(p, floor)), p that of the label, and scale times
// its gradient through a softmax that made `probs`.
struct FocalDesc {
  float alpha = 0.25f, gamma = 2, floor = 0;
};
void focal_loss(Context& ctx, const ClassDesc& desc, const FocalDesc& focal, const Tensor& probs,
                const Tensor& labels, double divisor, Tensor& loss);
void softmax_focal_loss_backward(Context& ctx, const ClassDesc& desc, const FocalDesc& focal,
                                 const Tensor& probs, const Tensor& labels, float scale,
                                 Tensor& dscores);

// Sum over items of -sum_j matrix[label, j] ln(max(p_j, floor)); matrix is (C, C).
void infogain_loss(Context& ctx, const ClassDesc& desc, const Tensor& probs, const Tensor& labels,
                   const Tensor& matrix, float floor, double divisor, Tensor& loss);
// Computes dscores_j = scale (p_j (sum of row label) - matrix[label, j]), through a softmax that
// made `probs`; the floor has no part in it.
void softmax_infogain_loss_backward(Context& ctx, const ClassDesc& desc, const Tensor& probs,
                                    const Tensor& labels, const Tensor& matrix, float scale,
                                    Tensor& dscores);

// Sum over items and classes of max(0, 1 + t score), or of its square; t is -1 at the label and 1
// elsewhere.
enum class HingeNorm { kL1, kL2 };
void hinge_loss(Context& ctx, const ClassDesc& desc, const Tensor& scores, const Tensor& labels,
                HingeNorm norm, double divisor, Tensor& loss);
// Computes dscores = scale t, or scale 2 t max(0, 1 + t score); 0 where the margin is kept or just
// met.
void hinge_loss_backward(Context& ctx, const ClassDesc& desc, const Tensor& scores,
                         const Tensor& labels, HingeNorm norm, float scale, Tensor& dscores);

// Sum of -t ln s(x) - (1 - t) ln(1 - s(x)), s the sigmoid, over the elements whose target t, cut to
// a whole number, is not `ignore`.
void sigmoid_cross_entropy(Context& ctx, const Tensor& x, const Tensor& targets,
                           std::optional<int> ignore, double divisor, Tensor& loss);
// Computes dx = scale (s(x) - t); 0 where ignored.
void sigmoid_cross_entropy_backward(Context& ctx, const Tensor& x, const Tensor& targets,
                                    std::optional<int> ignore, float scale, Tensor& dx);
// Returns how many elements are not ignored. Reads the targets on the host.
std::int64_t count_targets(Context& ctx, const Tensor& targets, std::optional<int> ignore);

// Sum of (a - b)^2, and y = scale (a - b).
void squared_distance(Context& ctx, const Tensor& a, const Tensor& b, double divisor, Tensor& loss);
void difference(Context& ctx, float scale, const Tensor& a, const Tensor& b, Tensor& y);

// Pairs of rows a_n, b_n of (N, C), with similar[n] (N): 0 is different, any other number (cut to a
// whole one) is alike.
struct ContrastiveDesc {
  std::int64_t rows = 1, columns = 1;
  float margin = 1;
  bool legacy = false;  // the margin is held against d^2, not d
};
// Sum over rows of d^2 if alike, else max(margin - d, 0)^2, or max(margin - d^2, 0) in the legacy
// form; d = |a_n - b_n|.
void contrastive_loss(Context& ctx, const ContrastiveDesc& desc, const Tensor& a, const Tensor& b,
                      const Tensor& similar, double divisor, Tensor& loss);
// Computes da = scale times half the gradient of that sum, as Caffe takes it: where the slope of d
// would divide by d, by d + 1e-4. db is the same with -scale.
void contrastive_loss_backward(Context& ctx, const ContrastiveDesc& desc, const Tensor& a,
                               const Tensor& b, const Tensor& similar, float scale, Tensor& da);

}  // namespace shoal::ops
