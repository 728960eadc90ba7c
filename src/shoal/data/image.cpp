// Reads, resizes, decodes and encodes pictures with OpenCV.
#include "shoal/data/image.h"

#include <cerrno>
#include <cstring>
#include <exception>
#include <new>
#include <opencv2/core.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

#include "shoal/base/file.h"

namespace shoal {
namespace {

// Larger pictures are taken for damaged headers: decoding would ask for gigabytes.
constexpr std::int64_t kMaxPixels = std::int64_t{1} << 28;

int read_mode(Colour colour) {
  if (colour == Colour::kColour) return cv::IMREAD_COLOR;
  return colour == Colour::kGrey ? cv::IMREAD_GRAYSCALE : cv::IMREAD_UNCHANGED;
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

std::string to_string(const ImageSize& size) {
  return str(size.channels, " x ", size.height, " x ", size.width);
}

Result<Image> decode_image(std::string_view bytes, Colour colour) {
  Result<cv::Mat> picture = decode(bytes, colour);
  if (!picture.ok()) return picture.error();
  return to_image(picture.value());
}

Result<Image> read_image(const std::string& path, Colour colour, int height, int width) {
  Result<std::string> bytes = read_file(path, Code::kData);
  if (!bytes.ok()) return bytes.error();
  Result<cv::Mat> picture = decode(bytes.value(), colour);
  if (!picture.ok()) return bad(str("the image ", path, " ", picture.error().message));
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
