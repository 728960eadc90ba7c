// Reads pictures with a label for each pixel, which a text file lists.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shoal/data/image.h"

namespace shoal {

struct LabelledImage {
  Image image, labels;  // labels: one channel, as large
};

struct LabelledImagesOptions {
  std::string list;  // its path
  std::string root;  // put before each path
  bool colour = true;
  int height = 0, width = 0;  // to resize to, or 0 and 0
  // A line is "image label_image", "image label", a number for all pixels, or "image".
  enum class Labels { kPicture, kNumber, kNone };
  Labels labels = Labels::kPicture;
  int ignore_label = 255;  // of the pixels where there are no labels
};

// Labels are 0 to 255; pictures of labels are read as grey, and resized to the nearest pixel.
// Errors (kData): of open with the list and the line; of read without.
class LabelledImages {
 public:
  static Result<LabelledImages> open(const LabelledImagesOptions& options);
  const std::string& list() const { return options_.list; }
  std::size_t count() const { return lines_.size(); }
  Result<LabelledImage> read(std::size_t record) const;
  std::string name(std::size_t record) const;  // "image (line 3)"

 private:
  struct Line {
    std::string image, label;  // as written in the list
    std::uint64_t number = 0;  // from 1
  };
  explicit LabelledImages(const LabelledImagesOptions& options) : options_(options) {}
  Status add(std::string_view line, std::uint64_t number);
  Result<Image> read_labels(const Line& line, const ImageSize& size) const;

  LabelledImagesOptions options_;
  std::vector<Line> lines_;
};

}  // namespace shoal
