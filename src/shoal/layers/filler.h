// Fills params and DummyData's tops with their first values.
#pragma once

#include "shoal/base/random.h"
#include "shoal/tensor/tensor.h"

namespace shoal {

class FillerParameter;

// Overwrites `tensor` with numbers of the filler's kind drawn from `random`:
//   constant, uniform, gaussian (with sparse), positive_unitball, xavier, msra, bilinear.
// fan_in = count / shape[0], fan_out = count / shape[1] (count if there is one axis). Throws
// ConfigError for an unknown type or one that does not suit the shape. Source: BVLC Caffe 1.0's
// filler rules.
void fill(const FillerParameter& filler, Random& random, Tensor& tensor);
// The same checks without touching the numbers.
void check_filler(const FillerParameter& filler, const Shape& shape);

}  // namespace shoal
