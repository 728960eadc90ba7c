// Implements the items that are windows of pictures.
#include <algorithm>
#include <utility>

#include "shoal/base/file.h"
#include "shoal/data/items.h"

namespace shoal {
namespace {

constexpr int kColours = 3;

// Returns the numbers that are subtracted from those of an input of `side` x `side` pixels.
Result<std::vector<float>> mean_of_input(const Transform& transform, int side) {
  const Tensor mean = transform.mean();
  const std::span<const float> values = mean.host();
  const auto bad = [&](const auto&... words) { return Error{Code::kData, str(words...)}; };
  const bool of_file = !transform.mean_path().empty();
  std::int64_t height = 1, width = 1, offset = 0;
  if (of_file) {
    height = mean.shape()[1];
    width = mean.shape()[2];
    offset = (width - side) / 2;
    if (mean.shape()[0] != kColours || width < side || offset + side > height)
      return bad("the mean file ", transform.mean_path(), " is ", mean.shape()[0], " x ", height,
                 " x ", width, "; of its 3 channels ", side, " x ", side,
                 " pixels are wanted, from row and column (width - crop_size) / 2 on");
  } else if (values.size() != 1 && values.size() != kColours) {
    return bad("mean_value is given ", values.size(), " times: give one, or one a channel, 3");
  }
  const auto at = [&](std::int64_t channel, std::int64_t y, std::int64_t x) {
    if (!of_file) return values[values.size() == 1 ? 0 : static_cast<std::size_t>(channel)];
    return values[static_cast<std::size_t>((channel * height + offset + y) * width + offset + x)];
  };
  std::vector<float> input;
  input.reserve(static_cast<std::size_t>(ImageSize{kColours, side, side}.count()));
  for (int channel = 0; channel < kColours; ++channel)
    for (int y = 0; y < side; ++y)
      for (int x = 0; x < side; ++x) input.push_back(at(channel, y, x));
  return input;
}

// Returns a number below `count`, which has 32 bits.
std::uint64_t pick_below(std::uint64_t count, std::uint32_t high, std::uint32_t low) {
  return (high * count + (low * count >> 32)) >> 32;
}

class WindowItems final : public ItemSource {
 public:
  WindowItems(WindowFile windows, const WindowItemsOptions& options,
              const SequenceOptions& sequence, float scale)
      : windows_(std::move(windows)),
        options_(options),
        sequence_(sequence),
        scale_(scale),
        // Multiplies with float's roundings, as Caffe does.
        foreground_(static_cast<int>(static_cast<float>(options.batch_size) * options.foreground)) {
  }
  Status start(const Transform& transform);
  const std::string& path() const override { return options_.file; }
  Status read(Item& item) override;
  Result<ItemKind> kind(const Item& item) const override;
  Status make(const Item& item, Sample& sample) const override;

 private:
  ImageSize size() const { return {kColours, options_.crop.size, options_.crop.size}; }
  Status check_kind(const std::vector<Window>& windows, const char* kind, int in_batch) const;
  Status fill_cache();
  const Window& window(std::uint64_t index) const;
  std::string path_of(const WindowPicture& picture) const { return options_.root + picture.path; }
  Result<Image> load(const Window& window) const;
  void write(const Image& part, const ImagePart& place, bool mirrored, std::span<float> out) const;

  WindowFile windows_;
  WindowItemsOptions options_;
  Sequence sequence_;
  float scale_;
  int foreground_;                  // of a batch
  std::vector<float> mean_;         // size()
  std::vector<std::string> files_;  // of the pictures, if they are cached
};

Status WindowItems::check_kind(const std::vector<Window>& windows, const char* kind,
                               int in_batch) const {
  if (!windows.empty() || in_batch == 0) return {};
  return Error{Code::kData,
               str(path(), " has no ", kind, " windows, and of a batch of ", options_.batch_size,
                   ' ', in_batch, " are ", kind, " (fg_fraction ", options_.foreground, "): of ",
                   windows_.pictures.size(), " pictures ", windows_.foreground.size(),
                   " windows are foreground by fg_threshold, ", windows_.background.size(),
                   " background by bg_threshold, ", windows_.neither, " neither")};
}

Status WindowItems::fill_cache() {
  files_.resize(windows_.pictures.size());
  for (const std::vector<Window>* kind : {&windows_.background, &windows_.foreground})
    for (const Window& window : *kind) {
      if (!files_[window.picture].empty()) continue;
      const WindowPicture& picture = windows_.pictures[window.picture];
      Result<std::string> bytes = read_file(path_of(picture), Code::kData);
      if (!bytes.ok())
        return Error{Code::kData, str(path(), ":", picture.line, ": ", bytes.error().message)};
      files_[window.picture] = std::move(bytes).value();
    }
  return {};
}

Status WindowItems::start(const Transform& transform) {
  if (Status some =
          check_kind(windows_.background, "background", options_.batch_size - foreground_);
      !some.ok())
    return some;
  if (Status some = check_kind(windows_.foreground, "foreground", foreground_); !some.ok())
    return some;
  Result<std::vector<float>> mean = mean_of_input(transform, options_.crop.size);
  if (!mean.ok()) return mean.error();
  mean_ = std::move(mean).value();
  return options_.cached ? fill_cache() : Status();
}

// An item's index counts the background windows, then those of foreground.
Status WindowItems::read(Item& item) {
  const auto batch = static_cast<std::uint64_t>(options_.batch_size),
             in_front = static_cast<std::uint64_t>(options_.batch_size - foreground_);
  const bool foreground = item.n % batch >= in_front;
  const auto random = sequence_.random(item.n);
  const std::size_t skipped = foreground ? windows_.background.size() : 0;
  const std::size_t count = foreground ? windows_.foreground.size() : windows_.background.size();
  item.index = skipped + pick_below(count, random[0], random[1]);
  const Window& drawn = window(item.index);
  item.name = str(windows_.pictures[drawn.picture].path, " (line ", drawn.line, ")");
  return {};
}

const Window& WindowItems::window(std::uint64_t index) const {
  const std::size_t background = windows_.background.size();
  return index < background ? windows_.background[index] : windows_.foreground[index - background];
}

Result<Image> WindowItems::load(const Window& window) const {
  const WindowPicture& picture = windows_.pictures[window.picture];
  const std::string path = path_of(picture);
  Result<Image> image = files_.empty() ? read_image(path, Colour::kColour, 0, 0)
                                       : decode_image(files_[window.picture], Colour::kColour);
  if (!image.ok())
    return Error{Code::kData, str("is bad: ", files_.empty() ? "" : str("the image ", path, " "),
                                  image.error().message)};
  const ImageSize& size = image.value().size;
  if (size.height != picture.height || size.width != picture.width)
    return Error{Code::kData, str("is bad: the image ", path, " has ", size.height, " x ",
                                  size.width, " pixels, height first, and the window file says ",
                                  picture.height, " x ", picture.width, " at line ", picture.line)};
  return image;
}

Result<ItemKind> WindowItems::kind(const Item& item) const {
  const Result<Image> image = load(window(item.index));
  if (!image.ok()) return image.error();
  return ItemKind{size(), true, false};
}

Status WindowItems::make(const Item& item, Sample& sample) const {
  const Window& window = this->window(item.index);
  const Result<Image> image = load(window);
  if (!image.ok()) return image.error();
  const bool mirrored = options_.mirror && (sequence_.random(item.n)[2] >> 31) != 0;
  const WindowCrop crop =
      crop_window(window, windows_.pictures[window.picture], options_.crop, mirrored);
  const std::span<float> out = sample.resize(size());
  std::ranges::fill(out, 0.0f);  // beyond the picture's border, as if the mean stood there
  write(resize_part(image.value(), crop.from, crop.to.height, crop.to.width), crop.to, mirrored,
        out);
  sample.label = static_cast<float>(window.label);
  return {};
}

void WindowItems::write(const Image& part, const ImagePart& place, bool mirrored,
                        std::span<float> out) const {
  const auto side = static_cast<std::size_t>(options_.crop.size),
             top = static_cast<std::size_t>(place.top), left = static_cast<std::size_t>(place.left),
             height = static_cast<std::size_t>(place.height),
             width = static_cast<std::size_t>(place.width);
  for (std::size_t channel = 0; channel < kColours; ++channel)
    for (std::size_t y = 0; y < height; ++y)
      for (std::size_t x = 0; x < width; ++x) {
        const std::size_t from = (y * width + (mirrored ? width - 1 - x : x)) * kColours + channel,
                          to = (channel * side + top + y) * side + left + x;
        out[to] = (static_cast<float>(part.pixels[from]) - mean_[to]) * scale_;
      }
}

}  // namespace

Result<std::unique_ptr<ItemSource>> window_items(WindowFile windows,
                                                 const WindowItemsOptions& options,
                                                 const SequenceOptions& sequence,
                                                 const Transform& transform) {
  auto items =
      std::make_unique<WindowItems>(std::move(windows), options, sequence, transform.scale());
  if (Status started = items->start(transform); !started.ok()) return started.error();
  return std::unique_ptr<ItemSource>(std::move(items));
}

}  // namespace shoal
