// What layers that compare scores with labels have in common.
#pragma once

#include <optional>

#include "shoal/layers/layer.h"
#include "shoal/ops/loss.h"

namespace shoal {

// How `labels` (one number an item) lie to `scores` with the classes along `axis`. Throws
// ConfigError, which names both shapes, unless there are as many labels as items.
ops::ClassDesc class_desc(const LayerParameter& param, const Blob& scores, int axis,
                          const Blob& labels, std::optional<int> ignore);
// The same for scores with all axes after the first as classes: (N, ...) with N labels.
ops::ClassDesc flat_class_desc(const LayerParameter& param, const Blob& scores, const Blob& labels);

// Looks at all labels before anything is read by them: how many count. One that is no class is
// noted by ctx.fail (kData), with its item (axis 0 of the labels) and what it should have been;
// nothing is returned then.
std::optional<std::int64_t> count_labels(Context& ctx, const ops::ClassDesc& desc,
                                         const Blob& scores, const Blob& labels);

}  // namespace shoal
