// Implements the transformation of pixels: crop, mirror, mean and scale.
#include "shoal/data/transform.h"

#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <utility>

#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/data/random_sizes.h"
#include "shoal/proto/blob.pb.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// Says where an output row comes from and goes to; `step` values from one pixel of a channel to the
// next.
template <class T>
struct Row {
  const T* from;
  std::ptrdiff_t step;
  int count;
  float* to;
};

// Loops without a choice inside, so that they become vector code.
template <class T>
void write_row(const Row<T>& row, float mean, float scale) {
  if (row.step == 1) {
    for (int i = 0; i < row.count; ++i)
      row.to[i] = (static_cast<float>(row.from[i]) - mean) * scale;
  } else {
    for (int i = 0; i < row.count; ++i)
      row.to[i] = (static_cast<float>(row.from[i * row.step]) - mean) * scale;
  }
}

template <class T>
void write_row(const Row<T>& row, const float* mean, float scale) {
  if (row.step == 1) {
    for (int i = 0; i < row.count; ++i)
      row.to[i] = (static_cast<float>(row.from[i]) - mean[i]) * scale;
  } else {
    for (int i = 0; i < row.count; ++i)
      row.to[i] = (static_cast<float>(row.from[i * row.step]) - mean[i]) * scale;
  }
}

// Returns a number in [0, n) from one random word.
int below(std::uint32_t word, int n) {
  return static_cast<int>(std::uint64_t{word} * static_cast<std::uint64_t>(n) >> 32);
}

Error mean_error(const std::string& path, const std::string& what) {
  return Error{Code::kData, str("the mean file ", path, " ", what)};
}

}  // namespace

Pixels pixels_of(const Image& image) {
  return {image.size, true, std::span<const std::uint8_t>(image.pixels)};
}

Image image_of(const Pixels& pixels) {
  CHECK(pixels.in_bytes());
  const std::span<const std::uint8_t> from = std::get<0>(pixels.values);
  Image image{pixels.size, {from.begin(), from.end()}};
  if (pixels.side_by_side) return image;
  const auto channels = static_cast<std::size_t>(pixels.size.channels);
  const std::size_t plane = from.size() / channels;
  for (std::size_t c = 0; c < channels; ++c)
    for (std::size_t i = 0; i < plane; ++i) image.pixels[i * channels + c] = from[c * plane + i];
  return image;
}

// An AnnotatedDatum holds a Datum as its field 1, which in a Datum is the number of channels.
std::string why_no_datum(const Datum& datum) {
  if (datum.has_channels()) return "";
  const google::protobuf::UnknownFieldSet& unknown = datum.GetReflection()->GetUnknownFields(datum);
  constexpr auto kBytes = google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED;
  for (int i = 0; i < unknown.field_count(); ++i)
    if (unknown.field(i).number() == 1 && unknown.field(i).type() == kBytes)
      return "is an AnnotatedDatum of the SSD fork, a Datum with boxes: AnnotatedData reads such "
             "records, and this reads plain Datums";
  return "";
}

Result<DatumPixels> pixels_of(const Datum& datum, Colour colour) {
  DatumPixels result;
  if (datum.encoded()) {
    Result<Image> image = decode_image(datum.data(), colour);
    if (!image.ok()) return image.error();
    result.decoded = std::move(image).value();
    result.pixels = pixels_of(result.decoded);
    return result;
  }
  const ImageSize size{datum.channels(), datum.height(), datum.width()};
  if (size.channels < 1 || size.height < 1 || size.width < 1) {
    const std::string foreign = why_no_datum(datum);
    return Error{Code::kData, foreign.empty()
                                  ? str("is no Datum with a size: it says ", to_string(size))
                                  : foreign};
  }
  const bool floats = datum.data().empty();
  const std::int64_t held =
      floats ? datum.float_data_size() : static_cast<std::int64_t>(datum.data().size());
  // Each size is below 2^31, so the product of two fits 64 bits, and `held` bounds the third
  // factor.
  const std::int64_t plane = std::int64_t{size.height} * size.width;
  if (held == 0) return Error{Code::kData, "holds no data"};
  if (held % plane != 0 || held / plane != size.channels)
    return Error{Code::kData, str("says that it is ", to_string(size), " but holds ", held,
                                  floats ? " floats" : " bytes")};
  result.pixels.size = size;
  if (floats) {
    result.pixels.values =
        std::span<const float>(datum.float_data().data(), static_cast<std::size_t>(held));
  } else {
    result.pixels.values =
        std::span(reinterpret_cast<const std::uint8_t*>(datum.data().data()), datum.data().size());
  }
  return result;
}

Result<MeanImage> read_mean_file(const std::string& path) {
  Result<std::string> bytes = read_file(path, Code::kData);
  if (!bytes.ok()) return mean_error(path, str("cannot be read: ", bytes.error().message));
  BlobProto blob;
  if (bytes.value().empty() || !blob.ParseFromString(bytes.value()))
    return mean_error(path, "is no BlobProto, or is cut short");
  std::vector<std::int64_t> dims;
  if (blob.has_shape())
    dims.assign(blob.shape().dim().begin(), blob.shape().dim().end());
  else
    dims = {blob.num(), blob.channels(), blob.height(), blob.width()};
  if (dims.size() == 3) dims.insert(dims.begin(), 1);
  constexpr std::int64_t kMost = 1 << 30;
  const bool sane = dims.size() == 4 && dims[0] == 1 &&
                    std::ranges::all_of(dims, [](std::int64_t d) { return d >= 1 && d < kMost; });
  if (!sane) return mean_error(path, "is not 1 x channels x height x width");
  MeanImage mean{{static_cast<int>(dims[1]), static_cast<int>(dims[2]), static_cast<int>(dims[3])},
                 {}};
  mean.values.assign(blob.data().begin(), blob.data().end());
  if (mean.values.empty())
    for (const double value : blob.double_data()) mean.values.push_back(static_cast<float>(value));
  const std::int64_t held = static_cast<std::int64_t>(mean.values.size()),
                     plane = dims[2] * dims[3];
  if (held % plane != 0 || held / plane != dims[1])
    return mean_error(
        path, str("says that it is ", to_string(mean.size), " but holds ", held, " numbers"));
  return mean;
}

Result<Transform> Transform::create(const TransformationParameter& param, bool training,
                                    Sizes sizes) {
  Transform made;
  made.scale_ = param.scale();
  made.mirror_ = param.mirror();
  made.training_ = training;
  made.mean_values_.assign(param.mean_value().begin(), param.mean_value().end());
  if (Status crop = made.set_crop(param); !crop.ok()) return crop.error();
  if (param.force_color() && param.force_gray())
    return Error{Code::kConfig, "force_color and force_gray are both set; choose one"};
  if (param.force_color()) made.colour_ = Colour::kColour;
  if (param.force_gray()) made.colour_ = Colour::kGrey;
  if (const std::string field = RandomSizes::first_field(param);
      sizes == Sizes::kAsStored && !field.empty())
    return Error{Code::kConfig, str("transform_param has ", field,
                                    ", which Data and ImageData layers alone follow; leave it "
                                    "out")};
  Result<std::shared_ptr<const RandomSizes>> drawn = RandomSizes::create(param, training);
  if (!drawn.ok()) return drawn.error();
  made.random_sizes_ = std::move(drawn).value();
  if (Status mean = made.set_mean(param); !mean.ok()) return mean.error();
  return made;
}

Status Transform::set_mean(const TransformationParameter& param) {
  if (!param.has_mean_file()) return {};
  if (param.mean_value_size() > 0)
    return Error{Code::kConfig, "mean_file and mean_value are both set; choose one"};
  Result<MeanImage> mean = read_mean_file(param.mean_file());
  if (!mean.ok()) return mean.error();
  mean_path_ = param.mean_file();
  mean_size_ = mean.value().size;
  mean_ = std::move(mean.value().values);
  if (!random_sizes_) return {};
  const ImageSize whole = mean_size_;
  const int rows = whole.height - crop_height_, columns = whole.width - crop_width_;
  if (rows < 0 || columns < 0)
    return mean_error(mean_path_,
                      str("is ", to_string(whole), ", smaller than crop_size ", crop_height_));
  mean_size_ = {whole.channels, crop_height_, crop_width_};
  std::vector<float> middle;
  for (int c = 0; c < whole.channels; ++c)
    for (int y = 0; y < crop_height_; ++y) {
      const std::ptrdiff_t row = std::ptrdiff_t{c} * whole.height + rows / 2 + y;
      const auto from = mean_.begin() + row * whole.width + columns / 2;
      middle.insert(middle.end(), from, from + crop_width_);
    }
  mean_ = std::move(middle);
  return {};
}

Status Transform::set_crop(const TransformationParameter& param) {
  constexpr std::uint32_t kLargest = 1u << 20;
  const bool square = param.crop_size() > 0;
  const bool sides = param.crop_h() > 0 || param.crop_w() > 0;
  if (square && sides)
    return Error{Code::kConfig, "crop_size and crop_h or crop_w are both set; choose one"};
  if ((param.crop_h() > 0) != (param.crop_w() > 0))
    return Error{Code::kConfig, "one of crop_h and crop_w is set; a crop needs both"};
  const std::uint32_t height = square ? param.crop_size() : param.crop_h(),
                      width = square ? param.crop_size() : param.crop_w();
  if (height > kLargest || width > kLargest)
    return Error{Code::kConfig, str(square ? "crop_size " : "crop_h or crop_w ",
                                    std::max(height, width), " is larger than any image")};
  crop_height_ = static_cast<int>(height);
  crop_width_ = static_cast<int>(width);
  return {};
}

Result<ImageSize> Transform::output_size(const ImageSize& stored) const {
  const ImageSize input =
      random_sizes_ ? ImageSize{stored.channels, crop_height_, crop_width_} : stored;
  if (!mean_.empty() && mean_size_ != input)
    return Error{Code::kData, str("is ", to_string(input), "; the mean file ", mean_path_, " is ",
                                  to_string(mean_size_),
                                  " and must be as large as the record is before the crop")};
  const int values = static_cast<int>(mean_values_.size());
  if (values > 1 && values != input.channels)
    return Error{Code::kData, str("has ", input.channels, " channels; mean_value is given ", values,
                                  " times: give one, or one a channel")};
  if (crop_height_ == 0) return input;
  if (crop_height_ > input.height || crop_width_ > input.width)
    return Error{Code::kData,
                 crop_height_ == crop_width_
                     ? str("is ", to_string(input), ", smaller than crop_size ", crop_height_)
                     : str("is ", to_string(input), ", smaller than a crop of ", crop_height_,
                           " x ", crop_width_)};
  return ImageSize{input.channels, crop_height_, crop_width_};
}

ImageCrop Transform::crop(const Pixels& pixels, const std::array<std::uint32_t, 4>& random) const {
  const int spare_rows = crop_height_ ? pixels.size.height - crop_height_ : 0,
            spare_columns = crop_width_ ? pixels.size.width - crop_width_ : 0;
  ImageCrop crop;
  crop.top = training_ ? below(random[0], spare_rows + 1) : spare_rows / 2;
  crop.left = training_ ? below(random[1], spare_columns + 1) : spare_columns / 2;
  crop.mirrored = mirror_ && (random[2] >> 31) != 0 ? 1 : 0;
  crop.side_by_side = pixels.side_by_side ? 1 : 0;
  return crop;
}

void Transform::cut(const Pixels& pixels, const ImageCrop& crop,
                    std::span<std::uint8_t> out) const {
  CHECK(pixels.in_bytes());
  const ImageSize& size = pixels.size;
  const int height = crop_height_ ? crop_height_ : size.height,
            width = crop_width_ ? crop_width_ : size.width;
  CHECK(static_cast<std::int64_t>(out.size()) == std::int64_t{size.channels} * height * width)
      << out.size() << " for " << to_string(size);
  // A row of all channels is one piece if pixels lie side by side.
  const int planes = pixels.side_by_side ? 1 : size.channels,
            together = pixels.side_by_side ? size.channels : 1;
  const auto row = static_cast<std::size_t>(width) * static_cast<std::size_t>(together);
  const std::uint8_t* const from = std::get<0>(pixels.values).data();
  std::uint8_t* to = out.data();
  for (std::ptrdiff_t plane = 0; plane < planes; ++plane)
    for (int y = 0; y < height; ++y, to += row)
      std::copy_n(from + ((plane * size.height + crop.top + y) * size.width + crop.left) * together,
                  row, to);
}

void Transform::apply(const Pixels& pixels, const std::array<std::uint32_t, 4>& random,
                      std::span<float> out) const {
  const ImageCrop place = crop(pixels, random);
  ImageSize size = pixels.size;
  if (crop_height_) size = {size.channels, crop_height_, crop_width_};
  write(pixels, place.top, place.left, place, size, out);
}

void Transform::apply(std::span<const std::uint8_t> cut, const ImageSize& size,
                      const ImageCrop& crop, std::span<float> out) const {
  write({size, crop.side_by_side != 0, cut}, 0, 0, crop, size, out);
}

Tensor Transform::mean() const {
  const std::vector<float> none(1);
  const std::vector<float>& values =
      !mean_.empty() ? mean_ : (mean_values_.empty() ? none : mean_values_);
  Tensor tensor(mean_.empty() ? Shape{static_cast<std::int64_t>(values.size())}
                              : Shape{mean_size_.channels, mean_size_.height, mean_size_.width});
  std::ranges::copy(values, tensor.host_out().begin());
  return tensor;
}

// `top` and `left`: where the crop, of this size, lies in `pixels`; `crop`: in the whole image.
void Transform::write(const Pixels& pixels, int top, int left, const ImageCrop& crop,
                      const ImageSize& size, std::span<float> out) const {
  CHECK(static_cast<std::int64_t>(out.size()) == size.count())
      << out.size() << " for " << to_string(size);
  const std::ptrdiff_t plane = std::ptrdiff_t{pixels.size.height} * pixels.size.width;
  const std::ptrdiff_t step = pixels.side_by_side ? size.channels : 1,
                       channel_step = pixels.side_by_side ? 1 : plane;
  std::visit(
      [&](auto values) {
        float* to = out.data();
        for (int c = 0; c < size.channels; ++c) {
          const float value =
              mean_values_.empty()
                  ? 0.0f
                  : mean_values_[mean_values_.size() == 1 ? 0 : static_cast<std::size_t>(c)];
          for (int y = 0; y < size.height; ++y, to += size.width) {
            const std::ptrdiff_t at = std::ptrdiff_t{top + y} * pixels.size.width + left;
            using Value = std::remove_const_t<typename decltype(values)::element_type>;
            const Row<Value> row{values.data() + c * channel_step + at * step, step, size.width,
                                 to};
            if (mean_.empty())
              write_row(row, value, scale_);
            else
              write_row(row, mean_row(c, crop.top + y) + crop.left, scale_);
            if (crop.mirrored) std::reverse(to, to + size.width);
          }
        }
      },
      pixels.values);
}

}  // namespace shoal
