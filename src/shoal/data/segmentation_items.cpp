// Reads pictures with a label for each pixel, and cuts and mirrors both alike.
#include <algorithm>
#include <utility>

#include "shoal/data/items.h"

namespace shoal {
namespace {

class SegmentationItems final : public ItemSource {
 public:
  SegmentationItems(LabelledImages images, const SegmentationItemsOptions& options,
                    const SequenceOptions& sequence, Transform transform)
      : images_(std::move(images)),
        options_(options),
        sequence_(sequence),
        transform_(std::move(transform)),
        mean_(transform_.mean()) {}

  const std::string& path() const override { return images_.list(); }
  Status read(Item& item) override {
    item.index = sequence_.record(item.n, images_.count());
    item.name = images_.name(item.index);
    return {};
  }
  Result<ItemKind> kind(const Item& item) const override {
    const Result<LabelledImage> pair = images_.read(item.index);
    if (!pair.ok()) return pair.error();
    const Result<ImageSize> size = size_of(pair.value().image.size);
    if (!size.ok()) return size.error();
    return ItemKind{size.value(), true, false};
  }
  Status make(const Item& item, Sample& sample) const override {
    const Result<LabelledImage> pair = images_.read(item.index);
    if (!pair.ok()) return pair.error();
    const Result<ImageSize> size = size_of(pair.value().image.size);
    if (!size.ok()) return size.error();
    write(pair.value(), size.value(), sequence_.random(item.n), sample);
    return {};
  }

 private:
  // Returns the size of a picture in the batch.
  Result<ImageSize> size_of(const ImageSize& image) const {
    if (Result<ImageSize> fits = transform_.output_size(image); !fits.ok()) return fits;
    if (options_.crop_height == 0) return image;
    const ImageSize size{image.channels, options_.crop_height, options_.crop_width};
    if (!options_.pads && (image.height < size.height || image.width < size.width))
      return Error{Code::kData, str("is ", image.height, " x ", image.width,
                                    ", smaller than the crop, ", size.height, " x ", size.width)};
    return size;
  }

  int offset(int whole, int part, std::uint32_t word) const {
    const int room = std::max(whole, part) - part;
    return options_.training ? static_cast<int>(word % (static_cast<std::uint32_t>(room) + 1))
                             : room / 2;
  }

  void write(const LabelledImage& pair, const ImageSize& size,
             const std::array<std::uint32_t, 4>& random, Sample& sample) const {
    const ImageSize& in = pair.image.size;
    const int top = offset(in.height, size.height, random[0]),
              left = offset(in.width, size.width, random[1]);
    const bool mirror = options_.mirror && (random[2] & 1) != 0;
    const std::span<float> data = sample.resize(size);
    const std::size_t plane =
        static_cast<std::size_t>(size.height) * static_cast<std::size_t>(size.width);
    const auto channels = static_cast<std::size_t>(in.channels);
    sample.label = 0;
    sample.rows = std::min(size.height, in.height);
    sample.columns = std::min(size.width, in.width);
    sample.pixel_labels.assign(plane, static_cast<std::uint8_t>(options_.ignore_label));
    std::ranges::fill(data, 0.0f);
    for (int h = 0; h < size.height && top + h < in.height; ++h)
      for (int w = 0; w < size.width; ++w) {
        const int x = left + (mirror ? size.width - 1 - w : w);
        if (x >= in.width) continue;
        const auto from = static_cast<std::size_t>(std::int64_t{top + h} * in.width + x),
                   to = static_cast<std::size_t>(std::int64_t{h} * size.width + w);
        sample.pixel_labels[to] = pair.labels.pixels[from];
        for (std::size_t c = 0; c < channels; ++c)
          data[c * plane + to] =
              (pair.image.pixels[from * channels + c] - mean_at(channels, c, from)) *
              transform_.scale();
      }
  }

  // `place` is of the picture, as large as that of a mean file.
  float mean_at(std::size_t channels, std::size_t channel, std::size_t place) const {
    const std::span<const float> means = mean_.host();
    if (means.size() == 1) return means[0];
    if (means.size() == channels) return means[channel];
    return means[channel * (means.size() / channels) + place];
  }

  LabelledImages images_;
  SegmentationItemsOptions options_;
  Sequence sequence_;
  Transform transform_;
  Tensor mean_;
};

}  // namespace

std::unique_ptr<ItemSource> segmentation_items(LabelledImages images,
                                               const SegmentationItemsOptions& options,
                                               const SequenceOptions& sequence,
                                               Transform transform) {
  return std::make_unique<SegmentationItems>(std::move(images), options, sequence,
                                             std::move(transform));
}

}  // namespace shoal
