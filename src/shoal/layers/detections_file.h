// Detections of a test's pictures as the tools of VOC, COCO and ILSVRC read them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/layers/box_pixels.h"

namespace shoal {

class SaveOutputParameter;

struct Detection {
  std::int64_t image = 0;  // in the batch
  int label = 0;
  float score = 0;
  Box box;  // parts of the input
};

// Takes the detections of batch after batch. When those of num_test_image pictures are there, the
// files of output_format are written whole, and the next picture counts as the first again:
//   VOC     <directory>/<prefix><class>.txt for each class: "name score xmin ymin xmax ymax"
//   COCO    <directory>/<prefix>.json, an array of {image_id, category_id, bbox, score}
//   ILSVRC  <directory>/<prefix>.txt: "name label score xmin ymin xmax ymax"
// Corners are pixels of the picture. Source: SSD's DetectionOutput layer.
class DetectionsFile {
 public:
  // Reads the label map and the pictures' names and sizes, and makes the directory. Throws
  // ConfigError.
  DetectionsFile(const LayerParameter& layer, const SaveOutputParameter& param,
                 std::int64_t background);
  ~DetectionsFile();
  // Adds the detections of `images` pictures, the next ones of the name_size_file.
  Status add(const std::vector<Detection>& detections, std::int64_t images);

 private:
  struct Found {
    std::string picture;
    int label = 0;
    float score = 0;
    Box box;  // pixels
  };
  Status write() const;
  Status write_classes() const;
  std::string to_json() const;
  std::string to_lines() const;
  std::string path(const std::string& ending) const;
  const std::string& class_name(int label) const;

  std::unique_ptr<SaveOutputParameter> param_;
  std::string layer_;
  std::int64_t background_;
  std::map<int, std::string> classes_;
  std::vector<NamedSize> pictures_;
  std::size_t next_ = 0;  // picture
  std::vector<Found> found_;
};

}  // namespace shoal
