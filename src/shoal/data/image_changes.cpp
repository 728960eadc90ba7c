#include "shoal/data/image_changes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <opencv2/core.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

#include "shoal/proto/detection.pb.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

cv::Mat view(const Image& image) {
  return {image.size.height, image.size.width, CV_8UC(image.size.channels),
          const_cast<std::uint8_t*>(image.pixels.data())};
}

Image image_of(const cv::Mat& picture) {
  Image image{{picture.channels(), picture.rows, picture.cols}, {}};
  const std::size_t row =
      static_cast<std::size_t>(picture.cols) * static_cast<std::size_t>(picture.channels());
  image.pixels.resize(row * static_cast<std::size_t>(picture.rows));
  for (int y = 0; y < picture.rows; ++y)
    std::memcpy(image.pixels.data() + static_cast<std::size_t>(y) * row, picture.ptr(y), row);
  return image;
}

bool by_chance(float probability, Random& random) { return random.unit() < probability; }

// Multiplies and shifts one channel of the picture as hue, saturation and value.
void change_hsv(cv::Mat& picture, int channel, double factor, int shift) {
  cv::Mat hsv;
  cv::cvtColor(picture, hsv, cv::COLOR_BGR2HSV);
  std::vector<cv::Mat> channels;
  cv::split(hsv, channels);
  constexpr int kHues = 180;  // of OpenCV's circle
  if (channel == 0) {
    channels[0].forEach<std::uint8_t>([shift](std::uint8_t& hue, const int*) {
      hue = static_cast<std::uint8_t>(((hue + shift) % kHues + kHues) % kHues);
    });
  } else {
    channels[static_cast<std::size_t>(channel)].convertTo(
        channels[static_cast<std::size_t>(channel)], -1, factor, 0);
  }
  cv::merge(channels, hsv);
  cv::cvtColor(hsv, picture, cv::COLOR_HSV2BGR);
}

void change_contrast(const DistortionParameter& param, Random& random, cv::Mat& picture) {
  if (!by_chance(param.contrast_prob(), random)) return;
  picture.convertTo(picture, -1, random.uniform(param.contrast_lower(), param.contrast_upper()), 0);
}

void change_colours(const DistortionParameter& param, Random& random, cv::Mat& picture) {
  const float factor = random.uniform(param.saturation_lower(), param.saturation_upper()),
              shift = random.uniform(-param.hue_delta(), param.hue_delta());
  if (by_chance(param.saturation_prob(), random)) change_hsv(picture, 1, factor, 0);
  if (by_chance(param.hue_prob(), random))
    change_hsv(picture, 0, 1, static_cast<int>(std::lround(shift)));
}

void reorder_channels(float probability, Random& random, cv::Mat& picture) {
  if (!by_chance(probability, random)) return;
  std::vector<cv::Mat> channels;
  cv::split(picture, channels);
  for (std::size_t i = channels.size() - 1; i > 0; --i)
    std::swap(channels[i], channels[random.below(i + 1)]);
  cv::merge(channels, picture);
}

// Changes the brightness of a picture alone.
template <class Change>
void change_brightness(cv::Mat& picture, Change change) {
  if (picture.channels() == 1) return change(picture);
  cv::Mat parts;
  cv::cvtColor(picture, parts, cv::COLOR_BGR2YCrCb);
  std::vector<cv::Mat> channels;
  cv::split(parts, channels);
  change(channels[0]);
  cv::merge(channels, parts);
  cv::cvtColor(parts, picture, cv::COLOR_YCrCb2BGR);
}

void sprinkle(const SaltPepperParameter& param, Random& random, cv::Mat& picture) {
  const auto count =
      static_cast<std::int64_t>(param.fraction() * static_cast<float>(picture.total()));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto x = static_cast<int>(random.below(static_cast<std::uint64_t>(picture.cols))),
               y = static_cast<int>(random.below(static_cast<std::uint64_t>(picture.rows)));
    for (int c = 0; c < picture.channels(); ++c)
      picture.ptr(y)[x * picture.channels() + c] =
          cv::saturate_cast<std::uint8_t>(param.value(param.value_size() == 1 ? 0 : c));
  }
}

void compress(int quality, cv::Mat& picture) {
  std::vector<unsigned char> bytes;
  cv::imencode(".jpg", picture, bytes, {cv::IMWRITE_JPEG_QUALITY, quality});
  picture = cv::imdecode(bytes, picture.channels() == 1 ? cv::IMREAD_GRAYSCALE : cv::IMREAD_COLOR);
}

// Brings each number to the middle of its class of 64.
void posterize(cv::Mat& picture) {
  constexpr int kClass = 64;
  cv::Mat table(1, 256, CV_8U);
  for (int i = 0; i < 256; ++i)
    table.at<std::uint8_t>(i) = static_cast<std::uint8_t>(i / kClass * kClass + kClass / 2);
  cv::LUT(picture, table, picture);
}

int interpolation(const ResizeParameter& param, Random& random) {
  if (param.interp_mode_size() == 0) return cv::INTER_LINEAR;
  const auto drawn = random.below(static_cast<std::uint64_t>(param.interp_mode_size()));
  switch (param.interp_mode(static_cast<int>(drawn))) {
    case ResizeParameter::AREA: return cv::INTER_AREA;
    case ResizeParameter::NEAREST: return cv::INTER_NEAREST;
    case ResizeParameter::CUBIC: return cv::INTER_CUBIC;
    case ResizeParameter::LANCZOS4: return cv::INTER_LANCZOS4;
    default: return cv::INTER_LINEAR;
  }
}

int border(ResizeParameter::Pad_mode mode) {
  if (mode == ResizeParameter::MIRRORED) return cv::BORDER_REFLECT_101;
  return mode == ResizeParameter::REPEAT_NEAREST ? cv::BORDER_REPLICATE : cv::BORDER_CONSTANT;
}

cv::Scalar pad_colour(const ResizeParameter& param, int channels) {
  cv::Scalar colour;
  for (int c = 0; c < std::min(channels, 4) && param.pad_value_size() > 0; ++c)
    colour[c] =
        param.pad_value(param.pad_value_size() == 1 ? 0 : std::min(c, param.pad_value_size() - 1));
  return colour;
}

Status must(bool holds, const std::string& words) {
  return holds ? Status() : Status(Error{Code::kConfig, words});
}

Status check_resize(const ResizeParameter& param) {
  if (Status s = must(param.height() > 0 && param.width() > 0,
                      "resize_param has no height and width; give both");
      !s.ok())
    return s;
  if (Status s = must(param.prob() >= 0 && param.prob() <= 1,
                      str("prob of resize_param is ", param.prob(), "; it is from 0 to 1"));
      !s.ok())
    return s;
  return must(param.pad_value_size() < 2 || param.pad_value_size() > 2,
              "resize_param has 2 pad_value; give one, or one a channel");
}

// Several are for batches, one each: their chances are those of a draw among them.
Status check_sizes(const TransformationParameter& param) {
  float sum = 0;
  for (const ResizeParameter& one : param.resize_param()) {
    if (Status s = check_resize(one); !s.ok()) return s;
    sum += one.prob();
  }
  constexpr float kNear = 0.01f;
  return must(param.resize_param_size() < 2 || std::fabs(sum - 1) < kNear,
              str("the prob of ", param.resize_param_size(), " resize_param add up to ", sum,
                  "; one of them is drawn, so they add up to 1"));
}

Status check_distortion(const DistortionParameter& param) {
  return must(param.contrast_upper() >= param.contrast_lower() && param.contrast_lower() >= 0 &&
                  param.saturation_upper() >= param.saturation_lower() &&
                  param.saturation_lower() >= 0 && param.brightness_delta() >= 0 &&
                  param.hue_delta() >= 0,
              "distort_param: deltas and lower bounds are 0 or above, and no lower bound is above "
              "its upper one");
}

}  // namespace

Status check_changes(const TransformationParameter& param) {
  const NoiseParameter& noise = param.noise_param();
  if (Status s = check_sizes(param); !s.ok()) return s;
  if (Status s = check_distortion(param.distort_param()); !s.ok()) return s;
  if (Status s = must(!noise.convert_to_lab(),
                      "noise_param: convert_to_lab makes floats of the picture, which is not done "
                      "here; leave it out");
      !s.ok())
    return s;
  if (Status s = must(!noise.saltpepper() || noise.saltpepper_param().value_size() > 0,
                      "noise_param: saltpepper wants saltpepper_param with its values");
      !s.ok())
    return s;
  return must(!param.has_expand_param() || !param.has_mean_file(),
              "expand_param fills a canvas of any size with mean_value; give that instead of "
              "mean_file");
}

void distort(const DistortionParameter& param, Random& random, Image& image) {
  cv::setNumThreads(0);  // this thread is one of a pool already
  cv::Mat picture = view(image).clone();
  const bool contrast_last = random.unit() <= 0.5f;
  const float shift = random.uniform(-param.brightness_delta(), param.brightness_delta());
  if (by_chance(param.brightness_prob(), random)) picture.convertTo(picture, -1, 1, shift);
  if (!contrast_last) change_contrast(param, random, picture);
  if (picture.channels() == 3) change_colours(param, random, picture);
  if (contrast_last) change_contrast(param, random, picture);
  if (picture.channels() > 1) reorder_channels(param.random_order_prob(), random, picture);
  image = image_of(picture);
}

void add_noise(const NoiseParameter& param, Random& random, Image& image) {
  if (param.has_prob() && !by_chance(param.prob(), random)) return;
  cv::setNumThreads(0);
  cv::Mat picture = view(image).clone();
  const bool colour = picture.channels() == 3;
  if (param.decolorize() && colour) {
    cv::Mat grey;
    cv::cvtColor(picture, grey, cv::COLOR_BGR2GRAY);
    cv::cvtColor(grey, picture, cv::COLOR_GRAY2BGR);
  }
  constexpr int kBlurSide = 7;
  if (param.gauss_blur()) cv::GaussianBlur(picture, picture, cv::Size(kBlurSide, kBlurSide), 1.5);
  if (param.hist_eq())
    change_brightness(picture, [](cv::Mat& plane) { cv::equalizeHist(plane, plane); });
  if (param.clahe())
    change_brightness(picture, [](cv::Mat& plane) { cv::createCLAHE(4)->apply(plane, plane); });
  if (param.jpeg() > 0) compress(static_cast<int>(param.jpeg()), picture);
  if (param.erode())
    cv::erode(picture, picture, cv::getStructuringElement(cv::MORPH_ELLIPSE, cv::Size(3, 3)));
  if (param.posterize()) posterize(picture);
  if (param.inverse()) cv::bitwise_not(picture, picture);
  if (param.saltpepper()) sprinkle(param.saltpepper_param(), random, picture);
  if (param.convert_to_hsv() && colour) cv::cvtColor(picture, picture, cv::COLOR_BGR2HSV);
  image = image_of(picture);
}

Image resize_by(const ResizeParameter& param, Random& random, Image image) {
  cv::setNumThreads(0);
  int height = static_cast<int>(param.height()), width = static_cast<int>(param.width());
  const float aspect = static_cast<float>(image.size.width) / static_cast<float>(image.size.height);
  const bool wide = aspect > static_cast<float>(width) / static_cast<float>(height);
  const bool fits_large = param.resize_mode() == ResizeParameter::FIT_LARGE_SIZE_AND_PAD;
  if (param.resize_mode() != ResizeParameter::WARP) {
    if (wide == fits_large)
      height = std::max(1, static_cast<int>(static_cast<float>(width) / aspect));
    else
      width = std::max(1, static_cast<int>(aspect * static_cast<float>(height)));
  }
  cv::Mat picture;
  cv::resize(view(image), picture, cv::Size(width, height), 0, 0, interpolation(param, random));
  if (fits_large) {
    const int rows = static_cast<int>(param.height()) - height,
              columns = static_cast<int>(param.width()) - width;
    cv::copyMakeBorder(picture, picture, rows / 2, rows - rows / 2, columns / 2,
                       columns - columns / 2, border(param.pad_mode()),
                       pad_colour(param, picture.channels()));
  }
  return image_of(picture);
}

Image cut_out(const Image& image, const ImagePart& part) {
  return image_of(view(image)(cv::Rect(part.left, part.top, part.width, part.height)));
}

Image on_canvas(const Image& image, const ImagePart& place, int height, int width,
                std::span<const float> colour) {
  Image canvas{{image.size.channels, height, width}, {}};
  canvas.pixels.resize(static_cast<std::size_t>(canvas.size.count()));
  const auto channels = static_cast<std::size_t>(image.size.channels);
  for (std::size_t i = 0; i < canvas.pixels.size(); ++i)
    canvas.pixels[i] =
        cv::saturate_cast<std::uint8_t>(colour[colour.size() == 1 ? 0 : i % channels]);
  view(image).copyTo(view(canvas)(cv::Rect(place.left, place.top, place.width, place.height)));
  return canvas;
}

}  // namespace shoal
