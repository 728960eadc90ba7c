// WindowData layer: reads batches of windows of pictures that a window file lists.
#include <algorithm>

#include "shoal/base/beside.h"
#include "shoal/base/log.h"
#include "shoal/data/items.h"
#include "shoal/layers/prefetching.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// Windows that are drawn at random, background first, then foreground, each cut out of its picture
// with what is around it and resized to crop_size; see PrefetchingLayer for the tops, of which both
// are wanted, and for nets that share the file: they take its draws in turn. Pictures are read in
// colour, whatever the file says of their channels. Source: BVLC Caffe 1.0's WindowData layer,
// which ended a batch silently where a picture could not be read; which random numbers it draws is
// ours.
class WindowData final : public PrefetchingLayer {
 public:
  using PrefetchingLayer::PrefetchingLayer;
  Arity arity() const override {
    return {.min_bottoms = 0, .max_bottoms = 0, .min_tops = 2, .max_tops = 2};
  }

 protected:
  Feed feed() const override {
    check();
    Feed feed;
    feed.path = data().source();
    feed.shared = data().shared_file_system();
    feed.batch_size = data().batch_size();
    feed.shuffle = true;  // the labels say nothing about an order of the file
    feed.whole_batches = true;
    feed.why_numbers =
        "a window is resized where its picture is decoded, and numbers that are zero are put "
        "around it";
    return feed;
  }

  std::unique_ptr<ItemSource> open(const std::string& file, const SequenceOptions& sequence,
                                   Transform transform) override {
    Result<WindowFile> windows =
        read_window_file(file, {data().fg_threshold(), data().bg_threshold()});
    if (!windows.ok()) throw config_error(windows.error().code, param(), windows.error().message);
    LOG(INFO) << "layer '" << name() << "': " << file << " has " << windows.value().pictures.size()
              << " pictures with " << windows.value().foreground.size()
              << " windows of foreground, " << windows.value().background.size()
              << " of background and " << windows.value().neither << " that are neither";
    if (const std::string why =
            lacks_slash(data().root_folder(), windows.value().pictures.front().path);
        !why.empty())
      throw config_error(Code::kData, param(), "root_folder: ", why);
    WindowItemsOptions options;
    options.file = file;
    options.root = data().root_folder();
    options.crop = {.size = static_cast<int>(param().transform_param().crop_size()),
                    .context_pad = static_cast<int>(data().context_pad()),
                    .square = data().crop_mode() == "square"};
    options.mirror = param().transform_param().mirror();
    options.foreground = data().fg_fraction();
    options.batch_size = static_cast<int>(data().batch_size());
    options.cached = data().cache_images();
    Result<std::unique_ptr<ItemSource>> items =
        window_items(std::move(windows).value(), options, sequence, transform);
    if (!items.ok()) throw config_error(items.error().code, param(), items.error().message);
    return std::move(items).value();
  }

  // Caffe's layer reads the scale in window_data_param, but its upgrade of old nets moves it to
  // transform_param.
  TransformationParameter transformation() const override {
    TransformationParameter transform = param().transform_param();
    if (!data().has_scale()) return transform;
    if (transform.has_scale() && transform.scale() != data().scale())
      throw config_error(param(), "scale is ", transform.scale(), " in transform_param and ",
                         data().scale(), " in window_data_param; give one");
    transform.set_scale(data().scale());
    return transform;
  }

 private:
  const WindowDataParameter& data() const { return param().window_data_param(); }

  void check() const {
    const TransformationParameter& transform = param().transform_param();
    constexpr unsigned kLargest = 1 << 14;  // of which a blob holds one
    if (transform.crop_size() < 1 || transform.crop_size() > kLargest)
      throw config_error(param(), "crop_size of transform_param is ", transform.crop_size(),
                         "; windows are resized to it, so that it must be from 1 to ", kLargest);
    if (data().context_pad() >= (transform.crop_size() + 1) / 2)
      throw config_error(param(), "context_pad ", data().context_pad(), " on both sides leaves ",
                         "nothing of crop_size ", transform.crop_size(), " for the window");
    if (data().crop_mode() != "warp" && data().crop_mode() != "square")
      throw config_error(param(), "unknown crop_mode '", data().crop_mode(),
                         "'; it is 'warp' or 'square'");
    if (!(data().fg_fraction() >= 0 && data().fg_fraction() <= 1))
      throw config_error(param(), "fg_fraction is ", data().fg_fraction(),
                         "; it is a part of a batch, from 0 to 1");
    if (transform.force_gray())
      throw config_error(param(), "force_gray is set; windows are read in colour");
  }
};

}  // namespace

std::unique_ptr<Layer> make_WindowData(const LayerParameter& param) {
  return std::make_unique<WindowData>(param);
}

}  // namespace shoal
