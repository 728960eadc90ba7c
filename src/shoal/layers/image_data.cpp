// ImageData layer: reads batches of pictures that a text file lists.
#include "shoal/base/beside.h"
#include "shoal/data/items.h"
#include "shoal/layers/prefetching.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// Images named in a text list, read, resized if new_height and new_width are set, and transformed;
// see PrefetchingLayer for the tops. With `shuffle` the order is another in each epoch. Source:
// BVLC Caffe 1.0's ImageData layer.
class ImageData final : public PrefetchingLayer {
 public:
  using PrefetchingLayer::PrefetchingLayer;
  Arity arity() const override {
    return {.min_bottoms = 0, .max_bottoms = 0, .min_tops = 2, .max_tops = 2};
  }

 protected:
  Transform::Sizes sizes() const override { return Transform::Sizes::kDrawn; }

  Feed feed() const override {
    const ImageDataParameter& data = param().image_data_param();
    if ((data.new_height() == 0) != (data.new_width() == 0))
      throw config_error(param(), "new_height is ", data.new_height(), " and new_width ",
                         data.new_width(), "; set both or neither");
    constexpr unsigned kLargest = 1 << 16;
    if (data.new_height() > kLargest || data.new_width() > kLargest)
      throw config_error(param(), "new_height ", data.new_height(), " x new_width ",
                         data.new_width(), " is more than ", kLargest, " a side");
    Feed feed;
    feed.path = data.source();
    feed.shared = data.shared_file_system();
    feed.batch_size = data.batch_size();
    feed.on_bad = on_bad(data.on_bad_record());
    feed.shuffle = data.shuffle();
    feed.rand_skip = data.rand_skip();
    return feed;
  }

  std::unique_ptr<ItemSource> open(const std::string& list, const SequenceOptions& sequence,
                                   Transform transform) override {
    const ImageDataParameter& data = param().image_data_param();
    Result<std::vector<ListedImage>> images = read_image_list(list);
    if (!images.ok()) throw config_error(images.error().code, param(), images.error().message);
    if (const std::string why = lacks_slash(data.root_folder(), images.value().front().path);
        !why.empty())
      throw config_error(Code::kData, param(), "root_folder: ", why);
    ImageItemsOptions options;
    options.list = list;
    options.root = data.root_folder();
    options.colour = data.is_color();
    options.height = static_cast<int>(data.new_height());
    options.width = static_cast<int>(data.new_width());
    options.batch_size = static_cast<int>(data.batch_size());
    return image_items(std::move(images).value(), options, sequence, std::move(transform));
  }
};

}  // namespace

std::unique_ptr<Layer> make_ImageData(const LayerParameter& param) {
  return std::make_unique<ImageData>(param);
}

}  // namespace shoal
