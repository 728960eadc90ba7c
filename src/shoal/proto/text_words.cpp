// Rewrites the protobuf parser's complaints as sentences with a cure.
#include "shoal/proto/text_words.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <set>
#include <span>
#include <string_view>

#include "shoal/base/error.h"
#include "shoal/base/text.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"

namespace shoal {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;

struct ForkField {
  std::string_view field, family;
};

// Fields of other families that a Caffe user may bring along, so that the error can say whose they
// are.
constexpr ForkField kForkFields[] = {
    {"ceil_mode", "OpenCV and forks (pooling_param only)"},
    {"raw_data", "NVIDIA's fork"},
    {"raw_data_type", "NVIDIA's fork"},
    {"solver_data_type", "NVIDIA's fork"},
    {"min_lr", "NVIDIA's fork"},
    {"shared_file_system", "Poseidon (of layers that read a source only)"},
    {"layer_blobs_global_idx", "Poseidon (solver only)"},
    {"blob_mode", "Poseidon"},
    {"global_id", "Poseidon"},
    {"hole", "DeepLab's fork; dilation is BVLC's name for it"},
    {"hole_h", "DeepLab's fork; two values of dilation are BVLC's form of it"},
    {"hole_w", "DeepLab's fork; two values of dilation are BVLC's form of it"},
    {"mat_read_param", "DeepLab's fork"},
    {"mat_write_param", "DeepLab's fork"},
    {"seg_accuracy_param", "DeepLab's fork"},
    {"cpm_transform_param", "OpenPose's fork"},
    {"lstm_param", "forks with an LSTM of their own"},
    {"bbox_reg_param", "MS-CNN's and Cascade R-CNN's forks"},
    {"box_group_output_param", "MS-CNN's and Cascade R-CNN's forks"},
    {"box_output_param", "MS-CNN's and Cascade R-CNN's forks"},
    {"decode_bbox_param", "MS-CNN's and Cascade R-CNN's forks"},
    {"denser_prior_boxes", "TextBoxes' fork"},
    {"detection_loss_param", "MS-CNN's and Cascade R-CNN's forks"},
    {"detectnet_augmentation_param", "NVIDIA's fork (DetectNet)"},
    {"detectnet_groundtruth_param", "NVIDIA's fork (DetectNet)"},
    {"image_gt_data_param", "MS-CNN's and Cascade R-CNN's forks"},
    {"proposal_target_param", "MS-CNN's and Cascade R-CNN's forks"},
    {"difficult_label_warmup", "MobileNet-YOLO's fork"},
    {"enable_classf_aug", "MobileNet-YOLO's fork, and changes the pictures of training"},
    {"original_image", "yjxiong's fork (TSN), and changes the pictures of training"},
    {"is_flow", "yjxiong's fork (TSN), and changes the pictures of training"},
    {"seg_scales", "MobileNet-YOLO's fork"},
    {"seg_resize_height", "MobileNet-YOLO's fork"},
    {"seg_resize_width", "MobileNet-YOLO's fork"},
    {"single_class", "MobileNet-YOLO's fork"},
    {"icnet", "Synopsys' fork"},
    {"pad_b", "Synopsys' fork, which pads each side on its own"},
    {"pad_l", "Synopsys' fork, which pads each side on its own"},
    {"pad_r", "Synopsys' fork, which pads each side on its own"},
    {"pad_t", "Synopsys' fork, which pads each side on its own"},
    {"pad_type", "Synopsys' fork"},
    {"relu6", "Synopsys' fork; a layer of type ReLU6 computes the same"},
    {"trt_param", "NVIDIA's fork (TensorRT)"},
    {"use_polygon", "TextBoxes' fork"},
    {"precache", "NVIDIA's fork"},
};

// Types of V1 layers that forks of that time have. known_types.h has those of the present form.
constexpr ForkField kForkTypes[] = {
    {"BN", "DeconvNet's fork"},
    {"CROP", "FCN's first fork; a Crop with axis and offset is BVLC's"},
    {"DECONVOLUTION3D", "C3D's fork"},
    {"ELTWISE_ACCURACY", "DeconvNet's fork"},
    {"IMAGE_SEG_DATA", "DeepLab's first fork; ImageSegData is its later form"},
    {"UNPOOLING", "DeconvNet's fork"},
    {"VIDEO_DATA", "C3D's fork"},
    {"VIDEO_SEGMENTATION_DATA", "C3D's fork"},
    {"VIDEO_WITH_VOXEL_TRUTH_DATA", "C3D's fork"},
    {"VOXEL_CUSTOM_LOSS", "C3D's fork"},
    {"VOXEL_SOFTMAX", "C3D's fork"},
    {"VOXEL_SOFTMAX_LOSS", "C3D's fork"},
    {"WINDOW_INST_SEG_DATA", "DeconvNet's fork"},
    {"WINDOW_SEG_DATA", "DeconvNet's fork"},
};

std::vector<std::string> field_names(const Descriptor& message) {
  std::vector<std::string> names;
  for (int i = 0; i < message.field_count(); ++i) names.push_back(message.field(i)->name());
  std::erase(names, "origin");  // no file holds it
  return names;
}

// Fields of `message` whose own message has a field `name`, one of each type of message.
std::vector<std::string> owners(const Descriptor& message, const std::string& name) {
  std::vector<std::string> found;
  std::set<const Descriptor*> types;
  for (int i = 0; i < message.field_count(); ++i) {
    const Descriptor* inner = message.field(i)->message_type();
    if (inner && inner->FindFieldByName(name) && types.insert(inner).second)
      found.push_back(message.field(i)->name());
  }
  return found;
}

// Returns the nearest field name one level further in.
std::string nearest_inside(const Descriptor& message, const std::string& name) {
  std::vector<std::string> names;
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    if (!field.message_type() || field.name() == "layer" || field.name() == "layers") continue;
    for (std::string& inner : field_names(*field.message_type())) names.push_back(std::move(inner));
  }
  return nearest(name, names);
}

std::string one_of(const std::vector<std::string>& words) {
  if (words.size() > 4) return str(join(std::span(words).first(3)), " or others");
  if (words.size() < 2) return join(words);
  return str(join(std::span(words).first(words.size() - 1)), " or ", words.back());
}

std::string unknown_field(const Descriptor& message, const std::string& field,
                          const Descriptor& root) {
  const std::string start = str(message.name(), " has no field '", field, "'");
  for (const ForkField& fork : kForkFields)
    if (field == fork.field) return str(start, "; it belongs to ", fork.family);
  const bool in_root = &message == &root;
  if (in_root && &root == NetParameter::descriptor() &&
      SolverParameter::descriptor()->FindFieldByName(field))
    return str(start, "; SolverParameter has: is this a solver where a net is expected?");
  if (in_root && &root == SolverParameter::descriptor() &&
      NetParameter::descriptor()->FindFieldByName(field))
    return str(start, "; NetParameter has: is this a net where a solver is expected?");
  if (&message == LayerParameter::descriptor() && (field == "layer" || field == "layers"))
    return str(start, "; is the } missing that closes the layer before this one?");
  if (&message == LayerParameter::descriptor() && (field == "blobs_lr" || field == "weight_decay"))
    return str(start, "; it belongs to layers, the old form; in layer it is ",
               field == "blobs_lr" ? "lr_mult" : "decay_mult", " inside param");
  const std::vector<std::string> inside = owners(message, field);
  if (!inside.empty()) return str(start, "; it goes inside ", one_of(inside));
  const std::string near = nearest(field, field_names(message));
  if (!near.empty()) return str(start, "; did you mean '", near, "'?");
  const std::string deeper = nearest_inside(message, field);
  if (!deeper.empty())
    return str(start, "; did you mean '", deeper, "' inside ", one_of(owners(message, deeper)),
               "?");
  if (in_root && LayerParameter::descriptor()->FindFieldByName(field))
    return str(start, "; it goes inside layer");
  return start;
}

std::string unknown_value(const EnumDescriptor& type, const std::string& field,
                          const std::string& value) {
  if (type.name() == "LayerType")
    for (const ForkField& fork : kForkTypes)
      if (value == fork.field)
        return str("BVLC Caffe has no layer type '", value, "'; it belongs to ", fork.family);
  std::vector<std::string> known;
  for (int i = 0; i < type.value_count(); ++i) known.push_back(type.value(i)->name());
  return str("'", value, "' is not a value of ", field, known_words(value, known));
}

// Returns the parts of `text` between quotation marks.
std::vector<std::string> quoted(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t at = 0;
  while ((at = text.find('"', at)) != std::string::npos) {
    const std::size_t end = text.find('"', at + 1);
    if (end == std::string::npos) break;
    parts.push_back(text.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return parts;
}

// Returns the token that the complaint is about: the last one of that text at or before it, since
// the parser has often read one further.
std::size_t culprit(const Complaint& complaint, const std::string& word,
                    const std::vector<Token>& tokens) {
  std::size_t found = tokens.size();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const Token& token = tokens[i];
    if (token.line > complaint.line ||
        (token.line == complaint.line && token.column > complaint.column))
      break;
    if (word.empty() || token.text == word) found = i;
  }
  return found;
}

// The layer's type is an enum in `layers` and a string in `layer`; the two are often mixed up.
std::string type_hint(const Place& place) {
  if (!place.field || place.field->name() != "type") return "";
  if (place.message->name() == "LayerParameter")
    return "; `layer` takes a quoted type, like \"InnerProduct\" (`layers` the other form)";
  if (place.message->name() == "V1LayerParameter")
    return "; `layers` takes a type like INNER_PRODUCT (`layer` the quoted form)";
  return "";
}

// The place of the token that the complaint is about is `place`; `before` is the token before it.
std::string sentence(const Complaint& complaint, const Place& place, const Token* before,
                     const std::vector<std::string>& names, const Descriptor& root) {
  const std::string& text = complaint.text;
  if (text.find("has no field named") != std::string::npos && names.size() >= 2) {
    const Descriptor* message = root.file()->pool()->FindMessageTypeByName(names[0]);
    return unknown_field(message ? *message : root, names[1], root);
  }
  if (text.find("Unknown enumeration value") != std::string::npos && names.size() >= 2 &&
      place.field && place.field->enum_type())
    return unknown_value(*place.field->enum_type(), names[1], names[0]);
  if (text.find("is specified multiple times") != std::string::npos && !names.empty())
    return str("'", names[0], "' is given twice, but takes one value");
  if (text == "Expected identifier, got: }")
    return "this } closes nothing: one too many, or a { is missing";
  if (text == "Expected identifier, got: ")
    return str("the text ends inside ", place.path.empty() ? "a value" : place.path,
               ": a } is missing");
  if (text.find("found \"=\"") != std::string::npos)
    return "a field needs a : before its value, not a =";
  if (before && before->is_name && text.starts_with("Expected \"")) {  // the field begins with it
    const bool old_form = place.message && place.message->name() == "V1LayerParameter";
    return str("'", before->text, "': ", text,
               old_form && before->text == "param"
                   ? " `layers` takes blobs_lr and weight_decay (`layer` takes param { })"
                   : "");
  }
  if (!place.message || !place.field) return text;
  return str("'", place.field->name(), "' of ", place.message->name(), ": ",
             text == "Expected integer, got: -" ? "it must not be negative" : text,
             type_hint(place));
}

// Returns the word of the text that a complaint quotes.
std::string blamed_word(const std::string& text, const std::vector<std::string>& names) {
  if (text.find("has no field named") != std::string::npos && names.size() >= 2) return names[1];
  const bool first = text.find("Unknown enumeration value") != std::string::npos ||
                     text.find("multiple times") != std::string::npos;
  return first && !names.empty() ? names[0] : "";
}

}  // namespace

std::string to_words(const Complaint& complaint, const std::string& name, const std::string& text,
                     const std::vector<Token>& tokens, const Descriptor& root) {
  if (complaint.line < 0) return str(name, ": ", complaint.text);
  const std::vector<std::string> names = quoted(complaint.text);
  const std::size_t index = culprit(complaint, blamed_word(complaint.text, names), tokens);
  if (index == tokens.size())
    return str(name, ":", complaint.line + 1, ":", complaint.column + 1, ": ", complaint.text);
  const Token& token = tokens[index];
  const std::size_t line_start =
      token.begin == 0 ? std::string::npos : text.rfind('\n', token.begin - 1);
  const std::size_t column =
      token.begin - (line_start == std::string::npos ? 0 : line_start + 1) + 1;
  return str(name, ":", token.line + 1, ":", column, ": ",
             sentence(complaint, place_of(tokens, index, root),
                      index ? &tokens[index - 1] : nullptr, names, root));
}

}  // namespace shoal
