#include "shoal/net/foreign_params.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/base/log.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// Returns "prelu" for PReLU and for prelu_param.
std::string plain_name(std::string name) {
  std::erase(name, '_');
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

// Returns whether a layer of this type reads the message `field`, besides its own.
bool also_reads(const std::string& type, const std::string& field) {
  if (type.ends_with("LossOHEM"))
    return field == "smooth_l1_loss_param" || also_reads(type.substr(0, type.size() - 4), field);
  if (field == "roi_pooling_param") return type == "ROIAlign";
  if (field == "data_param") return type == "AnnotatedData";
  if (field == "transform_param") return type.ends_with("Data");
  if (field == "loss_param" || field == "softmax_param") return type.ends_with("Loss");
  if (field == "convolution_param") return type.find("onv") != type.npos || type == "Im2col";
  if (field == "focal_loss_param") return type == "SoftmaxFocalLoss";
  if (field == "image_data_param") return type == "ImageSegData";
  if (field == "norm_param") return type == "Normalize";
  return field == "recurrent_param" && (type == "LSTM" || type == "RNN");
}

}  // namespace

void warn_of_foreign_params(const LayerParameter& layer) {
  constexpr std::string_view kEnd = "_param";
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  layer.GetReflection()->ListFields(layer, &fields);
  for (const auto* field : fields) {
    const std::string& name = field->name();
    if (!name.ends_with(kEnd) || also_reads(layer.type(), name)) continue;
    if (plain_name(name.substr(0, name.size() - kEnd.size())) == plain_name(layer.type())) continue;
    LOG(WARNING) << layer_place(layer) << ": " << name << " has no effect on a layer of this type";
  }
}

}  // namespace shoal
