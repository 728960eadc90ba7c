// Implements the items that data layers read: records and listed pictures.
#include "shoal/data/items.h"

#include <utility>

#include "shoal/base/log.h"
#include "shoal/data/random_sizes.h"
#include "shoal/data/record_items.h"
#include "shoal/proto/blob.pb.h"

namespace shoal {
namespace {

void warn_if_smaller(const std::string& path, std::uint64_t count, int batch_size,
                     std::uint64_t nets) {
  if (count < static_cast<std::uint64_t>(batch_size) * nets)
    LOG(WARNING) << "a batch of " << batch_size
                 << (nets > 1 ? str(" on each of ", nets, " nets") : "")
                 << " is larger than the set " << path << " of " << count
                 << " records: each batch holds some of them more than once";
}

Status put(const Transform& transform, const Pixels& pixels,
           const std::array<std::uint32_t, 4>& random, Sample& sample) {
  Result<ImageSize> size = transform.output_size(pixels.size);
  if (!size.ok()) return size.error();
  if (!sample.wants_bytes() || !pixels.in_bytes()) {
    transform.apply(pixels, random, sample.resize(size.value()));
    return {};
  }
  const ImageCrop crop = transform.crop(pixels, random);
  transform.cut(pixels, crop, sample.resize(size.value(), crop));
  return {};
}

}  // namespace

Random generator_of(const std::array<std::uint32_t, 4>& words) {
  return Random(std::uint64_t{words[0]} << 32 | words[1], std::uint64_t{words[2]} << 32 | words[3]);
}

Status put_pixels(const Transform& transform, const Pixels& pixels,
                  const std::array<std::uint32_t, 4>& random, Sample& sample) {
  if (!transform.random_sizes()) return put(transform, pixels, random, sample);
  if (!pixels.in_bytes())
    return Error{Code::kData, "holds floats; sizes are drawn for pictures of bytes alone"};
  const Result<Image> sized =
      transform.random_sizes()->apply(image_of(pixels), generator_of(random));
  if (!sized.ok()) return sized.error();
  return put(transform, pixels_of(sized.value()), random, sample);
}

RecordItems::RecordItems(std::unique_ptr<RecordSource> source, const SequenceOptions& sequence,
                         Transform transform, int batch_size)
    : source_(std::move(source)),
      sequence_(sequence),
      transform_(std::move(transform)),
      batch_size_(batch_size) {}

void RecordItems::make_numbers(const Sample& in_bytes, std::span<float> numbers) const {
  transform_.apply(in_bytes.bytes(), in_bytes.size(), in_bytes.crop(), numbers);
}

Status RecordItems::start() {
  if (!leaps()) return {};
  if (Status prepared = source_->prepare_random_access(); !prepared.ok()) return prepared;
  Result<std::uint64_t> count = source_->count();
  if (!count.ok()) return count.error();
  count_ = count.value();
  warn_if_smaller(path(), count_, batch_size_, sequence_.step());
  return {};
}

Status RecordItems::read(Item& item) {
  const std::uint64_t position =
      leaps() ? sequence_.record(item.n, count_) : sequence_.position(item.n);
  if (position != next_) {
    if (Status moved = source_->seek(position); !moved.ok()) return moved;
    whole_ = position == 0;
    in_set_ = 0;
  }
  Result<std::optional<RecordView>> record = source_->next();
  if (record.ok() && !record.value()) {
    if (whole_ && !warned_ && !leaps()) warn_if_smaller(path(), in_set_, batch_size_, 1);
    warned_ = warned_ || whole_;
    whole_ = true;
    in_set_ = 0;
    if (Status moved = source_->seek(0); !moved.ok()) return moved;
    record = source_->next();
  }
  if (!record.ok()) return record.error();
  if (!record.value()) return Error{Code::kData, str(path(), " has no records any more")};
  ++in_set_;
  next_ = position + 1;
  item.name = record.value()->key;
  item.bytes = record.value()->value;
  return {};
}

Result<ItemKind> RecordItems::kind(const Item& item) const {
  Datum datum;
  if (!datum.ParseFromString(item.bytes)) return Error{Code::kData, "is no Datum"};
  Result<DatumPixels> pixels = pixels_of(datum, transform_.colour());
  if (!pixels.ok()) return pixels.error();
  if (transform_.colour() != Colour::kAsStored && !datum.encoded())
    LOG(WARNING) << path()
                 << ": force_color and force_gray work on encoded records only; these are not";
  const ImageSize& stored = pixels.value().pixels.size;
  if ((stored.width == 3 || stored.width == 1) && stored.channels > 4 && stored.height > 4)
    LOG(WARNING) << path() << ": the record " << item.name << " has " << stored.channels
                 << " channels of " << stored.height << " x " << stored.width
                 << ". Was it written as height x width x channels? A Datum holds channels x "
                 << "height x width";
  Result<ImageSize> size = transform_.output_size(stored);
  if (!size.ok()) return size.error();
  return ItemKind{size.value(), datum.encoded(), pixels.value().pixels.in_bytes()};
}

Status RecordItems::make(const Item& item, Sample& sample) const {
  Datum datum;
  if (!datum.ParseFromString(item.bytes)) return Error{Code::kData, "is no Datum"};
  Result<DatumPixels> pixels = pixels_of(datum, transform_.colour());
  if (!pixels.ok()) return pixels.error();
  sample.label = static_cast<float>(datum.label());
  return put_pixels(transform_, pixels.value().pixels, sequence_.random(item.n), sample);
}

namespace {

class ImageItems final : public ItemSource {
 public:
  ImageItems(std::vector<ListedImage> images, const ImageItemsOptions& options,
             const SequenceOptions& sequence, Transform transform)
      : images_(std::move(images)),
        options_(options),
        sequence_(sequence),
        transform_(std::move(transform)) {
    warn_if_smaller(options_.list, images_.size(), options_.batch_size, sequence.step);
  }
  const std::string& path() const override { return options_.list; }
  Status read(Item& item) override {
    item.index = sequence_.record(item.n, images_.size());
    item.name = str(images_[item.index].path, " (line ", images_[item.index].line, ")");
    return {};
  }
  Result<ItemKind> kind(const Item& item) const override {
    Result<Image> image = load(item);
    if (!image.ok()) return image.error();
    Result<ImageSize> size = transform_.output_size(image.value().size);
    if (!size.ok()) return size.error();
    return ItemKind{size.value(), true, true};
  }
  Status make(const Item& item, Sample& sample) const override {
    Result<Image> image = load(item);
    if (!image.ok()) return image.error();
    sample.label = static_cast<float>(images_[item.index].label);
    return put_pixels(transform_, pixels_of(image.value()), sequence_.random(item.n), sample);
  }
  void make_numbers(const Sample& in_bytes, std::span<float> numbers) const override {
    transform_.apply(in_bytes.bytes(), in_bytes.size(), in_bytes.crop(), numbers);
  }

 private:
  Result<Image> load(const Item& item) const {
    const Colour colour = options_.colour ? Colour::kColour : Colour::kGrey;
    Result<Image> image = read_image(options_.root + images_[item.index].path, colour,
                                     options_.height, options_.width);
    if (!image.ok()) return Error{Code::kData, str("is bad: ", image.error().message)};
    return image;
  }
  std::vector<ListedImage> images_;
  ImageItemsOptions options_;
  Sequence sequence_;
  Transform transform_;
};

}  // namespace

Result<std::unique_ptr<ItemSource>> record_items(std::unique_ptr<RecordSource> source,
                                                 const SequenceOptions& sequence,
                                                 Transform transform, int batch_size) {
  auto items =
      std::make_unique<RecordItems>(std::move(source), sequence, std::move(transform), batch_size);
  if (Status started = items->start(); !started.ok()) return started.error();
  return std::unique_ptr<ItemSource>(std::move(items));
}

std::unique_ptr<ItemSource> image_items(std::vector<ListedImage> images,
                                        const ImageItemsOptions& options,
                                        const SequenceOptions& sequence, Transform transform) {
  return std::make_unique<ImageItems>(std::move(images), options, sequence, std::move(transform));
}

}  // namespace shoal
