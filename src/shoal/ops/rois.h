// Features within boxes of images, pooled into a fixed number of bins: what detectors classify.
#pragma once

#include <cstdint>

#include "shoal/tensor/context.h"

namespace shoal::ops {

// Features are (images, channels, height, width). `rois` is (R, 5): the number of an image and
// xmin, ymin, xmax, ymax in pixels of the net's input. Pooled numbers are (R, pooled_channels(),
// bins_h, bins_w).
struct RoiDesc {
  enum class Pool {
    // The largest number of each bin, the first of equal ones; a bin that covers no place is 0.
    // Corners are scaled and rounded, and the box holds both. Source: Girshick, "Fast R-CNN", 2015.
    kMax,
    // The mean of each bin, which has a channel of its own: bin (p, q) of channel c comes from
    // channel (c bins_h + p) bins_w + q. Source: Dai et al., "R-FCN", 2016.
    kGrouped,
    // The mean of samples * samples points of each bin (0: as many as the bin has places), between
    // places by bilinear interpolation. Source: He et al., "Mask R-CNN", 2017.
    kAligned,
    // The corners of (bins_h - 1) * (bins_w - 1) bins, by bilinear interpolation. Source: Cai and
    // Vasconcelos, "Cascade R-CNN", 2018.
    kCorners,
  };
  Pool pool = Pool::kMax;
  std::int64_t images = 0, channels = 0, height = 0, width = 0;
  std::int64_t rois = 0, bins_h = 1, bins_w = 1;
  float scale = 1;  // from pixels to places of the features
  float pad = 0;    // kMax, kCorners: each side of a box moves out by this part of its length
  int samples = 0;  // kAligned
  bool operator==(const RoiDesc&) const = default;
  std::int64_t pooled_channels() const {
    return pool == Pool::kGrouped ? channels / (bins_h * bins_w) : channels;
  }
};

// Overwrites `pooled`, and for kMax `winners`, of the same size: the place of each number in its
// plane of features, -1 for an empty bin. Rois must be finite and name images that are there.
void roi_pool(Context& ctx, const RoiDesc& desc, const Tensor& features, const Tensor& rois,
              Tensor& pooled, Tensor& winners);
// Overwrites the gradient of the features. Sums are taken in the order of the rois.
void roi_pool_backward(Context& ctx, const RoiDesc& desc, const Tensor& dpooled, const Tensor& rois,
                       const Tensor& winners, Tensor& dfeatures);

}  // namespace shoal::ops
