// Prior boxes, and the code in which a net says where a box lies beside one of them (SSD).
#pragma once

#include <array>
#include <span>
#include <vector>

#include "shoal/layers/boxes.h"

namespace shoal {

using FourNumbers = std::array<float, 4>;

// The boxes that PriorBox makes, and four variances of each, by which a code is divided.
struct Priors {
  std::vector<Box> boxes;
  std::vector<FourNumbers> variances;
};
// Takes the numbers of a blob (1, 2, 4 P).
Priors read_priors(std::span<const float> numbers);

struct BoxCode {
  enum class Kind {
    kCorner,      // each corner, less the prior's
    kCenterSize,  // the centre, less the prior's, over its size; the logarithm of the sizes' ratio
    kCornerSize,  // each corner, less the prior's, over the prior's size
  };
  Kind kind = Kind::kCorner;
  // The code is not divided by the variances (its targets are, in the loss).
  bool plain = false;
};
// `code_type` is a PriorBoxParameter::CodeType.
BoxCode box_code(int code_type, bool plain);

// Source: SSD's bbox_util. A prior of no width or height gives a box of no size under kCenterSize.
Box decode(const Box& prior, const FourNumbers& variance, const BoxCode& code,
           std::span<const float, 4> numbers);
// The inverse. Wants sizes above 0 of the prior, and under kCenterSize of the box: see can_encode.
FourNumbers encode(const Box& prior, const FourNumbers& variance, const BoxCode& code,
                   const Box& box);
bool can_encode(const Box& prior, const BoxCode& code, const Box& box);

}  // namespace shoal
