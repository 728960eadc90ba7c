// Reads, resizes, decodes and encodes pictures with OpenCV.
#include "shoal/data/image.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <new>
#include <opencv2/core.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

#include "shoal/base/file.h"
#include "shoal/base/log.h"

namespace shoal {
namespace {

// Larger pictures are taken for damaged headers: decoding would ask for gigabytes.
constexpr std::int64_t kMaxPixels = std::int64_t{1} << 28;
constexpr const char* kCutShort =
    "is cut short: its file ends before the picture does, and what is missing would be grey";

// No mode turns pictures by their EXIF data: BVLC Caffe, built with OpenCV 2.4, turned none, and a
// database keeps pictures as they are stored.
int read_mode(Colour colour) {
  if (colour == Colour::kAsStored) return cv::IMREAD_UNCHANGED;
  return (colour == Colour::kColour ? cv::IMREAD_COLOR : cv::IMREAD_GRAYSCALE) |
         cv::IMREAD_IGNORE_ORIENTATION;
}

// Returns where the marker stands that ends a scan whose bytes begin at `at`.
std::size_t end_of_scan(std::string_view jpeg, std::size_t at) {
  for (; (at = jpeg.find('\xff', at)) != std::string_view::npos; ++at) {
    if (at + 1 >= jpeg.size()) return std::string_view::npos;
    const auto code = static_cast<unsigned char>(jpeg[at + 1]);
    const bool within = code == 0 || code == 0xff || (code >= 0xd0 && code <= 0xd7);
    if (!within) return at;
  }
  return at;
}

// Walks over the segments of a JPEG file. Returns whether the bytes end before its end marker.
bool is_cut_jpeg(std::string_view jpeg) {
  std::size_t at = 2;
  while (at + 4 <= jpeg.size()) {
    if (jpeg[at] != '\xff') return false;  // no segment: not for us to judge
    const auto code = static_cast<unsigned char>(jpeg[at + 1]);
    if (code == 0xd9) return false;
    if (code == 0xff || (code >= 0xd0 && code <= 0xd8) || code == 1) {
      at += code == 0xff ? 1 : 2;
      continue;
    }
    const auto high = static_cast<unsigned char>(jpeg[at + 2]),
               low = static_cast<unsigned char>(jpeg[at + 3]);
    at += 2 + (std::size_t{high} << 8 | low);
    if (code == 0xda) at = end_of_scan(jpeg, at);
    if (at == std::string_view::npos) return true;
  }
  return jpeg.substr(std::min(at, jpeg.size())) != "\xff\xd9";
}

Error bad(const std::string& what) { return Error{Code::kData, what}; }

// Any bytes may come in here; OpenCV answers some with an exception.
Result<cv::Mat> decode(std::string_view bytes, Colour colour) {
  if (bytes.empty()) return bad("holds no bytes");
  try {
    const cv::Mat raw(1, static_cast<int>(bytes.size()), CV_8U, const_cast<char*>(bytes.data()));
    cv::Mat picture = cv::imdecode(raw, read_mode(colour));
    if (picture.empty()) return bad("is no picture that OpenCV can decode");
    if (picture.depth() != CV_8U) return bad("has more than 8 bits a channel");
    if (static_cast<std::int64_t>(picture.total()) > kMaxPixels) return bad("is too large");
    return picture;
  } catch (const std::exception& error) {
    return bad(str("cannot be decoded: ", error.what()));
  }
}

// OpenCV throws an exception of its own where memory runs out; this is std::bad_alloc.
cv::Mat resized(const cv::Mat& picture, int height, int width) {
  cv::setNumThreads(0);  // this thread is one of a pool already
  cv::Mat resized;
  try {
    cv::resize(picture, resized, cv::Size(width, height));
  } catch (const cv::Exception& error) {
    if (error.code == cv::Error::StsNoMem) throw std::bad_alloc();
    throw;
  }
  return resized;
}

Image to_image(const cv::Mat& picture) {
  Image image{{picture.channels(), picture.rows, picture.cols}, {}};
  const std::size_t row =
      static_cast<std::size_t>(picture.cols) * static_cast<std::size_t>(picture.channels());
  image.pixels.resize(row * static_cast<std::size_t>(picture.rows));
  for (int y = 0; y < picture.rows; ++y)
    std::memcpy(image.pixels.data() + static_cast<std::size_t>(y) * row, picture.ptr(y), row);
  return image;
}

}  // namespace

bool is_cut_short(std::string_view bytes) {
  constexpr std::string_view kPng = "\x89PNG\r\n\x1a\n";
  if (bytes.starts_with("\xff\xd8\xff")) return is_cut_jpeg(bytes);
  if (bytes.starts_with(kPng)) return bytes.find("IEND") == std::string_view::npos;
  return false;
}

std::string to_string(const ImageSize& size) {
  return str(size.channels, " x ", size.height, " x ", size.width);
}

Result<Image> decode_image(std::string_view bytes, Colour colour) {
  Result<cv::Mat> picture = decode(bytes, colour);
  if (!picture.ok()) return picture.error();
  return to_image(picture.value());
}

Result<Image> read_image(const std::string& path, Colour colour, int height, int width,
                         CutShort cut) {
  Result<std::string> bytes = read_file(path, Code::kData);
  if (!bytes.ok()) return bytes.error();
  Result<cv::Mat> picture = decode(bytes.value(), colour);
  if (!picture.ok()) return bad(str("the image ", path, " ", picture.error().message));
  if (is_cut_short(bytes.value())) {
    if (cut == CutShort::kRefuse) return bad(str("the image ", path, " ", kCutShort));
    LOG(WARNING) << "the image " << path << " " << kCutShort;
  }
  if (height == 0 || width == 0) return to_image(picture.value());
  return to_image(resized(picture.value(), height, width));
}

Image resize_part(const Image& image, const ImagePart& part, int height, int width) {
  const cv::Mat picture(image.size.height, image.size.width, CV_8UC(image.size.channels),
                        const_cast<std::uint8_t*>(image.pixels.data()));
  return to_image(
      resized(picture(cv::Rect(part.left, part.top, part.width, part.height)), height, width));
}

Result<std::string> encode_image(const Image& image, const std::string& type) {
  std::vector<unsigned char> bytes;
  try {
    const cv::Mat picture(image.size.height, image.size.width, CV_8UC(image.size.channels),
                          const_cast<std::uint8_t*>(image.pixels.data()));
    if (!cv::imencode("." + type, picture, bytes)) return bad(str("cannot be encoded as ", type));
  } catch (const std::exception& error) {
    return bad(str("cannot be encoded as ", type, ": ", error.what()));
  }
  return std::string(bytes.begin(), bytes.end());
}

std::string planar(const Image& image) {
  const std::size_t channels = static_cast<std::size_t>(image.size.channels),
                    plane = image.pixels.size() / channels;
  std::string out(image.pixels.size(), '\0');
  for (std::size_t c = 0; c < channels; ++c)
    for (std::size_t i = 0; i < plane; ++i)
      out[c * plane + i] = static_cast<char>(image.pixels[i * channels + c]);
  return out;
}

}  // namespace shoal
