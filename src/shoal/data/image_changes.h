// Changes of pictures on their way into a net, as the SSD fork of Caffe has them. Any thread may
// call them; random numbers come from the caller.
#pragma once

#include <span>

#include "shoal/base/error.h"
#include "shoal/base/random.h"
#include "shoal/data/image.h"

namespace shoal {

class DistortionParameter;
class NoiseParameter;
class ResizeParameter;
class TransformationParameter;

// Returns what is wrong with resize_param, noise_param, distort_param or expand_param.
Status check_changes(const TransformationParameter& param);

// Changes brightness, contrast, saturation, hue and the order of the channels, each by chance; in
// half of the cases contrast comes last. Pictures of one channel: brightness and contrast.
void distort(const DistortionParameter& param, Random& random, Image& image);

// Applies each change that is on, in the order of SSD's ApplyNoise; if `prob` is given, by chance.
void add_noise(const NoiseParameter& param, Random& random, Image& image);

// Returns the picture in its new size: WARP to height x width; FIT_SMALL_SIZE: the smaller side to
// fit, the other as the picture has it; FIT_LARGE_SIZE_AND_PAD: the larger side to fit, bars beside
// the other. One of interp_mode is drawn; `prob` is the caller's to heed.
Image resize_by(const ResizeParameter& param, Random& random, Image image);

// Returns the part of a picture, whole pixels of it, as a picture of its own.
Image cut_out(const Image& image, const ImagePart& part);
// Returns a picture of this size of one colour, a number for each channel, with `image` in it.
Image on_canvas(const Image& image, const ImagePart& place, int height, int width,
                std::span<const float> colour);

}  // namespace shoal
