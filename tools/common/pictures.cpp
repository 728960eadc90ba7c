#include "common/pictures.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "shoal/base/file.h"

namespace shoal {
namespace {

std::string kind_of_name(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  std::string end = dot == std::string::npos ? "" : path.substr(dot + 1);
  std::transform(end.begin(), end.end(), end.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return end == "jpeg" ? "jpg" : end;
}

Result<std::string> encoded_bytes(const std::string& path, const Image& image, bool resized,
                                  const std::string& encode_type) {
  const std::string own = kind_of_name(path), wanted = encode_type.empty() ? own : encode_type;
  if (wanted.empty())
    return Error{Code::kData, "has no ending that says its kind; give --encode_type"};
  if (!resized && kind_of_name("." + wanted) == own) {
    Result<std::string> bytes = read_file(path, Code::kData);
    if (!bytes.ok()) return bytes;
    const Result<Image> stored = decode_image(bytes.value(), Colour::kAsStored);
    if (stored.ok() && stored.value().size == image.size) return bytes;
  }
  return encode_image(image, wanted);
}

Image resized_whole(const Image& image, int height, int width) {
  return resize_part(image, {0, 0, image.size.height, image.size.width}, height, width);
}

// Returns by how much the sides grow under min_dim and max_dim.
float growth(const ImageSize& size, const PictureOptions& options) {
  const auto shorter = static_cast<float>(std::min(size.height, size.width)),
             longer = static_cast<float>(std::max(size.height, size.width));
  float factor = 1;
  if (options.min_dim > 0 && shorter < static_cast<float>(options.min_dim))
    factor = static_cast<float>(options.min_dim) / shorter;
  if (options.max_dim > 0 && factor * longer > static_cast<float>(options.max_dim))
    factor = static_cast<float>(options.max_dim) / longer;
  return factor;
}

// Brings the picture to its size. Returns whether that changed it.
bool fit(const PictureOptions& options, Image& image) {
  int height = options.height, width = options.width;
  if (options.min_dim > 0 || options.max_dim > 0) {
    const float factor = growth(image.size, options);
    if (factor == 1) return false;
    const auto side = [factor](int s) {
      return std::max(1, static_cast<int>(static_cast<float>(s) * factor));
    };
    height = side(image.size.height);
    width = side(image.size.width);
  }
  if (height == 0 || width == 0) return false;
  image = resized_whole(image, height, width);
  return true;
}

}  // namespace

Result<Picture> read_picture(const std::string& path, const PictureOptions& options) {
  const Colour colour = options.gray ? Colour::kGrey : Colour::kColour;
  Result<Image> read = read_image(path, colour, 0, 0, CutShort::kRefuse);
  if (!read.ok()) return read.error();
  Image image = std::move(read).value();
  Picture picture;
  picture.original = image.size;
  const bool resized = fit(options, image);
  picture.size = image.size;
  Datum& datum = picture.datum;
  datum.set_channels(image.size.channels);
  datum.set_height(image.size.height);
  datum.set_width(image.size.width);
  if (!options.encoded && options.encode_type.empty()) {
    datum.set_data(planar(image));
    return picture;
  }
  Result<std::string> bytes = encoded_bytes(path, image, resized, options.encode_type);
  if (!bytes.ok()) return Error{Code::kData, str("the image ", path, " ", bytes.error().message)};
  datum.set_encoded(true);
  datum.set_data(std::move(bytes).value());
  return picture;
}

void for_each_on(int threads, std::size_t count, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> no_memory = false;
  const auto some = [&] {
    try {
      for (std::size_t i = next++; i < count; i = next++) work(i);
    } catch (const std::bad_alloc&) {  // no exception may leave a thread
      no_memory = true;
    }
  };
  const unsigned used = threads > 0 ? static_cast<unsigned>(threads)
                                    : std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::jthread> pool;
  for (unsigned i = 0; i < used; ++i) pool.emplace_back(some);
  pool.clear();  // joins
  if (no_memory) throw std::bad_alloc();
}

void check_sides(const PictureOptions& options) {
  constexpr int kLargestSide = 1 << 16;
  if ((options.width == 0) != (options.height == 0))
    throw ConfigError(Code::kUsage, "--resize_width and --resize_height go together");
  for (const int side : {options.width, options.height, options.min_dim, options.max_dim})
    if (side < 0 || side > kLargestSide)
      throw ConfigError(Code::kUsage, "cannot resize to a side of ", side, " pixels");
  if (options.max_dim > 0 && options.min_dim > options.max_dim)
    throw ConfigError(Code::kUsage, "--min_dim=", options.min_dim,
                      " is above --max_dim=", options.max_dim);
  if (options.width > 0 && (options.min_dim > 0 || options.max_dim > 0))
    throw ConfigError(Code::kUsage,
                      "--min_dim and --max_dim keep the shape, --resize_height and "
                      "--resize_width do not; give one or the other");
}

void check_root(const std::string& root, const std::string& path) {
  if (!file_exists(root + path) && file_exists(root + "/" + path))
    throw ConfigError(Code::kUsage, "there is no ", root + path, ", but ", root + "/" + path,
                      ": ROOT needs a / at its end");
}

}  // namespace shoal
