#include "shoal/net/deploy.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <span>
#include <string_view>

#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/net/graph.h"
#include "shoal/net/predictions.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"

namespace shoal {
namespace {

using Dims = std::vector<std::int64_t>;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr int kOurs = 1000;   // first number of our own fields
constexpr int kForks = 1100;  // first number of the fields of layers of forks, in LayerParameter

// Layer types that OpenCV 4.6 could not create when it was tried; a deploy net with one of these is
// still good for Caffe.
constexpr std::string_view kNotInOpenCv[] = {"ArgMax",
                                             "BatchReindex",
                                             "Bias",
                                             "BoxAnnotatorOHEM",
                                             "Clip",
                                             "Embed",
                                             "Filter",
                                             "Im2col",
                                             "Parameter",
                                             "Python",
                                             "ROIAlign",
                                             "RNN",
                                             "Recurrent",
                                             "Reduction",
                                             "SPP",
                                             "Threshold",
                                             "Tile",
                                             "YoloDetectionOutput",
                                             "Yolov3DetectionOutput"};

bool is_one_of(std::string_view type, std::span<const std::string_view> types) {
  return std::ranges::find(types, type) != types.end();
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
  const TransformationParameter& transform = layer.transform_param();
  std::int64_t height = transform.crop_size(), width = height;
  if (height == 0) {
    const bool crops = transform.crop_h() > 0;
    const ResizeParameter resize =
        transform.resize_param_size() ? transform.resize_param(0) : ResizeParameter();
    height = crops ? transform.crop_h() : resize.height();
    width = crops ? transform.crop_w() : resize.width();
  }
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

// ---- What is left

void clear_our_fields(Message& message) {
  std::vector<const FieldDescriptor*> set;
  message.GetReflection()->ListFields(message, &set);
  const bool is_layer = message.GetDescriptor() == LayerParameter::descriptor();
  // The fields from kOurs on in these are forks' too.
  const bool is_forks = message.GetDescriptor() == BatchNormParameter::descriptor() ||
                        message.GetDescriptor() == DropoutParameter::descriptor();
  for (const FieldDescriptor* field : set) {
    if (is_forks || (is_layer && field->number() >= kForks)) continue;
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

// Leaves out the tops of an Input layer, and their shapes, that only a loss took.
void keep_inputs(LayerParameter& input, const std::set<std::string>& needed) {
  const LayerParameter all(input);
  const bool own_shapes = all.input_param().shape_size() > 1;
  input.clear_top();
  if (own_shapes) input.mutable_input_param()->clear_shape();
  for (int i = 0; i < all.top_size(); ++i) {
    if (!needed.contains(all.top(i))) continue;
    input.add_top(all.top(i));
    if (own_shapes && i < all.input_param().shape_size())
      *input.mutable_input_param()->add_shape() = all.input_param().shape(i);
  }
}

void set_batch(LayerParameter& input, std::int64_t batch) {
  if (batch <= 0) return;
  for (BlobShape& shape : *input.mutable_input_param()->mutable_shape())
    if (shape.dim_size()) shape.set_dim(0, batch);
}

// Returns the layers that lead to what is wanted, to which the blobs between are added. Throws
// ConfigError if no layer is left, or if what one takes is made in another state of the net alone.
NetParameter cut(Predictions& found, const NetParameter& whole, const NetParameter& net) {
  std::vector<const LayerParameter*> kept;  // last first
  for (int i = found.net.layer_size() - 1; i >= 0; --i) {
    const LayerParameter& layer = found.net.layer(i);
    if (std::ranges::none_of(layer.top(),
                             [&](const std::string& top) { return found.wanted.contains(top); }))
      continue;
    found.wanted.insert(layer.bottom().begin(), layer.bottom().end());
    kept.push_back(&layer);
  }
  NetParameter result;
  *result.mutable_state() = whole.state();
  for (auto layer = kept.rbegin(); layer != kept.rend(); ++layer) *result.add_layer() = **layer;
  insert_splits(result, net);  // checks that each bottom is made
  const auto computes = [](const LayerParameter& layer) {
    return !is_data(layer) && layer.type() != "Input";
  };
  if (std::ranges::none_of(result.layer(), computes))
    throw ConfigError(
        Code::kConfig, "net '", net.name(), "' predicts nothing in phase TEST: its ",
        whole.layer_size(),
        " layers there lead to no loss, no Accuracy and no output. Do rules (include, exclude, "
        "--stage, --level) leave out the layers that predict?");
  return result;
}

}  // namespace

NetParameter deploy_net(const NetParameter& net, const DeployOptions& options) {
  NetParameter whole(net);
  whole.mutable_state()->set_phase(TEST);
  whole.mutable_state()->set_level(options.level);
  for (const std::string& stage : options.stages) whole.mutable_state()->add_stage(stage);
  if (const std::string words = misspelt_stage(whole); !words.empty())
    throw ConfigError(Code::kConfig, words);
  whole = filter_net(whole);
  Predictions found = find_predictions(whole, net, options.auxiliary);
  const NetParameter kept = cut(found, whole, net);
  NetParameter result;
  if (net.has_name()) result.set_name(net.name());
  for (const LayerParameter& layer : kept.layer()) {
    LayerParameter* out = result.add_layer();
    *out = is_data(layer) ? input_layer(layer, found.wanted, options) : layer;
    if (layer.type() == "Input") {
      keep_inputs(*out, found.wanted);
      set_batch(*out, options.batch);
    }
    if (is_one_of(layer.type(), kNotInOpenCv))
      LOG(WARNING) << layer_place(layer) << ": OpenCV has no such layer";
    strip(*out);
  }
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
