// ShuffleChannel layer, of ShuffleNet's fork: mixes the channels of groups.
#include "shoal/layers/permutation.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// The first channel of each group, then the second of each, and so on: (N, group, C / group, ...)
// becomes (N, C / group, group, ...). Throws ConfigError unless group divides the channels.
class ShuffleChannel final : public Permutation {
 public:
  using Permutation::Permutation;

  void reshape(Context&, Bottoms bottom, Tops top) override {
    const Shape& shape = bottom[0]->shape();
    const std::int64_t group = param().shuffle_channel_param().group();
    if (shape.axes() < 2 || group < 1 || shape[1] % group != 0)
      throw config_error(param(), "group ", group, " does not divide the channels, axis 1, of the ",
                         "bottom's shape ", shape.str());
    permute({shape[0], group, shape[1] / group, shape.count(2)}, {0, 2, 1, 3});
    top[0]->reshape(shape);
  }
};

}  // namespace

std::unique_ptr<Layer> make_ShuffleChannel(const LayerParameter& param) {
  return std::make_unique<ShuffleChannel>(param);
}

}  // namespace shoal
