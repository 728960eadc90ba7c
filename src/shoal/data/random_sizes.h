// Sizes and parts that are drawn for a picture before its crop, as three forks of Caffe have them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "shoal/base/error.h"
#include "shoal/base/random.h"
#include "shoal/data/image.h"

namespace shoal {

class TransformationParameter;

// Makes a picture of crop_size x crop_size of one of any size. Fields of one of these:
//   Intel's random_resize_param: the shorter side becomes a whole number from min_size to max_size,
//   and the shape stays. The crop follows.
//   Intel's random_aspect_ratio_param: a part with a drawn share of the area, its sides changed by
//   a drawn factor and its inverse, lying or standing, becomes the crop. If no part of max_attempt
//   lies in the picture, the shorter side becomes crop_size, and the crop follows.
//   NVIDIA's img_rand_resize, rand_resize_ratio and stretches: the shorter side becomes a whole
//   number within the bounds, the longer side that times the ratio if there is one; both are then
//   stretched, are crop_size at least, and no larger than they were unless allow_upscale is set.
//   The crop follows.
//   yjxiong's multi_scale, fix_crop and more_fix_crop, in training alone: a part with two of
//   scale_ratios of the shorter side as its sides becomes the crop; it lies in a corner or in the
//   middle, at one of eight places between those, or anywhere.
// The crop is anywhere in training, else in the middle. Each number of a range is as likely as the
// others. Sources: the DataTransformer of each fork; which random numbers it draws is ours.
class RandomSizes {
 public:
  virtual ~RandomSizes() = default;
  // Returns null if `param` has no such field, or none that counts in this phase. Errors (kConfig):
  // no crop_size, fields of two forks, bounds in the wrong order or out of range.
  static Result<std::shared_ptr<const RandomSizes>> create(const TransformationParameter& param,
                                                           bool training);
  // Returns the first of these fields that `param` has; "" if it has none.
  static std::string first_field(const TransformationParameter& param);

  // Any thread may call it. Errors (kData): the picture, or what becomes of it, is smaller than the
  // crop or larger than any picture.
  virtual Result<Image> apply(Image image, Random random) const = 0;
};

}  // namespace shoal
