// Implements the base class of layers and makes layers by type.
#include "shoal/layers/layer.h"

#include <algorithm>
#include <atomic>

#include "shoal/layers/blob_proto.h"
#include "shoal/layers/filler.h"
#include "shoal/layers/known_types.h"
#include "shoal/ops/op.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

#define LAYER(Name) std::unique_ptr<Layer> make_##Name(const LayerParameter&);
namespace shoal {
#include "shoal/layers/layers.def"
}
#undef LAYER

namespace shoal {
namespace {

struct LayerEntry {
  const char* type;
  std::unique_ptr<Layer> (*make)(const LayerParameter&);
};

#define LAYER(Name) {#Name, make_##Name},
constexpr LayerEntry kLayers[] = {
#include "shoal/layers/layers.def"
};
#undef LAYER

constexpr const char* kPython = "Python";
// A process has one interpreter.
std::atomic<PythonLayers> make_python{nullptr};

}  // namespace

void set_python_layers(PythonLayers make) { make_python = make; }

Layer::Layer(const LayerParameter& param) : param_(std::make_unique<LayerParameter>(param)) {}
Layer::~Layer() = default;

const std::string& Layer::name() const { return param_->name(); }
const std::string& Layer::type() const { return param_->type(); }
bool Layer::training() const { return param_->phase() == TRAIN; }
std::vector<ops::Choice> Layer::choices() const { return {}; }

Blob& Layer::add_param(Context& ctx, const Shape& shape, const FillerParameter& filler) {
  Blob& blob = add_constant_param(shape, 0);
  Random random = ctx.common().fork(str("param ", params_.size() - 1, " of ", name()));
  try {
    fill(filler, random, blob.data);
  } catch (const ConfigError& error) {
    throw config_error(param(), error.what());
  }
  return blob;
}

Blob& Layer::add_constant_param(const Shape& shape, float value) {
  params_.push_back(std::make_unique<Blob>(str(name(), "[", params_.size(), "]")));
  Blob& blob = *params_.back();
  blob.reshape(shape);
  std::ranges::fill(blob.data.host_out(), value);
  return blob;
}

int Layer::axis_of(const Shape& shape, int axis, const char* field) const {
  if (!shape.has_axis(axis))
    throw config_error(param(), field, " is ", axis, ", but the bottom's shape ", shape.str(),
                       " has ", shape.axes(), " axes");
  return shape.canonical(axis);
}

void Layer::load_own_blobs() {
  if (param_->blobs_size() == 0) return;
  if (param_->blobs_size() != static_cast<int>(params_.size()))
    throw config_error(param(), "blobs {} is given ", param_->blobs_size(),
                       " times; this layer has ", params_.size(), " params");
  for (std::size_t i = 0; i < params_.size(); ++i) {
    const BlobProto& blob = param_->blobs(static_cast<int>(i));
    const Shape& want = params_[i]->shape();
    if (shape_of(blob).count() != want.count() || number_count(blob) != want.count())
      throw config_error(param(), "param ", i, " has shape ", want.str(),
                         "; blobs {} gives the shape ", shape_of(blob).str(), " and ",
                         number_count(blob), " numbers");
    copy_numbers(blob, params_[i]->data);
  }
  param_->clear_blobs();
}

std::vector<std::string> layer_types() {
  std::vector<std::string> types;
  for (const LayerEntry& entry : kLayers) types.emplace_back(entry.type);
  if (make_python != nullptr) types.emplace_back(kPython);
  std::ranges::sort(types);
  return types;
}

std::unique_ptr<Layer> make_layer(const LayerParameter& param) {
  for (const LayerEntry& entry : kLayers)
    if (param.type() == entry.type) return entry.make(param);
  const PythonLayers python = make_python;
  if (python != nullptr && param.type() == kPython) return python(param);
  throw config_error(param, why_unknown(param.type()));
}

}  // namespace shoal
