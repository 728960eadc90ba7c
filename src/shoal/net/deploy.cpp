#include "shoal/net/deploy.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <span>
#include <string_view>

#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/net/graph.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"

namespace shoal {
namespace {

using Dims = std::vector<std::int64_t>;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr std::string_view kDataTypes[] = {"Data",      "DummyData",  "HDF5Data",
                                           "ImageData", "MemoryData", "WindowData"};
constexpr std::string_view kPlainLosses[] = {"ContrastiveLoss", "EuclideanLoss", "HingeLoss",
                                             "MultinomialLogisticLoss"};
constexpr int kOurs = 1000;  // first number of our own fields

// Layer types that OpenCV 4.6 could not create when it was tried; a deploy net with one of these is
// still good for Caffe.
constexpr std::string_view kNotInOpenCv[] = {
    "ArgMax", "BatchReindex", "Bias",      "Clip",      "Embed", "Filter",    "Im2col", "Parameter",
    "Python", "RNN",          "Recurrent", "Reduction", "SPP",   "Threshold", "Tile"};

bool is_one_of(std::string_view type, std::span<const std::string_view> types) {
  return std::ranges::find(types, type) != types.end();
}
bool is_data(const LayerParameter& layer) { return is_one_of(layer.type(), kDataTypes); }

// Returns the type that shows what a loss was computed from; "" for other losses; nothing for
// layers that are no loss.
std::optional<std::string> shown_as(const LayerParameter& layer) {
  if (layer.type() == "SoftmaxWithLoss" || layer.type() == "InfogainLoss") return "Softmax";
  if (layer.type() == "SigmoidCrossEntropyLoss") return "Sigmoid";
  if (is_one_of(layer.type(), kPlainLosses)) return "";
  return std::nullopt;
}

float loss_weight(const LayerParameter& layer) {
  return layer.loss_weight_size() ? layer.loss_weight(0) : 1.0f;
}

// ---- The size of an input

Dims mean_file_dims(const std::string& path) {
  if (path.empty() || !file_exists(path)) return {};
  Dims dims = blob_dims(read_blob_proto(path));
  while (dims.size() > 3) dims.erase(dims.begin());
  return dims;
}

std::int64_t channels_of(const LayerParameter& layer, const Dims& mean) {
  const TransformationParameter& transform = layer.transform_param();
  if (layer.type() == "ImageData") return layer.image_data_param().is_color() ? 3 : 1;
  if (layer.type() == "WindowData" || transform.force_color() ||
      layer.data_param().force_encoded_color())
    return 3;
  if (transform.force_gray()) return 1;
  if (mean.size() == 3) return mean[0];
  return transform.mean_value_size() > 1 ? transform.mean_value_size() : 0;
}

// (C, H, W) of the first top of a layer that reads records, with 0 for what is not known.
Dims record_dims(const LayerParameter& layer) {
  const Dims mean = mean_file_dims(layer.transform_param().mean_file());
  std::int64_t height = layer.transform_param().crop_size(), width = height;
  if (height == 0 && layer.type() == "ImageData") {
    height = layer.image_data_param().new_height();
    width = layer.image_data_param().new_width();
  }
  if (height == 0 && mean.size() == 3) height = mean[1], width = mean[2];
  return {channels_of(layer, mean), height, width};
}

Dims dummy_dims(const DummyDataParameter& param, int top) {
  if (param.shape_size()) {
    const BlobShape& shape = param.shape(std::min(top, param.shape_size() - 1));
    return {shape.dim().begin(), shape.dim().end()};
  }
  const auto at = [top](const auto& list) {
    return list.empty() ? 0 : std::int64_t{list.Get(std::min(top, list.size() - 1))};
  };
  return {at(param.num()), at(param.channels()), at(param.height()), at(param.width())};
}

// Returns the shape of a data layer's top, batch included.
Dims top_dims(const LayerParameter& layer, int top, const DeployOptions& options) {
  const std::int64_t batch = std::max<std::int64_t>(options.batch, 1);
  Dims dims;
  if (layer.type() == "DummyData") {
    dims = dummy_dims(layer.dummy_data_param(), top);
    if (!dims.empty() && options.batch > 0) dims[0] = batch;
  } else if (top > 0) {
    return {batch};  // labels
  } else if (layer.type() == "MemoryData") {
    const MemoryDataParameter& param = layer.memory_data_param();
    dims = {batch, param.channels(), param.height(), param.width()};
  } else {
    dims = record_dims(layer);
    dims.insert(dims.begin(), batch);
  }
  if (std::ranges::count(dims, 0) == 0) return dims;
  if (options.shape.empty())
    throw config_error(layer, "the net does not give the size of '", layer.top(top),
                       "'; give it, as in --shape=1,3,32,32");
  dims = options.shape;
  if (options.batch > 0) dims[0] = options.batch;
  return dims;
}

LayerParameter input_layer(const LayerParameter& data, const std::set<std::string>& needed,
                           const DeployOptions& options) {
  LayerParameter layer;
  layer.set_name(data.name());
  layer.set_type("Input");
  for (int i = 0; i < data.top_size(); ++i) {
    if (!needed.contains(data.top(i))) continue;
    layer.add_top(data.top(i));
    BlobShape* shape = layer.mutable_input_param()->add_shape();
    for (const std::int64_t dim : top_dims(data, i, options)) shape->add_dim(dim);
  }
  return layer;
}

// ---- Heads

bool has_layer_of(const NetParameter& net, const std::string& type, const std::string& bottom) {
  return std::ranges::any_of(net.layer(), [&](const LayerParameter& layer) {
    return layer.type() == type && layer.bottom_size() && layer.bottom(0) == bottom;
  });
}

bool has_name(const NetParameter& net, const std::string& name) {
  return std::ranges::any_of(net.layer(), [&](const LayerParameter& layer) {
    return layer.name() == name || std::ranges::find(layer.top(), name) != layer.top().end();
  });
}

// Returns the layer that takes the place of a loss layer: `shown` is Softmax or Sigmoid.
LayerParameter head_of(const LayerParameter& loss, const std::string& shown,
                       const NetParameter& net) {
  LayerParameter layer;
  const std::string name = has_name(net, "prob") ? loss.name() : "prob";
  layer.set_name(name);
  layer.set_type(shown);
  layer.add_bottom(loss.bottom(0));
  layer.add_top(loss.top_size() > 1 ? loss.top(1) : name);
  if (loss.has_softmax_param()) *layer.mutable_softmax_param() = loss.softmax_param();
  if (loss.infogain_loss_param().has_axis())
    layer.mutable_softmax_param()->set_axis(loss.infogain_loss_param().axis());
  return layer;
}

// `net` with its losses replaced by heads, and in `needed` the blobs that a deploy net is there to
// compute.
NetParameter replace_losses(const NetParameter& net, bool auxiliary,
                            std::set<std::string>& needed) {
  float largest = 0;
  for (const LayerParameter& layer : net.layer())
    if (shown_as(layer)) largest = std::max(largest, loss_weight(layer));
  NetParameter result(net);
  result.clear_layer();
  for (const LayerParameter& layer : net.layer()) {
    const auto shown = shown_as(layer);
    if (!shown) {
      if (layer.type() != "Accuracy" && layer.type() != "Silence") *result.add_layer() = layer;
      continue;
    }
    if (!auxiliary && loss_weight(layer) < largest) {
      LOG(INFO) << layer_place(layer)
                << ": left out, with the layers that only it uses: its loss_weight is "
                << loss_weight(layer) << ", another loss has " << largest;
      continue;
    }
    if (layer.bottom_size() == 0) throw config_error(layer, "has no bottom");
    needed.insert(layer.bottom(0));
    if (layer.type() == "ContrastiveLoss" && layer.bottom_size() > 1)
      needed.insert(layer.bottom(1));
    if (shown->empty() || has_layer_of(net, *shown, layer.bottom(0))) continue;
    LayerParameter head = head_of(layer, *shown, result);
    needed.insert(head.top(0));
    *result.add_layer() = std::move(head);
  }
  return result;
}

// ---- What is left

// Tops that no layer of the whole net takes are outputs too, if a layer makes them that is no data
// layer.
void add_outputs(const NetParameter& net, std::set<std::string>& needed) {
  std::set<std::string> taken;
  for (const LayerParameter& layer : net.layer())
    taken.insert(layer.bottom().begin(), layer.bottom().end());
  for (const LayerParameter& layer : net.layer()) {
    if (is_data(layer) || shown_as(layer) || layer.type() == "Accuracy" || layer.type() == "Input")
      continue;
    for (const std::string& top : layer.top())
      if (!taken.contains(top)) needed.insert(top);
  }
}

void clear_our_fields(Message& message) {
  std::vector<const FieldDescriptor*> set;
  message.GetReflection()->ListFields(message, &set);
  for (const FieldDescriptor* field : set) {
    if (field->number() >= kOurs)
      message.GetReflection()->ClearField(&message, field);
    else if (field->message_type() && !field->is_repeated())
      clear_our_fields(*message.GetReflection()->MutableMessage(&message, field));
  }
}

// Takes away what only training, or only our reader, wants.
void strip(LayerParameter& layer) {
  layer.clear_include();
  layer.clear_exclude();
  layer.clear_phase();
  layer.clear_loss_weight();
  layer.clear_propagate_down();
  layer.clear_blobs();
  const bool shared = std::ranges::any_of(
      layer.param(), [](const ParamSpec& param) { return !param.name().empty(); });
  if (!shared) layer.clear_param();
  for (ParamSpec& param : *layer.mutable_param()) param.clear_lr_mult(), param.clear_decay_mult();
  if (layer.has_convolution_param()) {
    layer.mutable_convolution_param()->clear_weight_filler();
    layer.mutable_convolution_param()->clear_bias_filler();
  }
  if (layer.has_inner_product_param()) {
    layer.mutable_inner_product_param()->clear_weight_filler();
    layer.mutable_inner_product_param()->clear_bias_filler();
  }
  // Two fields that OpenCV does not know, where they change nothing.
  if (layer.swish_param().beta() == 1) layer.clear_swish_param();
  if (layer.type() != "Pooling") layer.clear_pooling_param();
  clear_our_fields(layer);
}

void set_batch(LayerParameter& input, std::int64_t batch) {
  if (batch <= 0) return;
  for (BlobShape& shape : *input.mutable_input_param()->mutable_shape())
    if (shape.dim_size()) shape.set_dim(0, batch);
}

}  // namespace

NetParameter deploy_net(const NetParameter& net, const DeployOptions& options) {
  NetParameter whole(net);
  whole.mutable_state()->set_phase(TEST);
  whole.mutable_state()->set_level(options.level);
  for (const std::string& stage : options.stages) whole.mutable_state()->add_stage(stage);
  whole = filter_net(whole);
  std::set<std::string> needed;
  add_outputs(whole, needed);
  const NetParameter with_heads = replace_losses(whole, options.auxiliary, needed);
  std::vector<LayerParameter> kept;  // last first
  for (int i = with_heads.layer_size() - 1; i >= 0; --i) {
    const LayerParameter& layer = with_heads.layer(i);
    if (std::ranges::none_of(layer.top(),
                             [&](const std::string& top) { return needed.contains(top); }))
      continue;
    needed.insert(layer.bottom().begin(), layer.bottom().end());
    kept.push_back(is_data(layer) ? input_layer(layer, needed, options) : layer);
    if (layer.type() == "Input") set_batch(kept.back(), options.batch);
    if (is_one_of(layer.type(), kNotInOpenCv))
      LOG(WARNING) << layer_place(layer) << ": OpenCV has no such layer";
    strip(kept.back());
  }
  NetParameter result;
  if (net.has_name()) result.set_name(net.name());
  for (auto layer = kept.rbegin(); layer != kept.rend(); ++layer)
    *result.add_layer() = std::move(*layer);
  return result;
}

std::string deploy_text(const NetParameter& net, FloorField floor) {
  NetParameter plain(net);
  for (LayerParameter& layer : *plain.mutable_layer()) {
    const bool down = layer.pooling_param().round_mode() == PoolingParameter::FLOOR;
    if (down && floor == FloorField::kRefuse)
      throw config_error(layer,
                         "rounds down (round_mode: FLOOR), which Caffe and OpenCV write with "
                         "different fields; choose one with --floor");
    if (!down && layer.has_pooling_param()) layer.mutable_pooling_param()->clear_round_mode();
  }
  std::string text = to_text(plain);
  if (floor != FloorField::kCeilMode) return text;
  // Each field is on a line of its own, and no string holds an end of line.
  constexpr std::string_view kOld = " round_mode: FLOOR\n", kNew = " ceil_mode: false\n";
  for (std::size_t at = 0; (at = text.find(kOld, at)) != std::string::npos; at += kNew.size())
    text.replace(at, kOld.size(), kNew);
  return text;
}

}  // namespace shoal
