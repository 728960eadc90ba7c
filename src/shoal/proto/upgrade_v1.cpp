// Upgrades V1 layers to the present ones.
#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <string_view>

#include "shoal/base/error.h"
#include "shoal/base/log.h"
#include "shoal/proto/fields.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/upgrade.h"

namespace shoal {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using V1 = V1LayerParameter;

constexpr struct {
  V1::LayerType v1;
  std::string_view v2;
} kV1Types[] = {
    {V1::NONE, ""},
    {V1::ABSVAL, "AbsVal"},
    {V1::ACCURACY, "Accuracy"},
    {V1::ARGMAX, "ArgMax"},
    {V1::BNLL, "BNLL"},
    {V1::CONCAT, "Concat"},
    {V1::CONTRASTIVE_LOSS, "ContrastiveLoss"},
    {V1::CONVOLUTION, "Convolution"},
    {V1::DATA, "Data"},
    {V1::DECONVOLUTION, "Deconvolution"},
    {V1::DROPOUT, "Dropout"},
    {V1::DUMMY_DATA, "DummyData"},
    {V1::EUCLIDEAN_LOSS, "EuclideanLoss"},
    {V1::ELTWISE, "Eltwise"},
    {V1::EXP, "Exp"},
    {V1::FLATTEN, "Flatten"},
    {V1::HDF5_DATA, "HDF5Data"},
    {V1::HDF5_OUTPUT, "HDF5Output"},
    {V1::HINGE_LOSS, "HingeLoss"},
    {V1::IM2COL, "Im2col"},
    {V1::IMAGE_DATA, "ImageData"},
    {V1::INFOGAIN_LOSS, "InfogainLoss"},
    {V1::INNER_PRODUCT, "InnerProduct"},
    {V1::LRN, "LRN"},
    {V1::MEMORY_DATA, "MemoryData"},
    {V1::MULTINOMIAL_LOGISTIC_LOSS, "MultinomialLogisticLoss"},
    {V1::MVN, "MVN"},
    {V1::POOLING, "Pooling"},
    {V1::POWER, "Power"},
    {V1::RELU, "ReLU"},
    {V1::SIGMOID, "Sigmoid"},
    {V1::SIGMOID_CROSS_ENTROPY_LOSS, "SigmoidCrossEntropyLoss"},
    {V1::SILENCE, "Silence"},
    {V1::SOFTMAX, "Softmax"},
    {V1::SOFTMAX_LOSS, "SoftmaxWithLoss"},
    {V1::SPLIT, "Split"},
    {V1::SLICE, "Slice"},
    {V1::TANH, "TanH"},
    {V1::WINDOW_DATA, "WindowData"},
    {V1::THRESHOLD, "Threshold"},
    {V1::CONVOLUTION3D, "Convolution3D"},
    {V1::POOLING3D, "Pooling3D"},
};

std::string new_type(V1::LayerType type) {
  for (const auto& entry : kV1Types)
    if (entry.v1 == type) return std::string(entry.v2);
  // The parser lets no other number through.
  LOG(FATAL) << "V1 layer type " << type << " has no name";
}

// Moves scale, mean_file, crop_size and mirror of a data layer's own message to the transform. True
// if there were any.
template <class Param>
bool move_transform(Param& param, TransformationParameter& transform) {
  const bool any =
      param.has_scale() || param.has_mean_file() || param.has_crop_size() || param.has_mirror();
  if (param.has_scale()) transform.set_scale(param.scale());
  if (param.has_mean_file()) transform.set_mean_file(param.mean_file());
  if (param.has_crop_size()) transform.set_crop_size(param.crop_size());
  if (param.has_mirror()) transform.set_mirror(param.mirror());
  param.clear_scale();
  param.clear_mean_file();
  param.clear_crop_size();
  param.clear_mirror();
  return any;
}

bool upgrade_transform(V1& layer) {
  TransformationParameter transform = layer.transform_param();
  bool moved = false;
  if (layer.type() == V1::DATA && layer.has_data_param())
    moved = move_transform(*layer.mutable_data_param(), transform);
  if (layer.type() == V1::IMAGE_DATA && layer.has_image_data_param())
    moved = move_transform(*layer.mutable_image_data_param(), transform);
  if (layer.type() == V1::WINDOW_DATA && layer.has_window_data_param())
    moved = move_transform(*layer.mutable_window_data_param(), transform);
  if (moved) *layer.mutable_transform_param() = transform;
  return moved;
}

ParamSpec& spec(LayerParameter& layer, int index) {
  while (layer.param_size() <= index) layer.add_param();
  return *layer.mutable_param(index);
}

void upgrade_specs(const V1& from, LayerParameter& to) {
  for (int i = 0; i < from.param_size(); ++i) spec(to, i).set_name(from.param(i));
  for (int i = 0; i < from.blob_share_mode_size(); ++i)
    spec(to, i).set_share_mode(static_cast<ParamSpec::DimCheckMode>(from.blob_share_mode(i)));
  for (int i = 0; i < from.blobs_lr_size(); ++i) spec(to, i).set_lr_mult(from.blobs_lr(i));
  for (int i = 0; i < from.weight_decay_size(); ++i)
    spec(to, i).set_decay_mult(from.weight_decay(i));
}

// Fields of the same name, all but those that the other steps treat.
void copy_namesakes(const V1& from, LayerParameter& to) {
  std::vector<const FieldDescriptor*> set;
  from.GetReflection()->ListFields(from, &set);
  for (const FieldDescriptor* field : set) {
    const FieldDescriptor* target = LayerParameter::descriptor()->FindFieldByName(field->name());
    const bool treated =
        field->name() == "type" || field->name() == "param" || field->name() == "blobs";
    if (target && !treated) copy_field(from, *field, to, *target);
  }
}

void upgrade_layer(V1& from, LayerParameter& to) {
  to.mutable_blobs()->Swap(from.mutable_blobs());  // may be most of the file
  copy_namesakes(from, to);
  if (from.has_type()) to.set_type(new_type(from.type()));
  upgrade_specs(from, to);
}

}  // namespace

void upgrade_v1(NetParameter& net, const NetSource& source) {
  const int count = net.layers_size();
  if (count == 0) return;
  if (net.layer_size() > 0) {
    const std::string where = source.v1_origin.empty() ? source.name : source.v1_origin[0];
    throw ConfigError(Code::kConfig, where, ": the net has both `layers` and `layer` (",
                      net.layer(0).origin(), "); write all of them as `layer`");
  }
  int transforms = 0;
  for (int i = 0; i < count; ++i) {
    transforms += upgrade_transform(*net.mutable_layers(i));
    upgrade_layer(*net.mutable_layers(i), *net.add_layer());
    const auto index = static_cast<std::size_t>(i);
    if (index < source.v1_origin.size()) net.mutable_layer(i)->set_origin(source.v1_origin[index]);
  }
  net.clear_layers();
  if (transforms)
    LOG(INFO) << source.name << ": scale, mean_file, crop_size and mirror of " << transforms
              << " data layers moved to transform_param";
  LOG(INFO) << source.name << ": " << count
            << " layers read from the V1 form (layers { type: RELU }) of Caffe";
}

}  // namespace shoal
