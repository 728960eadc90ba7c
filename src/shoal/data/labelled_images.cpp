// Implements the reading of pictures with a label for each pixel.
#include "shoal/data/labelled_images.h"

#include <charconv>
#include <string_view>
#include <utility>

#include "shoal/base/file.h"

namespace shoal {
namespace {

using Labels = LabelledImagesOptions::Labels;
constexpr const char* kBlanks = " \t\r";

// Labels have no values in between: each is that of the nearest pixel up and left.
Image resized_labels(const Image& labels, int height, int width) {
  Image out{{1, height, width}, {}};
  const std::int64_t from_height = labels.size.height, from_width = labels.size.width;
  for (std::int64_t y = 0; y < height; ++y)
    for (std::int64_t x = 0; x < width; ++x)
      out.pixels.push_back(labels.pixels[static_cast<std::size_t>(
          y * from_height / height * from_width + x * from_width / width)]);
  return out;
}

Error bad(const Error& why) { return Error{why.code, str("is bad: ", why.message)}; }

Image one_label(int label, const ImageSize& size) {
  const std::size_t count =
      static_cast<std::size_t>(size.height) * static_cast<std::size_t>(size.width);
  return {{1, size.height, size.width},
          std::vector<std::uint8_t>(count, static_cast<std::uint8_t>(label))};
}

}  // namespace

std::string LabelledImages::name(std::size_t record) const {
  return str(lines_[record].image, " (line ", lines_[record].number, ")");
}

Result<LabelledImages> LabelledImages::open(const LabelledImagesOptions& options) {
  LabelledImages images(options);
  const Result<std::string> text = read_file(options.list, Code::kData);
  if (!text.ok()) return text.error();
  std::string_view rest = text.value();
  for (std::uint64_t number = 1; !rest.empty(); ++number) {
    const std::size_t end = rest.find('\n');
    if (Status added = images.add(rest.substr(0, end), number); !added.ok()) return added.error();
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  }
  if (images.lines_.empty())
    return Error{Code::kData, str("the list ", options.list, " names no images")};
  return images;
}

Status LabelledImages::add(std::string_view line, std::uint64_t number) {
  const std::size_t begin = line.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  line = line.substr(begin, line.find_last_not_of(kBlanks) + 1 - begin);
  if (options_.labels == Labels::kNone) {
    lines_.push_back({std::string(line), "", number});
    return {};
  }
  const std::size_t blank = line.find_last_of(kBlanks);
  if (blank == std::string_view::npos)
    return Error{Code::kData, str(options_.list, ":", number, ": no label; a line is \"image ",
                                  options_.labels == Labels::kNumber ? "label" : "label_image",
                                  "\": \"", line.substr(0, 120), "\"")};
  const std::string_view image = line.substr(0, line.find_last_not_of(kBlanks, blank) + 1);
  lines_.push_back({std::string(image), std::string(line.substr(blank + 1)), number});
  return {};
}

Result<LabelledImage> LabelledImages::read(std::size_t record) const {
  const Line& line = lines_[record];
  const Colour colour = options_.colour ? Colour::kColour : Colour::kGrey;
  Result<Image> image =
      read_image(options_.root + line.image, colour, options_.height, options_.width);
  if (!image.ok()) return bad(image.error());
  const ImageSize& size = image.value().size;
  Result<Image> labels = read_labels(line, size);
  if (!labels.ok()) return bad(labels.error());
  const ImageSize& of_labels = labels.value().size;
  if (of_labels.height != size.height || of_labels.width != size.width)
    return Error{Code::kData, str("is ", size.height, " x ", size.width, ", its labels ",
                                  options_.root, line.label, " ", of_labels.height, " x ",
                                  of_labels.width, "; they must be of one size")};
  return LabelledImage{std::move(image).value(), std::move(labels).value()};
}

Result<Image> LabelledImages::read_labels(const Line& line, const ImageSize& size) const {
  if (options_.labels == Labels::kNone) return one_label(options_.ignore_label, size);
  if (options_.labels == Labels::kPicture) {
    Result<Image> labels = read_image(options_.root + line.label, Colour::kGrey, 0, 0);
    if (!labels.ok() || options_.height == 0) return labels;
    return resized_labels(labels.value(), options_.height, options_.width);
  }
  int label = 0;
  const char *begin = line.label.data(), *end = begin + line.label.size();
  const auto [rest, bad] = std::from_chars(begin, end, label);
  if (bad != std::errc() || rest != end || label < 0 || label > 255)
    return Error{Code::kData,
                 str("the label \"", line.label, "\" is no whole number from 0 to 255")};
  return one_label(label, size);
}

}  // namespace shoal
