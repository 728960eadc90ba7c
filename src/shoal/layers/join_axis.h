// Reads the axis of Concat and Slice, which has two spellings.
#pragma once

#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"
#include "shoal/tensor/shape.h"

namespace shoal {

// Returns the axis that the prototxt names: `axis`, or the older unsigned `old_axis` called
// `old_name`. Throws ConfigError if both are there.
inline int join_axis(const LayerParameter& layer, bool has_axis, int axis, bool has_old,
                     std::uint32_t old_axis, const char* old_name) {
  if (has_axis && has_old)
    throw config_error(layer, "has both 'axis' and its older spelling '", old_name,
                       "'; give one of them");
  if (has_old && old_axis > static_cast<std::uint32_t>(Shape::kMaxAxes))
    throw config_error(layer, old_name, " is ", old_axis, ", but a blob has at most ",
                       Shape::kMaxAxes, " axes");
  return has_old ? static_cast<int>(old_axis) : axis;
}

}  // namespace shoal
