// Copies, shares and writes the params of a net, by layer name as in Caffe.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/layers/blob_proto.h"
#include "shoal/net/net.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/net.pb.h"

namespace shoal {
namespace {

void copy_param(const Layer& layer, int index, const BlobProto& from, const LayerParameter& source,
                const std::string& file) {
  Blob& blob = *layer.params()[static_cast<std::size_t>(index)];
  if (!same_shape(from, blob.shape()))
    throw config_error(layer.param(), "param ", index, " has shape ", blob.shape().str(),
                       ", but layer '", source.name(), "' in ", file, " holds ",
                       shape_of(from).str(),
                       ". Is num_output, kernel_size or the input another than when ", file,
                       " was trained? To start this layer afresh, give it another name");
  if (number_count(from) != blob.data.count())
    throw config_error(layer.param(), "param ", index, " of layer '", source.name(), "' in ", file,
                       " has ", number_count(from), " numbers for the shape ", blob.shape().str(),
                       "; the file is damaged");
  copy_numbers(from, blob.data);
}

// An HDF5 file has a shared param at its owner alone.
bool left_out(const LayerParameter& source, int index) {
  if (index >= source.blobs_size()) return true;
  return !source.blobs(index).has_shape() && number_count(source.blobs(index)) == 0;
}

// Returns whether the source holds all params that the layer owns, and no more than it has.
bool fits(const Net& net, const Layer& layer, const LayerParameter& source) {
  const auto lacks = [&](const NetParam& own) {
    return net.layers()[static_cast<std::size_t>(own.layer)].get() == &layer &&
           left_out(source, own.index);
  };
  return source.blobs_size() <= static_cast<int>(layer.params().size()) &&
         std::ranges::none_of(net.params(), lacks);
}

}  // namespace

std::vector<std::string> Net::copy_weights(const NetParameter& from, const std::string& file) {
  std::map<std::string, const LayerParameter*> sources;
  for (const LayerParameter& layer : from.layer())
    if (layer.blobs_size() > 0) sources.emplace(layer.name(), &layer);
  std::vector<std::string> kept;
  int copied = 0;
  for (const auto& layer : layers_) {
    if (layer->params().empty()) continue;
    const auto found = sources.find(layer->name());
    if (found == sources.end()) {
      kept.push_back(layer->name());
      continue;
    }
    const LayerParameter& source = *found->second;
    if (!fits(*this, *layer, source))
      throw config_error(layer->param(), "has ", layer->params().size(), " params, but layer '",
                         source.name(), "' in ", file, " holds ", source.blobs_size(),
                         " (bias_term may differ)");
    for (int i = 0; i < source.blobs_size(); ++i)
      if (!left_out(source, i)) copy_param(*layer, i, source.blobs(i), source, file);
    sources.erase(found);
    ++copied;
  }
  for (const auto& [name, layer] : sources)
    LOG(INFO) << "Ignoring source layer " << name << " of " << file;
  if (!kept.empty())
    LOG(INFO) << file << " holds nothing for layers " << join(kept)
              << ": they keep their present values";
  if (copied == 0)
    LOG(WARNING) << file << " shares no layer name with net " << name() << ": nothing was copied";
  return kept;
}

namespace {

using NamedParams = std::map<std::string, const Blob*>;

// Calls f(name, blob) for each param of the layer that the prototxt names.
template <class F>
void for_each_named(const Layer& layer, F f) {
  const int count = std::min(layer.param().param_size(), static_cast<int>(layer.params().size()));
  for (int i = 0; i < count; ++i)
    if (const std::string& name = layer.param().param(i).name(); !name.empty())
      f(name, *layer.params()[static_cast<std::size_t>(i)]);
}

// Makes the layer look at the params of one of its name.
void share_params(const Layer& layer, const Layer& source, const std::string& net) {
  const auto &own = layer.params(), &theirs = source.params();
  if (theirs.size() != own.size())
    throw config_error(layer.param(), "has ", own.size(), " params here and ", theirs.size(),
                       " in net ", net);
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    if (own[i]->shape() != theirs[i]->shape())
      throw config_error(layer.param(), "param ", i, " has shape ", own[i]->shape().str(),
                         " in this phase and ", theirs[i]->shape().str(), " in the other (",
                         layer_place(source.param()), ")");
    own[i]->data.share(theirs[i]->data);
  }
}

// Makes the layer look at the params that have the names of its own. Returns whether one of its
// params has no name that the other net knows.
bool lacks_named(const Layer& layer, const NamedParams& named) {
  std::size_t found = 0;
  for_each_named(layer, [&](const std::string& name, Blob& blob) {
    const auto source = named.find(name);
    if (source == named.end()) return;
    if (source->second->data.count() != blob.data.count())
      throw config_error(layer.param(), "param '", name, "' has shape ", blob.shape().str(),
                         " in this phase and ", source->second->shape().str(), " in the other");
    blob.data.share(source->second->data);
    ++found;
  });
  return found < layer.params().size();
}

}  // namespace

void Net::share_weights(const Net& other) {
  std::map<std::string, const Layer*> sources;
  NamedParams named;
  for (const auto& layer : other.layers_) {
    sources.emplace(layer->name(), layer.get());
    for_each_named(*layer,
                   [&](const std::string& name, Blob& blob) { named.emplace(name, &blob); });
  }
  std::vector<const Layer*> alone;  // the other net has no layer of their name
  for (const auto& layer : layers_) {
    if (layer->params().empty()) continue;
    const auto found = sources.find(layer->name());
    if (found == sources.end()) {
      alone.push_back(layer.get());
      continue;
    }
    share_params(*layer, *found->second, other.name());
    for_each_named(*layer,
                   [&](const std::string& name, Blob& blob) { named.emplace(name, &blob); });
  }
  std::vector<std::string> untrained;
  for (const Layer* layer : alone)
    if (lacks_named(*layer, named)) untrained.push_back("'" + layer->name() + "'");
  if (!untrained.empty())
    LOG(WARNING) << "net '" << name() << "' has layers with params that net '" << other.name()
                 << "' does not train, " << join(untrained)
                 << ": they keep what --weights or their fillers give them. Are they misspelt?";
}

// Leaves out gradients that several layers add to, or of a layer that a pass leaves out as it
// varies.
void Net::overwrite_gradients(const std::vector<bool>& layers) {
  for (NetParam& param : net_params_) {
    int users = 0;
    for (const auto& layer : layers_)
      for (const auto& own : layer->params())
        users += own->grad.shares_with(param.blob->grad) ? 1 : 0;
    const auto at = static_cast<std::size_t>(param.layer);
    param.overwritten = layers[at] && users == 1 && !varies(param.layer) &&
                        layers_[at]->overwrite_gradient(context_, param.index);
  }
}

NetParameter Net::to_proto(bool with_gradients) const {
  NetParameter proto(*definition_);
  int next = 0;  // splits stand between the layers of the definition
  for (const auto& layer : layers_) {
    if (next == proto.layer_size()) break;
    LayerParameter* out = proto.mutable_layer(next);
    if (out->name() != layer->name() || out->type() != layer->type()) continue;
    ++next;
    for (const auto& param : layer->params()) {
      BlobProto* blob = out->add_blobs();
      put_tensor(param->data, *blob);
      if (with_gradients) {
        const std::span<const float> grad = param->grad.host();
        blob->mutable_diff()->Add(grad.begin(), grad.end());
      }
    }
  }
  return proto;
}

}  // namespace shoal
