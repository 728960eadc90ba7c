#include "shoal/data/annotations.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <cmath>
#include <cstdlib>
#include <sstream>
#include <utility>
#include <vector>

#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/data/xml.h"
#include "shoal/proto/annotated.pb.h"

namespace shoal {
namespace {

// A box in pixels of the picture.
struct PixelBox {
  int label = 0;
  bool difficult = false;
  double xmin = 0, ymin = 0, xmax = 0, ymax = 0;
};

struct Annotations {
  PictureSize size;
  std::vector<PixelBox> boxes;
};

using Labels = std::map<std::string, int>;

Error of_data(const std::string& words) { return Error{Code::kData, words}; }

Result<int> label_of(const Labels& labels, const std::string& name) {
  const auto found = labels.find(name);
  if (found != labels.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, label] : labels) names.push_back(known);
  return of_data(str("'", name, "' is not in the label map", known_words(name, names)));
}

Result<double> number_of(const std::string& text, std::string_view what) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !std::isfinite(number))
    return of_data(str(what, " is '", text, "', no number"));
  return number;
}

Result<PixelBox> xml_box(const XmlElement& object, const Labels& labels) {
  PixelBox box;
  const Result<int> label = label_of(labels, object.text_at("name"));
  if (!label.ok()) return label.error();
  box.label = label.value();
  box.difficult = object.text_at("difficult") == "1";
  for (const auto& [name, side] : {std::pair{"xmin", &box.xmin}, std::pair{"ymin", &box.ymin},
                                   std::pair{"xmax", &box.xmax}, std::pair{"ymax", &box.ymax}}) {
    const Result<double> number = number_of(object.text_at(str("bndbox/", name)), name);
    if (!number.ok()) return number.error();
    *side = number.value();
  }
  return box;
}

Result<Annotations> read_xml(const std::string& text, const PictureSize& size,
                             const Labels& labels) {
  const Result<XmlElement> root = parse_xml(text);
  if (!root.ok()) return root.error();
  if (root.value().name != "annotation")
    return of_data(str("its outermost element is <", root.value().name, ">, not <annotation>"));
  Annotations all{size, {}};
  const std::string height = root.value().text_at("size/height"),
                    width = root.value().text_at("size/width");
  if (!height.empty() && !width.empty())
    all.size = {std::atoi(height.c_str()), std::atoi(width.c_str())};
  for (const XmlElement& object : root.value().children) {
    if (object.name != "object") continue;
    Result<PixelBox> box = xml_box(object, labels);
    if (!box.ok()) return box.error();
    all.boxes.push_back(box.value());
  }
  return all;
}

using JsonValue = google::protobuf::Value;
using JsonFields = google::protobuf::Map<std::string, JsonValue>;

const JsonValue* member(const JsonFields& fields, const std::string& name) {
  const auto found = fields.find(name);
  return found == fields.end() ? nullptr : &found->second;
}

// Returns a name as the label map has it: COCO's are numbers.
std::string json_name(const JsonValue* value) {
  if (!value) return "";
  if (value->kind_case() == JsonValue::kStringValue) return value->string_value();
  return str(static_cast<std::int64_t>(value->number_value()));
}

Result<PixelBox> json_box(const JsonFields& fields, const Labels& labels) {
  PixelBox box;
  const Result<int> label = label_of(labels, json_name(member(fields, "category_id")));
  if (!label.ok()) return label.error();
  box.label = label.value();
  const JsonValue *const crowd = member(fields, "iscrowd"), *const sides = member(fields, "bbox");
  box.difficult = crowd && crowd->number_value() != 0;
  if (!sides || sides->list_value().values_size() != 4)
    return of_data("an annotation has no bbox of four numbers: x, y, width, height");
  const auto side = [&](int i) { return sides->list_value().values(i).number_value(); };
  box.xmin = side(0);
  box.ymin = side(1);
  box.xmax = side(0) + side(2);
  box.ymax = side(1) + side(3);
  return box;
}

Result<Annotations> read_json(const std::string& text, const PictureSize& size,
                              const Labels& labels) {
  google::protobuf::Struct root;
  const auto parsed = google::protobuf::util::JsonStringToMessage(text, &root);
  if (!parsed.ok()) return of_data(str("is no JSON: ", std::string(parsed.message())));
  Annotations all{size, {}};
  const JsonValue *const image = member(root.fields(), "image"), *const boxes = member(
                                                                     root.fields(), "annotation");
  if (!boxes)
    return of_data(
        "has no \"annotation\": it is of one picture, {\"image\": {...}, "
        "\"annotation\": [...]}");
  if (image) {
    const JsonFields& fields = image->struct_value().fields();
    const JsonValue *const height = member(fields, "height"), *const width =
                                                                  member(fields, "width");
    if (height && width)
      all.size = {static_cast<int>(height->number_value()),
                  static_cast<int>(width->number_value())};
  }
  for (const JsonValue& one : boxes->list_value().values()) {
    Result<PixelBox> box = json_box(one.struct_value().fields(), labels);
    if (!box.ok()) return box.error();
    all.boxes.push_back(box.value());
  }
  return all;
}

Result<Annotations> read_lines(const std::string& text, const PictureSize& size) {
  Annotations all{size, {}};
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line);
    PixelBox box;
    std::string more;
    if (!(words >> box.label)) {
      if (words.eof() && line.find_first_not_of(" \t\r") == std::string::npos) continue;
      words.setstate(std::ios::failbit);
    }
    if (!(words >> box.xmin >> box.ymin >> box.xmax >> box.ymax) || words >> more)
      return of_data(str("line ", number, ": '", line, "' is not \"label xmin ymin xmax ymax\""));
    all.boxes.push_back(box);
  }
  return all;
}

Annotation& next_of(int label, AnnotatedDatum& record) {
  for (AnnotationGroup& group : *record.mutable_annotation_group())
    if (group.group_label() == label) {
      const int instance = group.annotation(group.annotation_size() - 1).instance_id() + 1;
      group.add_annotation()->set_instance_id(instance);
      return *group.mutable_annotation(group.annotation_size() - 1);
    }
  AnnotationGroup& group = *record.add_annotation_group();
  group.set_group_label(label);
  group.add_annotation()->set_instance_id(0);
  return *group.mutable_annotation(0);
}

void add_box(const PixelBox& box, const PictureSize& size, AnnotatedDatum& record) {
  NormalizedBBox& part = *next_of(box.label, record).mutable_bbox();
  part.set_xmin(static_cast<float>(box.xmin / size.width));
  part.set_ymin(static_cast<float>(box.ymin / size.height));
  part.set_xmax(static_cast<float>(box.xmax / size.width));
  part.set_ymax(static_cast<float>(box.ymax / size.height));
  part.set_difficult(box.difficult);
}

}  // namespace

std::optional<AnnotationFile> annotation_file_named(std::string_view name) {
  if (name == "xml") return AnnotationFile::kXml;
  if (name == "json") return AnnotationFile::kJson;
  return name == "txt" ? std::optional(AnnotationFile::kText) : std::nullopt;
}

Status read_annotations(const std::string& path, AnnotationFile kind, const PictureSize& size,
                        const Labels& labels, AnnotatedDatum& record) {
  const Result<std::string> text = read_file(path, Code::kData);
  if (!text.ok()) return text.error();
  const Result<Annotations> all =
      kind == AnnotationFile::kXml    ? read_xml(text.value(), size, labels)
      : kind == AnnotationFile::kJson ? read_json(text.value(), size, labels)
                                      : read_lines(text.value(), size);
  if (!all.ok()) return of_data(str(path, ": ", all.error().message));
  const PictureSize& own = all.value().size;
  if (own.height < 1 || own.width < 1)
    return of_data(
        str(path, ": says that the picture is ", own.width, " x ", own.height, " pixels"));
  record.set_type(AnnotatedDatum::BBOX);
  for (const PixelBox& box : all.value().boxes) {
    const std::string corners =
        str("box ", box.xmin, ", ", box.ymin, ", ", box.xmax, ", ", box.ymax);
    if (box.xmin < 0 || box.ymin < 0 || box.xmax > own.width || box.ymax > own.height)
      LOG(WARNING) << path << ": " << corners << " reaches beyond the picture, which is "
                   << own.width << " x " << own.height;
    if (box.xmax > box.xmin && box.ymax > box.ymin)
      add_box(box, own, record);
    else
      LOG(WARNING) << path << ": " << corners << " has no width or no height, and is left out";
  }
  return {};
}

}  // namespace shoal
