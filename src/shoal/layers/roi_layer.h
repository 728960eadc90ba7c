// Base class of the layers that pool the features within boxes.
#pragma once

#include <memory>

#include "shoal/layers/layer.h"
#include "shoal/ops/rois.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {

// Pools the features within each roi into bins (ops/rois.h).
//   bottom[0] features (N, C, H, W)
//   bottom[1] rois (R, 5), or (R, 5, 1, 1): image, xmin, ymin, xmax, ymax in pixels; no gradient
//   top[0] (R, channels, bins, bins)
// backward overwrites bottom[0].grad. A roi that is not finite, or whose image is no item of
// bottom[0], ends the pass. Throws ConfigError for shapes that do not fit.
class RoiLayer : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const final { return {.min_bottoms = 2, .max_bottoms = 2}; }
  Propagates propagates(int bottom) const final {
    return bottom == 0 ? Propagates::kYes : Propagates::kNothing;
  }
  Reads reads() const final { return {.bottom_data = false, .top_data = false}; }
  Replays replays() const final { return {.forward = false}; }  // the host looks at the rois

  void reshape(Context& ctx, Bottoms bottom, Tops top) final;
  void forward(Context& ctx, Bottoms bottom, Tops top) final;
  void backward(Context& ctx, Tops top, const std::vector<bool>& propagate, Bottoms bottom) final;

 protected:
  // Throws ConfigError unless both numbers of bins are at least 1.
  void check_bins(std::uint32_t pooled_h, std::uint32_t pooled_w) const;
  // Throws ConfigError unless the scale is above 0.
  void check_scale(float scale) const;

 private:
  // Returns the method, bins and scale for features of this shape. Throws ConfigError.
  virtual ops::RoiDesc describe(const Shape& features) const = 0;
  ops::RoiDesc desc_;
  Tensor rois_, winners_;  // of the last forward pass
};

// Returns whether each roi of `rois` is finite and its image one of `images`; if not, notes by
// ctx.fail (kData) which is not.
bool check_rois(Context& ctx, const Blob& rois, std::int64_t images);

}  // namespace shoal
