// DenseImageData layer, of SegNet's fork, and ImageSegData, of DeepLab's and PSPNet's: pictures
// with a label for each pixel.
#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "shoal/base/timer.h"
#include "shoal/data/sequence.h"
#include "shoal/data/transform.h"
#include "shoal/layers/labelled_images.h"
#include "shoal/layers/source_place.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// Options of both layers, from the messages of their types.
struct SegmentationOptions {
  SourcePlace::Source source;
  LabelledImagesOptions images;
  int crop_height = 0, crop_width = 0;
  bool mirror = false;
  bool pads = false;                  // to the crop
  TransformationParameter transform;  // without crop and mirror
};

// Reads batches of pictures and label pictures that a text file lists.
//   top[0] (N, C, H, W), (pixel - mean) x scale   top[1] (N, 1, H, W), labels from 0 to 255
//   top[2], of ImageSegData if it is named: (N, 1, 1, 2), height and width of each picture, at most
//   those of the batch
// Both pictures are resized, cropped (anywhere in TRAIN, the middle in TEST) and mirrored alike;
// labels take the nearest pixel. ImageSegData pads to the crop at the right and below, with the
// mean and ignore_label. The pictures of a batch have one size; without crop the next batch may
// have another. Batches are read by the thread that drives the net, when it takes one. Sources:
// SegNet's DenseImageDataLayer, which has no crop and mirror of its own yet, and PSPNet's
// ImageSegDataLayer.
class SegmentationData : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override {
    return {.min_bottoms = 0, .max_bottoms = 0, .min_tops = 2, .max_tops = most_tops()};
  }
  Replays replays() const override { return {.forward = false}; }

  void setup(Context& ctx, Bottoms, Tops tops) override {
    options_ = options();
    if (options_.source.batch_size < 1) throw config_error(param(), "batch_size must be given");
    check_pair("new_height", options_.images.height, "new_width", options_.images.width);
    check_pair("crop_height", options_.crop_height, "crop_width", options_.crop_width);
    Result<Transform> transform = Transform::create(options_.transform, training());
    if (!transform.ok())
      throw config_error(transform.error().code, param(), transform.error().message);
    transform_.emplace(std::move(transform).value());
    place_.begin(*this, ctx, options_.source);
    options_.images.list = place_.path();
    Result<LabelledImages> images = LabelledImages::open(options_.images);
    if (!images.ok()) throw config_error(images.error().code, param(), images.error().message);
    images_.emplace(std::move(images).value());
    sequence_.emplace(place_.sequence());
    const Result<LabelledImage> first =
        images_->read(sequence_->record(place_.n(), images_->count()));
    if (!first.ok()) throw config_error(first.error().code, param(), first.error().message);
    const Result<ImageSize> size = size_of(first.value().image.size);
    if (!size.ok()) throw config_error(size.error().code, param(), size.error().message);
    shape(tops, size.value());
  }
  void reshape(Context&, Bottoms, Tops) override {}

  bool follow_input(Context& ctx, Tops tops) override {
    const auto began = std::chrono::steady_clock::now();
    batch_.clear();
    used_.clear();
    std::optional<ImageSize> size;
    const auto count = static_cast<std::uint64_t>(options_.source.batch_size);
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::size_t record = sequence_->record(place_.n() + i, images_->count());
      used_.push_back(record);
      Result<LabelledImage> pair = images_->read(record);
      if (!pair.ok()) return fail(ctx, pair.error(), i);
      const Result<ImageSize> of_item = size_of(pair.value().image.size);
      if (!of_item.ok())
        return fail(ctx, {of_item.error().code, images_->at(record) + of_item.error().message}, i);
      if (size.value_or(of_item.value()) != of_item.value())
        return fail(
            ctx,
            {Code::kData, str(images_->at(record), "the picture is ", to_string(of_item.value()),
                              ", those before it in the batch ", to_string(*size),
                              "; set a crop, or new_height and new_width, or batch_size: "
                              "1")},
            i);
      size = of_item.value();
      batch_.push_back(std::move(pair).value());
    }
    seconds_ += to_seconds(std::chrono::steady_clock::now() - began);
    if (*size == size_) return false;
    shape(tops, *size);
    return true;
  }
  void forward(Context&, Bottoms, Tops tops) override {
    if (batch_.size() != static_cast<std::size_t>(options_.source.batch_size)) return;
    float *data = tops[0]->data.out(), *labels = tops[1]->data.out();
    float* sizes = tops.size() > 2 ? tops[2]->data.out() : nullptr;
    const std::int64_t plane = std::int64_t{size_.height} * size_.width;
    const Tensor mean = transform_->mean();
    for (std::size_t i = 0; i < batch_.size(); ++i) {
      const auto random = sequence_->random(place_.n() + i);
      write(batch_[i], random, mean, data + static_cast<std::int64_t>(i) * size_.count(),
            labels + static_cast<std::int64_t>(i) * plane);
      if (sizes == nullptr) continue;
      sizes[2 * i] = static_cast<float>(std::min(size_.height, batch_[i].image.size.height));
      sizes[2 * i + 1] = static_cast<float>(std::min(size_.width, batch_[i].image.size.width));
    }
    place_.use_until(place_.n() + batch_.size());
  }
  void backward(Context&, Tops, const std::vector<bool>&, Bottoms) override {}

  std::string save_state() const override { return place_.save(); }
  Status load_state(std::string_view state) override { return go_on(place_.load(state)); }
  Status load_states(std::string_view own, const std::vector<std::string_view>& all) override {
    return go_on(place_.load_all(own, all));
  }
  std::string record_name(std::int64_t item) const override {
    if (item < 0 || item >= static_cast<std::int64_t>(used_.size())) return {};
    return images_->name(used_[static_cast<std::size_t>(item)]);
  }
  double seconds_waited() const override { return seconds_; }

 protected:
  virtual SegmentationOptions options() const = 0;  // throws ConfigError
  virtual int most_tops() const = 0;

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

  // Returns the size of a picture in the batch.
  Result<ImageSize> size_of(const ImageSize& image) const {
    if (Result<ImageSize> fits = transform_->output_size(image); !fits.ok()) return fits;
    if (options_.crop_height == 0) return image;
    const ImageSize size{image.channels, options_.crop_height, options_.crop_width};
    if (!options_.pads && (image.height < size.height || image.width < size.width))
      return Error{Code::kData, str("the picture is ", image.height, " x ", image.width,
                                    ", smaller than the crop, ", size.height, " x ", size.width)};
    return size;
  }

  void shape(Tops tops, const ImageSize& size) {
    const std::int64_t batch = options_.source.batch_size;
    size_ = size;
    tops[0]->reshape({batch, size.channels, size.height, size.width});
    tops[1]->reshape({batch, 1, size.height, size.width});
    if (tops.size() > 2) tops[2]->reshape({batch, 1, 1, 2});
  }

  bool fail(Context& ctx, const Error& error, std::uint64_t item) {
    batch_.clear();
    ctx.fail(error, static_cast<std::int64_t>(item));
    return false;
  }

  // Writes one item; places that the picture has not are the mean, which is 0 then, and
  // ignore_label.
  void write(const LabelledImage& pair, const std::array<std::uint32_t, 4>& random,
             const Tensor& mean, float* data, float* labels) const {
    const ImageSize& in = pair.image.size;
    const auto offset = [&](int whole, int part, std::uint32_t word) {
      const int room = std::max(whole, part) - part;
      return training() ? static_cast<int>(word % (static_cast<std::uint32_t>(room) + 1))
                        : room / 2;
    };
    const int top = offset(in.height, size_.height, random[0]),
              left = offset(in.width, size_.width, random[1]);
    const bool mirror = options_.mirror && (random[2] & 1) != 0;
    const std::span<const float> means = mean.host();
    const std::int64_t plane = std::int64_t{size_.height} * size_.width;
    for (int h = 0; h < size_.height; ++h)
      for (int w = 0; w < size_.width; ++w) {
        const int y = top + h, x = left + (mirror ? size_.width - 1 - w : w);
        const std::int64_t to = std::int64_t{h} * size_.width + w;
        const bool inside = y < in.height && x < in.width;
        const std::size_t from = static_cast<std::size_t>(std::int64_t{y} * in.width + x);
        labels[to] =
            static_cast<float>(inside ? pair.labels.pixels[from] : options_.images.ignore_label);
        for (int c = 0; c < in.channels; ++c) {
          const std::size_t pixel =
              from * static_cast<std::size_t>(in.channels) + static_cast<std::size_t>(c);
          data[c * plane + to] = inside ? (pair.image.pixels[pixel] - mean_at(means, in, c, from)) *
                                              transform_->scale()
                                        : 0;
        }
      }
  }

  static float mean_at(std::span<const float> means, const ImageSize& size, int channel,
                       std::size_t place) {
    if (means.size() == 1) return means[0];
    const auto c = static_cast<std::size_t>(channel);
    if (means.size() == static_cast<std::size_t>(size.channels)) return means[c];
    return means[c * (means.size() / static_cast<std::size_t>(size.channels)) + place];
  }

  Status go_on(const Result<bool>& in_another_order) {
    if (!in_another_order.ok()) return in_another_order.error();
    sequence_.emplace(place_.sequence());
    return {};
  }

  SegmentationOptions options_;
  SourcePlace place_;
  std::optional<LabelledImages> images_;
  std::optional<Sequence> sequence_;
  std::optional<Transform> transform_;
  ImageSize size_;                    // of the batch's items
  std::vector<LabelledImage> batch_;  // the next one
  std::vector<std::size_t> used_;     // its pairs
  double seconds_ = 0;
};

// Takes crop and mirror, which are done to both pictures, out of the message.
TransformationParameter without_crop(TransformationParameter transform) {
  transform.clear_crop_size();
  transform.clear_crop_h();
  transform.clear_crop_w();
  transform.clear_mirror();
  return transform;
}

// Returns the options that both messages have under one name.
template <class Data>
SegmentationOptions options_of(const Data& data) {
  SegmentationOptions options;
  options.source = {.path = data.source(),
                    .shared = data.shared_file_system(),
                    .why_not_shared = "",
                    .how_to_cut = "",
                    .batch_size = data.batch_size(),
                    .shuffle = data.shuffle(),
                    .rand_skip = data.rand_skip()};
  options.images.root = data.root_folder();
  options.images.height = static_cast<int>(data.new_height());
  options.images.width = static_cast<int>(data.new_width());
  options.images.colour = data.is_color();
  return options;
}

class DenseImageData final : public SegmentationData {
 public:
  using SegmentationData::SegmentationData;

 private:
  int most_tops() const override { return 2; }
  SegmentationOptions options() const override {
    const DenseImageDataParameter& data = param().dense_image_data_param();
    const TransformationParameter& transform = param().transform_param();
    SegmentationOptions options = options_of(data);
    options.crop_height =
        static_cast<int>(data.has_crop_height() ? data.crop_height() : transform.crop_size());
    options.crop_width =
        static_cast<int>(data.has_crop_width() ? data.crop_width() : transform.crop_size());
    options.mirror = data.mirror() || transform.mirror();
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
    if (data.on_bad_record() != DataParameter::STOP)
      throw config_error(param(),
                         "on_bad_record is not for ImageSegData; a picture that cannot be "
                         "read ends the pass");
    SegmentationOptions options = options_of(data);
    options.crop_height =
        static_cast<int>(transform.has_crop_h() ? transform.crop_h() : transform.crop_size());
    options.crop_width =
        static_cast<int>(transform.has_crop_w() ? transform.crop_w() : transform.crop_size());
    options.mirror = transform.mirror();
    options.pads = true;
    options.images.labels = data.label_type();
    options.images.ignore_label = data.ignore_label();
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
