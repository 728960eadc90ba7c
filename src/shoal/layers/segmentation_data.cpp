// DenseImageData layer, of SegNet's fork, and ImageSegData, of DeepLab's and PSPNet's: pictures
// with a label for each pixel.
#include <algorithm>
#include <utility>

#include "shoal/data/batch.h"
#include "shoal/data/items.h"
#include "shoal/layers/prefetching.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// Options of both layers, from the messages of their types.
struct SegmentationOptions {
  LabelledImagesOptions images;
  SegmentationItemsOptions items;
  TransformationParameter transform;  // without crop and mirror
};

// Reads batches of pictures and label pictures that a text file lists; see PrefetchingLayer.
//   top[0] (N, C, H, W), (pixel - mean) x scale   top[1] (N, 1, H, W), labels from 0 to 255
//   top[2], of ImageSegData if it is named: (N, 1, 1, 2), height and width of each picture, at most
//   those of the batch
// Both pictures are resized, cropped (anywhere in TRAIN, the middle in TEST) and mirrored alike;
// labels take the nearest pixel. ImageSegData pads to the crop at the right and below, with the
// mean and ignore_label. The pictures of a batch have one size; without crop the next batch may
// have another. Sources: SegNet's DenseImageDataLayer, which has no crop and mirror of its own yet,
// and PSPNet's ImageSegDataLayer.
class SegmentationData : public PrefetchingLayer {
 public:
  using PrefetchingLayer::PrefetchingLayer;
  Arity arity() const override {
    return {.min_bottoms = 0, .max_bottoms = 0, .min_tops = 2, .max_tops = most_tops()};
  }

 protected:
  virtual SegmentationOptions options() const = 0;  // throws ConfigError
  virtual int most_tops() const = 0;

  // Returns what both messages have under one name.
  template <class Data>
  Feed feed_of(const Data& data) const {
    if (data.batch_size() < 1) throw config_error(param(), "batch_size must be given");
    Feed feed;
    feed.path = data.source();
    feed.shared = data.shared_file_system();
    feed.batch_size = data.batch_size();
    feed.shuffle = data.shuffle();
    feed.rand_skip = data.rand_skip();
    feed.why_numbers = "labels are cut from pictures of their own where the picture is decoded";
    return feed;
  }
  template <class Data>
  SegmentationOptions options_of(const Data& data) const {
    SegmentationOptions options;
    options.images.root = data.root_folder();
    options.images.height = static_cast<int>(data.new_height());
    options.images.width = static_cast<int>(data.new_width());
    options.images.colour = data.is_color();
    options.items.training = training();
    return options;
  }

  TransformationParameter transformation() const override { return options().transform; }
  bool makes_tops() const override { return true; }
  Shape top_shape(std::size_t top, const ImageSize& size, const Batch*) const override {
    const std::int64_t batch = feed().batch_size;
    return top == 1 ? Shape{batch, 1, size.height, size.width} : Shape{batch, 1, 1, 2};
  }
  void put_top(std::size_t top, const Batch& batch, std::span<float> out) const override {
    auto to = out.begin();
    for (const Sample& sample : batch.samples) {
      if (top == 1) {
        to = std::ranges::copy(sample.pixel_labels, to).out;
        continue;
      }
      *to++ = static_cast<float>(sample.rows);
      *to++ = static_cast<float>(sample.columns);
    }
  }

  std::unique_ptr<ItemSource> open(const std::string& list, const SequenceOptions& sequence,
                                   Transform transform) override {
    SegmentationOptions options = this->options();
    check_pair("new_height", options.images.height, "new_width", options.images.width);
    check_pair("crop_height", options.items.crop_height, "crop_width", options.items.crop_width);
    options.images.list = list;
    Result<LabelledImages> images = LabelledImages::open(options.images);
    if (!images.ok()) throw config_error(images.error().code, param(), images.error().message);
    return segmentation_items(std::move(images).value(), options.items, sequence,
                              std::move(transform));
  }

 private:
  void check_pair(const char* first, int a, const char* second, int b) const {
    constexpr int kLargest = 1 << 16;
    if ((a == 0) != (b == 0))
      throw config_error(param(), first, " is ", a, " and ", second, " ", b,
                         "; set both or neither");
    if (a < 0 || b < 0 || a > kLargest || b > kLargest)
      throw config_error(param(), first, " ", a, " x ", second, " ", b, " is more than ", kLargest,
                         " a side");
  }
};

// Takes crop and mirror, which are done to both pictures, out of the message.
TransformationParameter without_crop(TransformationParameter transform) {
  transform.clear_crop_size();
  transform.clear_crop_h();
  transform.clear_crop_w();
  transform.clear_mirror();
  return transform;
}

LabelledImagesOptions::Labels labels_of(ImageDataParameter::LabelType type) {
  using Labels = LabelledImagesOptions::Labels;
  if (type == ImageDataParameter::NONE) return Labels::kNone;
  return type == ImageDataParameter::IMAGE ? Labels::kNumber : Labels::kPicture;
}

class DenseImageData final : public SegmentationData {
 public:
  using SegmentationData::SegmentationData;

 private:
  int most_tops() const override { return 2; }
  Feed feed() const override { return feed_of(param().dense_image_data_param()); }
  SegmentationOptions options() const override {
    const DenseImageDataParameter& data = param().dense_image_data_param();
    const TransformationParameter& transform = param().transform_param();
    SegmentationOptions options = options_of(data);
    options.items.crop_height =
        static_cast<int>(data.has_crop_height() ? data.crop_height() : transform.crop_size());
    options.items.crop_width =
        static_cast<int>(data.has_crop_width() ? data.crop_width() : transform.crop_size());
    options.items.mirror = data.mirror() || transform.mirror();
    options.transform = without_crop(transform);
    if (data.has_mean_file()) options.transform.set_mean_file(data.mean_file());
    return options;
  }
};

class ImageSegData final : public SegmentationData {
 public:
  using SegmentationData::SegmentationData;

 private:
  int most_tops() const override { return 3; }
  Feed feed() const override {
    Feed feed = feed_of(param().image_data_param());
    feed.on_bad = on_bad(param().image_data_param().on_bad_record());
    return feed;
  }
  SegmentationOptions options() const override {
    const ImageDataParameter& data = param().image_data_param();
    const TransformationParameter& transform = param().transform_param();
    if (transform.has_mean_file())
      throw config_error(param(),
                         "mean_file does not go with ImageSegData, whose padding is the "
                         "mean: give mean_value, one a channel");
    if (data.ignore_label() < 0 || data.ignore_label() > 255)
      throw config_error(param(), "ignore_label is ", data.ignore_label(),
                         "; labels are bytes, from 0 to 255");
    SegmentationOptions options = options_of(data);
    options.items.crop_height =
        static_cast<int>(transform.has_crop_h() ? transform.crop_h() : transform.crop_size());
    options.items.crop_width =
        static_cast<int>(transform.has_crop_w() ? transform.crop_w() : transform.crop_size());
    options.items.mirror = transform.mirror();
    options.items.pads = true;
    options.images.labels = labels_of(data.label_type());
    options.images.ignore_label = data.ignore_label();
    options.items.ignore_label = data.ignore_label();
    options.transform = without_crop(transform);
    return options;
  }
};

}  // namespace

std::unique_ptr<Layer> make_DenseImageData(const LayerParameter& param) {
  return std::make_unique<DenseImageData>(param);
}
std::unique_ptr<Layer> make_ImageSegData(const LayerParameter& param) {
  return std::make_unique<ImageSegData>(param);
}

}  // namespace shoal
