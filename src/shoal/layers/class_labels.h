// Checks the labels of losses and Accuracy against the scores.
#pragma once

#include <optional>

#include "shoal/layers/layer.h"
#include "shoal/ops/loss.h"

namespace shoal {

// Describes `scores`, with the classes along `axis`, and `labels`, one number an item. Throws
// ConfigError, which names both shapes, unless there are as many labels as items.
ops::ClassDesc class_desc(const LayerParameter& param, const Blob& scores, int axis,
                          const Blob& labels, std::optional<int> ignore);
// Returns the same for scores with all axes after the first as classes: (N, ...) with N labels.
ops::ClassDesc flat_class_desc(const LayerParameter& param, const Blob& scores, const Blob& labels);

// Checks all labels before they are used and returns how many count. If one is no class, notes it
// by ctx.fail (kData), with its item (axis 0 of the labels) and what it should have been, and
// returns nothing. A label that is no whole number counts as what it is cut to; the first time the
// log says so, if `warned` keeps that in mind.
std::optional<std::int64_t> count_labels(Context& ctx, const ops::ClassDesc& desc,
                                         const Blob& scores, const Blob& labels,
                                         bool* warned = nullptr);

}  // namespace shoal
