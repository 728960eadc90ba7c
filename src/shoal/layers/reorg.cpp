// Reorg layer, of YOLO's forks: makes channels of neighbouring places, in darknet's order.
#include "shoal/layers/permutation.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// With s = stride, from (N, C, H, W) to (N, C s s, H / s, W / s), or with `reverse` to
// (N, C / (s s), H s, W s). The numbers of an item move as if the side with many channels had
// (s, s, c) channels, where the other, whatever its shape says, is c planes of (H' s, W' s):
//   reverse: (dy, dx, c, H, W) becomes (c, H, dy, W, dx)
//   else the opposite, with C = s s c and planes of H x W places: darknet takes the sizes of the
//   bottom for those of the side with many channels.
// Throws ConfigError unless s s divides C, and s the height and the width where it makes them
// smaller. Source: darknet's reorg.
class Reorg final : public Permutation {
 public:
  using Permutation::Permutation;

  void reshape(Context&, Bottoms bottom, Tops top) override {
    const ReorgParameter& reorg = param().reorg_param();
    const Shape& shape = bottom[0]->shape();
    const std::int64_t s = reorg.stride();
    if (shape.axes() != 4)
      throw config_error(param(), "the bottom must have 4 axes (N, C, H, W), not ", shape.str());
    if (s < 1 || s > Shape::kMaxCount)
      throw config_error(param(), "stride is ", s, "; it must be 1 or more");
    const std::int64_t c = shape[1] / s / s, h = shape[2], w = shape[3];
    if (c * s * s != shape[1])
      throw config_error(param(), "stride ", s, " squared does not divide the ", shape[1],
                         " channels of the bottom's shape ", shape.str());
    if (!reorg.reverse() && (h % s != 0 || w % s != 0))
      throw config_error(param(), "stride ", s, " does not divide height and width of the ",
                         "bottom's shape ", shape.str());
    if (reorg.reverse()) {
      permute({shape[0], s, s, c, h, w}, {0, 3, 4, 1, 5, 2});
      top[0]->reshape({shape[0], c, h * s, w * s});
    } else {
      permute({shape[0], c, h, s, w, s}, {0, 3, 5, 1, 2, 4});
      top[0]->reshape({shape[0], shape[1] * s * s, h / s, w / s});
    }
  }
};

}  // namespace

std::unique_ptr<Layer> make_Reorg(const LayerParameter& param) {
  return std::make_unique<Reorg>(param);
}

}  // namespace shoal
