// Turns pixels into a net's input: (pixel - mean) x scale on a crop, perhaps mirrored.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/data/image.h"
#include "shoal/tensor/byte_images.h"
#include "shoal/tensor/tensor.h"

namespace shoal {

class Datum;
class RandomSizes;
class TransformationParameter;

// A view of pixels: bytes or floats, channel by channel or with a pixel's channels side by side.
struct Pixels {
  ImageSize size;
  bool side_by_side = false;
  // The values are size.count() numbers.
  std::variant<std::span<const std::uint8_t>, std::span<const float>> values;
  bool in_bytes() const { return values.index() == 0; }
};
Pixels pixels_of(const Image& image);
// Returns pixels that are bytes as a picture of their own. CHECKs that they are.
Image image_of(const Pixels& pixels);

// A Datum's pixels, decoded if it is encoded. `pixels` looks into the Datum or into `decoded`.
struct DatumPixels {
  Image decoded;
  Pixels pixels;
};
// Errors (kData): sizes below 1, data that do not fill them, nothing at all, an encoded picture
// that cannot be decoded.
Result<DatumPixels> pixels_of(const Datum& datum, Colour colour);
// Returns why the bytes from which `datum` was parsed are no Datum though they could be parsed, or
// "": they are records of another fork.
std::string why_no_datum(const Datum& datum);

// Pure but for the mean file, which is read when it is made; any number of threads may use one.
//   crop      crop_size, or crop_h and crop_w; anywhere in training, else the middle, offset (size
//   - crop) / 2 rounded down mirror    left and right swapped by a coin, in both phases mean of a
//   file, looked up where the pixel was before the crop and the mirror, or one value, or one a
//   channel
// Source: BVLC Caffe 1.0's DataTransformer; which random numbers it draws is ours.
class Transform {
 public:
  // Says whether the caller brings pictures to the size that random_sizes() draws.
  enum class Sizes { kAsStored, kDrawn };
  // Refuses (kConfig) a mean file together with mean values, force_color with force_gray, and
  // crop_size with crop_h and crop_w, or one of these alone; fields of RandomSizes that are wrong,
  // or any of them unless `sizes` is kDrawn;
  // (kData) a mean file that is missing or no BlobProto.
  static Result<Transform> create(const TransformationParameter& param, bool training,
                                  Sizes sizes = Sizes::kAsStored);

  Colour colour() const { return colour_; }
  // Returns null, or what makes pictures of crop_size, which all others here then take: of the mean
  // file they use the middle.
  const RandomSizes* random_sizes() const { return random_sizes_.get(); }
  // Returns the size of what apply writes. Errors (kData): smaller than the crop, not the mean's
  // size, a wrong number of mean values.
  Result<ImageSize> output_size(const ImageSize& input) const;
  // Writes output_size(pixels.size) numbers, channel by channel. `random` decides about crop and
  // mirror: four words of its own for each item. CHECKs the size of `out`; the input has passed
  // output_size.
  void apply(const Pixels& pixels, const std::array<std::uint32_t, 4>& random,
             std::span<float> out) const;

  // The same in two steps, of which the second may be a device's (ops/images.h): crop returns where
  // apply would crop, and whether it would mirror.
  ImageCrop crop(const Pixels& pixels, const std::array<std::uint32_t, 4>& random) const;
  // Copies the crop's output_size(pixels.size) bytes as they lie. CHECKs that the pixels are bytes.
  void cut(const Pixels& pixels, const ImageCrop& crop, std::span<std::uint8_t> out) const;
  // Writes what apply writes, from the bytes that cut has copied, `size` of them.
  void apply(std::span<const std::uint8_t> cut, const ImageSize& size, const ImageCrop& crop,
             std::span<float> out) const;
  float scale() const { return scale_; }
  // Returns what is subtracted: one number, one a channel, or those of the mean file (C, H, W).
  Tensor mean() const;
  const std::string& mean_path() const { return mean_path_; }             // "": of no file
  const std::vector<float>& mean_values() const { return mean_values_; }  // none: of a file, or 0

 private:
  Transform() = default;
  Status set_crop(const TransformationParameter& param);
  Status set_mean(const TransformationParameter& param);
  void write(const Pixels& pixels, int top, int left, const ImageCrop& crop, const ImageSize& size,
             std::span<float> out) const;
  const float* mean_row(int channel, int row) const {  // of the mean file
    return mean_.data() + (std::ptrdiff_t{channel} * mean_size_.height + row) * mean_size_.width;
  }
  float scale_ = 1;
  bool mirror_ = false, training_ = false;
  int crop_height_ = 0, crop_width_ = 0;  // 0: no crop
  Colour colour_ = Colour::kAsStored;
  std::shared_ptr<const RandomSizes> random_sizes_;
  std::string mean_path_;
  ImageSize mean_size_;
  std::vector<float> mean_;         // of a file, mean_size_
  std::vector<float> mean_values_;  // none, one, or one a channel
};

// A mean file: a BlobProto of 1 x channels x height x width.
struct MeanImage {
  ImageSize size;
  std::vector<float> values;
};
Result<MeanImage> read_mean_file(const std::string& path);

}  // namespace shoal
