#include "shoal/layers/detections_file.h"

#include <cmath>
#include <filesystem>
#include <memory>
#include <regex>

#include "shoal/base/file.h"
#include "shoal/base/text.h"
#include "shoal/base/try.h"
#include "shoal/proto/annotated.pb.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/label_map.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

double hundredths(float x) { return std::round(x * 100.0) / 100; }

// Returns the corners as the text files have them: whole pixels, cut off; the far ones from what
// was cut off of the near ones and of the size.
std::string corner_words(const Box& box) {
  const int x = static_cast<int>(hundredths(box.xmin)), y = static_cast<int>(hundredths(box.ymin));
  return str(" ", x, " ", y, " ", x + static_cast<int>(hundredths(box.xmax - box.xmin)), " ",
             y + static_cast<int>(hundredths(box.ymax - box.ymin)));
}

// A name that is a number is one in the file, as COCO's are.
std::string json_word(const std::string& word) {
  static const std::regex number("-?[0-9]+(\\.[0-9]+)?");
  if (std::regex_match(word, number)) return word;
  std::string quoted = "\"";
  for (const char c : word) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

}  // namespace

DetectionsFile::DetectionsFile(const LayerParameter& layer, const SaveOutputParameter& param,
                               std::int64_t background)
    : param_(std::make_unique<SaveOutputParameter>(param)),
      layer_(layer_place(layer)),
      background_(background) {
  const std::string& format = param.output_format();
  if (format != "VOC" && format != "COCO" && format != "ILSVRC")
    throw config_error(layer, "output_format of save_output_param is '", format,
                       "'; it is VOC, COCO or ILSVRC");
  const LabelMap map = read_label_map(param.label_map_file());
  for (const LabelMapItem& item : map.item()) classes_[item.label()] = item.name();
  pictures_ = read_name_sizes(layer, param.name_size_file());
  if (param.num_test_image() > pictures_.size())
    throw config_error(layer, "num_test_image is ", param.num_test_image(), ", and ",
                       param.name_size_file(), " has ", pictures_.size(), " pictures");
  if (param.num_test_image() > 0) pictures_.resize(param.num_test_image());
  std::error_code error;
  std::filesystem::create_directories(param.output_directory(), error);
  if (error)
    throw config_error(layer, "output_directory '", param.output_directory(),
                       "' cannot be made: ", error.message());
}

DetectionsFile::~DetectionsFile() = default;

const std::string& DetectionsFile::class_name(int label) const { return classes_.at(label); }

Status DetectionsFile::add(const std::vector<Detection>& detections, std::int64_t images) {
  std::size_t at = 0;
  const ResizeParameter* const resize =
      param_->has_resize_param() ? &param_->resize_param() : nullptr;
  for (std::int64_t image = 0; image < images; ++image) {
    const NamedSize& picture = pictures_[next_];
    for (; at < detections.size() && detections[at].image == image; ++at) {
      const Detection& one = detections[at];
      if (!classes_.contains(one.label))
        return Error{Code::kConfig,
                     str(layer_, ": label ", one.label, " is not in ", param_->label_map_file())};
      found_.push_back({picture.name, one.label, one.score, to_pixels(one.box, picture, resize)});
    }
    if (++next_ < pictures_.size()) continue;
    next_ = 0;
    TRY(write());
    found_.clear();
  }
  return {};
}

std::string DetectionsFile::path(const std::string& ending) const {
  return (std::filesystem::path(param_->output_directory()) /
          (param_->output_name_prefix() + ending))
      .string();
}

Status DetectionsFile::write() const {
  if (param_->output_format() == "VOC") return write_classes();
  if (param_->output_format() == "COCO") return write_file(path(".json"), to_json(), Code::kData);
  return write_file(path(".txt"), to_lines(), Code::kData);
}

Status DetectionsFile::write_classes() const {
  for (const auto& [label, name] : classes_) {
    if (label == background_) continue;
    std::string lines;
    for (const Found& one : found_)
      if (one.label == label)
        lines += str(one.picture, " ", one.score, corner_words(one.box), "\n");
    TRY(write_file(path(name + ".txt"), lines, Code::kData));
  }
  return {};
}

std::string DetectionsFile::to_json() const {
  std::string json = "[\n";
  for (const Found& one : found_) {
    const Box& box = one.box;
    json +=
        str(&one == found_.data() ? "" : ",\n", "  {\"image_id\": ", json_word(one.picture),
            ", \"category_id\": ", json_word(class_name(one.label)), ", \"bbox\": [",
            hundredths(box.xmin), ", ", hundredths(box.ymin), ", ", hundredths(box.xmax - box.xmin),
            ", ", hundredths(box.ymax - box.ymin), "], \"score\": ", one.score, "}");
  }
  return json + "\n]\n";
}

std::string DetectionsFile::to_lines() const {
  std::string lines;
  for (const Found& one : found_)
    lines += str(one.picture, " ", one.label, " ", one.score, corner_words(one.box), "\n");
  return lines;
}

}  // namespace shoal
