// Upgrades V0 layers to V1 layers.
#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>

#include "shoal/base/error.h"
#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/proto/fields.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/upgrade.h"

namespace shoal {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using V1 = V1LayerParameter;
using V0 = V0LayerParameter;

struct TypeName {
  std::string_view v0;
  V1::LayerType v1;
};

constexpr TypeName kV0Types[] = {
    {"accuracy", V1::ACCURACY},
    {"bnll", V1::BNLL},
    {"concat", V1::CONCAT},
    {"conv", V1::CONVOLUTION},
    {"data", V1::DATA},
    {"dropout", V1::DROPOUT},
    {"euclidean_loss", V1::EUCLIDEAN_LOSS},
    {"flatten", V1::FLATTEN},
    {"hdf5_data", V1::HDF5_DATA},
    {"hdf5_output", V1::HDF5_OUTPUT},
    {"im2col", V1::IM2COL},
    {"images", V1::IMAGE_DATA},
    {"infogain_loss", V1::INFOGAIN_LOSS},
    {"innerproduct", V1::INNER_PRODUCT},
    {"lrn", V1::LRN},
    {"multinomial_logistic_loss", V1::MULTINOMIAL_LOGISTIC_LOSS},
    {"pool", V1::POOLING},
    {"relu", V1::RELU},
    {"sigmoid", V1::SIGMOID},
    {"softmax", V1::SOFTMAX},
    {"softmax_loss", V1::SOFTMAX_LOSS},
    {"split", V1::SPLIT},
    {"tanh", V1::TANH},
    {"window_data", V1::WINDOW_DATA},
};

// A V0 field of a V0 type goes to a field of one of V1's messages; type "" is any.
struct Move {
  std::string_view field, type, message, target;
};

constexpr Move kMoves[] = {
    {"num_output", "conv", "convolution_param", "num_output"},
    {"num_output", "innerproduct", "inner_product_param", "num_output"},
    {"biasterm", "conv", "convolution_param", "bias_term"},
    {"biasterm", "innerproduct", "inner_product_param", "bias_term"},
    {"weight_filler", "conv", "convolution_param", "weight_filler"},
    {"weight_filler", "innerproduct", "inner_product_param", "weight_filler"},
    {"bias_filler", "conv", "convolution_param", "bias_filler"},
    {"bias_filler", "innerproduct", "inner_product_param", "bias_filler"},
    {"pad", "conv", "convolution_param", "pad"},
    {"pad", "pool", "pooling_param", "pad"},
    {"kernelsize", "conv", "convolution_param", "kernel_size"},
    {"kernelsize", "pool", "pooling_param", "kernel_size"},
    {"stride", "conv", "convolution_param", "stride"},
    {"stride", "pool", "pooling_param", "stride"},
    {"group", "conv", "convolution_param", "group"},
    {"pool", "pool", "pooling_param", "pool"},
    {"dropout_ratio", "dropout", "dropout_param", "dropout_ratio"},
    {"local_size", "lrn", "lrn_param", "local_size"},
    {"alpha", "lrn", "lrn_param", "alpha"},
    {"beta", "lrn", "lrn_param", "beta"},
    {"k", "lrn", "lrn_param", "k"},
    {"source", "data", "data_param", "source"},
    {"source", "hdf5_data", "hdf5_data_param", "source"},
    {"source", "images", "image_data_param", "source"},
    {"source", "window_data", "window_data_param", "source"},
    {"source", "infogain_loss", "infogain_loss_param", "source"},
    {"batchsize", "data", "data_param", "batch_size"},
    {"batchsize", "hdf5_data", "hdf5_data_param", "batch_size"},
    {"batchsize", "images", "image_data_param", "batch_size"},
    {"batchsize", "window_data", "window_data_param", "batch_size"},
    {"scale", "", "transform_param", "scale"},
    {"meanfile", "", "transform_param", "mean_file"},
    {"cropsize", "", "transform_param", "crop_size"},
    {"mirror", "", "transform_param", "mirror"},
    {"rand_skip", "data", "data_param", "rand_skip"},
    {"rand_skip", "images", "image_data_param", "rand_skip"},
    {"shuffle_images", "images", "image_data_param", "shuffle"},
    {"new_height", "images", "image_data_param", "new_height"},
    {"new_width", "images", "image_data_param", "new_width"},
    {"concat_dim", "concat", "concat_param", "concat_dim"},
    {"det_fg_threshold", "window_data", "window_data_param", "fg_threshold"},
    {"det_bg_threshold", "window_data", "window_data_param", "bg_threshold"},
    {"det_fg_fraction", "window_data", "window_data_param", "fg_fraction"},
    {"det_context_pad", "window_data", "window_data_param", "context_pad"},
    {"det_crop_mode", "window_data", "window_data_param", "crop_mode"},
    {"name", "", "", "name"},
    {"blobs", "", "", "blobs"},
    {"blobs_lr", "", "", "blobs_lr"},
    {"weight_decay", "", "", "weight_decay"},
    {"hdf5_output_param", "hdf5_output", "", "hdf5_output_param"},
};

const FieldDescriptor& field_of(const Message& message, std::string_view name) {
  const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(std::string(name));
  CHECK(field) << message.GetDescriptor()->name() << " has no field " << name;
  return *field;
}

std::string place(const NetSource& source, int index, const V0& layer) {
  const auto i = static_cast<std::size_t>(index);
  const std::string where = i < source.v1_origin.size() ? source.v1_origin[i] : source.name;
  return str(where, ": layer '", layer.name(), "' (", layer.type(), ")");
}

V1::LayerType new_type(const NetSource& source, int index, const V0& layer) {
  std::vector<std::string> known;
  for (const TypeName& entry : kV0Types) {
    if (entry.v0 == layer.type()) return entry.v1;
    known.emplace_back(entry.v0);
  }
  const std::string hint = did_you_mean(layer.type(), known);
  throw ConfigError(Code::kConfig, place(source, index, layer),
                    ": unknown layer type of the V0 form", hint,
                    hint.empty() ? "; known: " : " Known: ", join(known));
}

void move_field(const V0& layer, const FieldDescriptor& field, V1& out, const std::string& where) {
  const auto* move = std::find_if(std::begin(kMoves), std::end(kMoves), [&](const Move& m) {
    return m.field == field.name() && (m.type.empty() || m.type == layer.type());
  });
  if (move == std::end(kMoves)) {
    LOG(ERROR) << where << ": " << field.name() << " has no meaning for this type and is lost";
    return;
  }
  Message* target = &out;
  if (!move->message.empty())
    target = out.GetReflection()->MutableMessage(&out, &field_of(out, move->message));
  copy_field(layer, field, *target, field_of(*target, move->target));
}

// One wrapped layer, with all that its wrapper says itself.
void upgrade_layer(V1& wrapper, const NetSource& source, int index) {
  V0 layer;
  layer.Swap(wrapper.mutable_layer());
  wrapper.clear_layer();
  const std::string where = place(source, index, layer);
  wrapper.set_type(new_type(source, index, layer));
  if (layer.has_name()) wrapper.clear_name();
  std::vector<const FieldDescriptor*> set;
  layer.GetReflection()->ListFields(layer, &set);
  for (const FieldDescriptor* field : set)
    if (field->name() != "type") move_field(layer, *field, wrapper, where);
}

bool is_padding(const V1& layer) { return layer.has_layer() && layer.layer().type() == "padding"; }

// Gives the pad of a padding layer, and its bottom, to the layer that reads its top.
void take_padding(V1& layer, const V1& padding, int bottom, const NetSource& source, int index) {
  const std::string where = place(source, index, layer.layer());
  if (layer.layer().type() != "conv" && layer.layer().type() != "pool")
    throw ConfigError(Code::kConfig, where, ": reads padding layer '", padding.layer().name(),
                      "', which only conv and pool may");
  if (padding.bottom_size() != 1)
    throw ConfigError(Code::kConfig, where, ": padding layer '", padding.layer().name(),
                      "' takes one bottom, not ", padding.bottom_size());
  layer.mutable_layer()->set_pad(padding.layer().pad());
  layer.set_bottom(bottom, padding.bottom(0));
}

void remove_padding(NetParameter& net, NetSource& source) {
  std::map<std::string, int> maker;  // of each blob so far, by index in layers
  int removed = 0;
  for (int i = 0; i < net.layers_size(); ++i) {
    V1& layer = *net.mutable_layers(i);
    for (int b = 0; b < layer.bottom_size(); ++b) {
      const auto found = maker.find(layer.bottom(b));
      if (found != maker.end() && is_padding(net.layers(found->second)))
        take_padding(layer, net.layers(found->second), b, source, i);
    }
    for (const std::string& top : layer.top()) maker[top] = i;
  }
  for (int i = net.layers_size() - 1; i >= 0; --i) {
    if (!is_padding(net.layers(i))) continue;
    net.mutable_layers()->DeleteSubrange(i, 1);
    if (static_cast<std::size_t>(i) < source.v1_origin.size())
      source.v1_origin.erase(source.v1_origin.begin() + i);
    ++removed;
  }
  if (removed)
    LOG(INFO) << source.name << ": " << removed
              << " padding layers merged into the layers that read them";
}

}  // namespace

void upgrade_v0(NetParameter& net, NetSource& source) {
  const auto count = std::count_if(net.layers().begin(), net.layers().end(),
                                   [](const V1& layer) { return layer.has_layer(); });
  if (count == 0) return;
  remove_padding(net, source);
  for (int i = 0; i < net.layers_size(); ++i)
    if (net.layers(i).has_layer()) upgrade_layer(*net.mutable_layers(i), source, i);
  LOG(INFO) << source.name << ": " << count
            << " layers read from the V0 form (layers { layer { ... } }) of Caffe";
}

}  // namespace shoal
