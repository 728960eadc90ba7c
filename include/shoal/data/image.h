// Reads, resizes, decodes and encodes pictures. No other module uses OpenCV for that. Channels
// are blue, green, red as OpenCV gives them. Every function may be called from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/base/error.h"

namespace shoal {

struct ImageSize {
  int channels = 0, height = 0, width = 0;
  std::int64_t count() const { return std::int64_t{channels} * height * width; }
  bool operator==(const ImageSize&) const = default;
};
std::string to_string(const ImageSize& size);  // "3 x 32 x 32", channels first

// A picture as decoded: rows of pixels, the channels of a pixel side by side.
struct Image {
  ImageSize size;
  std::vector<std::uint8_t> pixels;
};

// A part of a picture, in pixels.
struct ImagePart {
  int top = 0, left = 0, height = 0, width = 0;
  bool operator==(const ImagePart&) const = default;
};

enum class Colour { kAsStored, kColour, kGrey };

// Returns whether the bytes of a JPEG or PNG file end before the picture does.
bool is_cut_short(std::string_view bytes);

// Decodes the picture in `bytes` (JPEG, PNG, ...), 8 bits a channel. Errors (kData) say what was
// wrong, not where the bytes came from. No picture is turned by its EXIF data.
Result<Image> decode_image(std::string_view bytes, Colour colour);

// Says what becomes of a picture whose file is cut short.
enum class CutShort { kWarn, kRefuse };

// Reads the picture in a file, resized (bilinear) if height and width are not 0. Errors (kData)
// name the file.
Result<Image> read_image(const std::string& path, Colour colour, int height, int width,
                         CutShort cut = CutShort::kWarn);

// Returns a part of `image`, which lies within it, resized (bilinear).
Image resize_part(const Image& image, const ImagePart& part, int height, int width);

// Returns `image` as the bytes of a file of `type`: "jpg", "png" or another that OpenCV knows by
// its ending.
Result<std::string> encode_image(const Image& image, const std::string& type);

// Returns the pixels channel by channel, as a Datum holds them.
std::string planar(const Image& image);

}  // namespace shoal
