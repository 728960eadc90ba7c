#include "shoal/net/build.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "shoal/base/log.h"
#include "shoal/layers/known_types.h"
#include "shoal/net/foreign_params.h"
#include "shoal/net/varying.h"
#include "shoal/proto/config_error.h"

namespace shoal {
namespace {

// Runs one step of building a layer. An error that does not name the layer gets its name and place
// put in front.
template <class Step>
void named(const Layer& layer, Step step) {
  try {
    step();
  } catch (const ConfigError& error) {
    if (error.error().message.find(str("layer '", layer.name(), "'")) != std::string::npos) throw;
    throw config_error(error.error().code, layer.param(), error.error().message);
  }
}

std::string shapes_of(Bottoms blobs) {
  std::string text;
  for (const Blob* blob : blobs)
    text += str(text.empty() ? "" : ", ", "'", blob->name, "' ", blob->shape().str());
  return text;
}

std::string in_brackets(const std::string& place) {
  return place.empty() ? "" : str(" (", place, ")");
}

std::string wanted_number(int low, int high) {
  if (low == high) return str("exactly ", low);
  return high == Arity::kAny ? str("at least ", low) : str(low, " to ", high);
}

ParamSpec spec_of(const LayerParameter& layer, int index) {
  return index < layer.param_size() ? layer.param(index) : ParamSpec();
}

}  // namespace

void NetBuilder::build() {
  try {
    check_layer_types(param_);
    for (const LayerParameter& layer : param_.layer()) add_layer(layer);
  } catch (const ConfigError& error) {
    throw ConfigError(error.error().code, net_.with_own_names(error.error().message));
  }
  for (const std::string& name : open_) net_.outputs_.push_back(latest_.at(name));
  find_gradients();
  const Varying varying = find_varying(net_);
  for (std::size_t i = 0; i < net_.layers_.size(); ++i) net_.wiring_[i].varies = varying.layers[i];
  for (Blob* output : net_.outputs_)
    if (!varying.blobs.contains(output))
      net_.outputs_of_one_size_.push_back(output);
    else
      LOG(INFO) << "output '" << output->name
                << "' varies in size from pass to pass, so its mean is not reported";
}

void NetBuilder::fuse() {
  find_fusions(param_, [this](const Fusion& fusion) { return fuse(fusion); });
}

bool NetBuilder::fuse(const Fusion& fusion) {
  using TakesOver = Layer::TakesOver;
  const auto& [maker, follower] = fusion;
  Net::Wiring &wires = net_.wiring_[follower], &own = net_.wiring_[maker];
  // The builder gave the follower a top of its own where the maker's numbers are still needed.
  const bool may = wires.tops[0] == wires.bottoms[0] && (wires.propagate[0] || !own.needs_backward);
  const TakesOver takes =
      may ? net_.layers_[maker]->take_over(net_.context_, *net_.layers_[follower],
                                           wires.needs_backward || own.needs_backward)
          : TakesOver::kNothing;
  if (takes == TakesOver::kNothing) return false;
  wires.fused_into = net_.layers_[maker].get();
  wires.forward = -1;
  if (takes != TakesOver::kBoth) return true;
  wires.backward = -1;
  if (net_.layers_[follower]->params().empty()) return true;
  wires.forward = wires.backward = maker;
  own.forward = own.backward = -1;
  return true;
}

void NetBuilder::add_layer(const LayerParameter& layer) {
  const int index = static_cast<int>(net_.layers_.size());
  net_.layers_.push_back(make_layer(layer));
  warn_of_foreign_params(layer);
  Net::Wiring& wires = net_.wiring_.emplace_back();
  wires.forward = wires.backward = index;
  connect_bottoms(index);
  connect_tops(index);
  check_arity(index);
  set_up(index);
  set_loss_weights(index);
  add_params(index);
}

void NetBuilder::connect_bottoms(int index) {
  const LayerParameter& layer = net_.layers_[index]->param();
  for (const std::string& name : layer.bottom()) {
    const auto found = latest_.find(name);
    CHECK(found != latest_.end()) << "insert_splits let the unknown bottom '" << name << "' pass";
    net_.wiring_[index].bottoms.push_back(found->second);
    open_.erase(name);
  }
}

void NetBuilder::connect_tops(int index) {
  const Layer& layer = *net_.layers_[index];
  Net::Wiring& wires = net_.wiring_[index];
  const auto make = [&](const std::string& name) {
    net_.blobs_.push_back(std::make_unique<Blob>(name));
    wires.tops.push_back(net_.blobs_.back().get());
    latest_[name] = net_.blobs_.back().get();
    open_.insert(name);
  };
  for (int i = 0; i < layer.param().top_size(); ++i) {
    const std::string& name = layer.param().top(i);
    const bool in_place = i < layer.param().bottom_size() && layer.param().bottom(i) == name;
    if (in_place && !layer.can_be_in_place())
      throw config_error(layer.param(), "top '", name, "' is also its bottom, and a ", layer.type(),
                         " layer does not work in place; give the top another name");
    if (in_place && may_overwrite(index, *wires.bottoms[i])) {
      wires.tops.push_back(wires.bottoms[i]);
      open_.insert(name);
    } else if (latest_.contains(name) && i < layer.param().bottom_size() &&
               layer.param().bottom(i).starts_with(name + "_") &&
               layer.param().bottom(i).find("_split_") != std::string::npos) {
      throw config_error(layer.param(), "top '", name,
                         "' is also its bottom, which another layer, "
                         "or the loss, reads too: it cannot be overwritten; give the top another "
                         "name");
    } else if (latest_.contains(name) && !in_place) {
      throw config_error(layer.param(), "top '", name,
                         "' is made by an earlier layer already; only a layer whose bottom ", i,
                         " has that name may use it again (in place)");
    } else {
      make(name);
    }
  }
  if (layer.makes_missing_top() && wires.tops.empty()) make(layer.name());
}

// A layer that is written in place gets a top of its own all the same where the old numbers are
// still wanted: by the backward of an earlier layer (the TanH below an in-place Dropout), or by
// another reader of the same bytes (behind a Split and a Flatten), the net's loss among them. BVLC
// Caffe overwrites them, and its gradients or values are then wrong.
bool NetBuilder::may_overwrite(int index, const Blob& blob) const {
  for (int i = 0; i < index; ++i) {
    const Layer& layer = *net_.layers_[i];
    const auto looks_there = [&](const Blob* other) { return other->data.shares_with(blob.data); };
    const auto views = std::ranges::count_if(net_.wiring_[i].tops, looks_there);
    for (std::size_t t = 0; t < net_.wiring_[i].tops.size(); ++t)
      if (layer.loss_weight(static_cast<int>(t)) != 0 && looks_there(net_.wiring_[i].tops[t]))
        return false;
    if (views > 1 || (views > 0 && layer.reads().top_data && net_.training())) return false;
  }
  return true;
}

void NetBuilder::check_arity(int index) const {
  const Layer& layer = *net_.layers_[index];
  const Arity arity = layer.arity();
  const int bottoms = static_cast<int>(net_.wiring_[index].bottoms.size()),
            tops = static_cast<int>(net_.wiring_[index].tops.size());
  if (bottoms < arity.min_bottoms || bottoms > arity.max_bottoms)
    throw config_error(layer.param(), "has ", bottoms, " bottoms; a ", layer.type(),
                       " layer takes ", wanted_number(arity.min_bottoms, arity.max_bottoms));
  if (tops < arity.min_tops || tops > arity.max_tops)
    throw config_error(layer.param(), "has ", tops, " tops; a ", layer.type(), " layer makes ",
                       wanted_number(arity.min_tops, arity.max_tops));
  if (arity.paired && bottoms != tops)
    throw config_error(layer.param(), "has ", bottoms, " bottoms and ", tops, " tops; a ",
                       layer.type(), " layer makes one top a bottom");
  const int propagate = layer.param().propagate_down_size();
  if (propagate != 0 && propagate != bottoms)
    throw config_error(layer.param(), "propagate_down is given ", propagate, " times for ", bottoms,
                       " bottoms; give none or one a bottom");
}

void reshape_layer(Layer& layer, Context& ctx, Bottoms bottoms, Tops tops) {
  named(layer, [&] { layer.reshape(ctx, bottoms, tops); });
  const auto is_empty = [](const Blob* blob) { return blob->data.count() == 0; };
  if (std::ranges::any_of(bottoms, is_empty)) return;  // no items were selected
  for (const Blob* top : tops)
    if (is_empty(top))
      throw config_error(layer.param(), "top '", top->name, "' has no elements: its shape is ",
                         top->shape().str(),
                         bottoms.empty() ? "" : "; bottoms: ", shapes_of(bottoms));
}

void NetBuilder::set_up(int index) {
  Layer& layer = *net_.layers_[index];
  const Net::Wiring& wires = net_.wiring_[index];
  named(layer, [&] {
    layer.setup(net_.context_, wires.bottoms, wires.tops);
    layer.load_own_blobs();
  });
  reshape_layer(layer, net_.context_, wires.bottoms, wires.tops);
}

void NetBuilder::set_loss_weights(int index) {
  Layer& layer = *net_.layers_[index];
  const int given = layer.param().loss_weight_size();
  const int tops = static_cast<int>(net_.wiring_[index].tops.size());
  if (given != 0 && given != tops)
    throw config_error(layer.param(), "loss_weight is given ", given, " times for ", tops,
                       " tops; give none or one a top");
  std::vector<float> weights;
  for (int i = 0; i < tops; ++i)
    weights.push_back(given > 0 ? layer.param().loss_weight(i) : layer.default_loss_weight(i));
  layer.set_loss_weights(weights);
}

void NetBuilder::add_params(int index) {
  Layer& layer = *net_.layers_[index];
  const int count = static_cast<int>(layer.params().size());
  if (layer.param().param_size() > count)
    throw config_error(layer.param(), "has ", layer.param().param_size(), " param {} for ", count,
                       " learned blobs");
  if (count > 0 && !learners_.emplace(layer.name(), &layer).second)
    throw config_error(layer.param(), "has the name of another layer with params",
                       in_brackets(learners_.at(layer.name())->param().origin()),
                       "; models and snapshots know layers by name: give one of them another");
  std::vector<bool> wanted;
  for (int i = 0; i < count; ++i) {
    const ParamSpec spec = spec_of(layer.param(), i);
    const bool learned = layer.default_lr_mult(i) != 0;  // if not, whatever a fork's file says
    const float lr_mult = learned && spec.has_lr_mult() ? spec.lr_mult() : layer.default_lr_mult(i);
    const float decay_mult = spec.has_decay_mult()                           ? spec.decay_mult()
                             : lr_mult == 0 && layer.default_lr_mult(i) == 0 ? 0
                                                                             : 1;
    wanted.push_back(lr_mult != 0);
    if (!spec.name().empty() && owners_.contains(spec.name())) {
      share_param(index, i, spec.name());
      wanted.back() = net_.net_params_[owners_[spec.name()]].lr_mult != 0;
      continue;
    }
    if (!spec.name().empty()) owners_[spec.name()] = net_.net_params_.size();
    net_.net_params_.push_back({layer.params()[i].get(), index, i, lr_mult, decay_mult});
  }
  layer.set_param_propagates(std::move(wanted));
}

void NetBuilder::share_param(int index, int param, const std::string& name) {
  const Layer& layer = *net_.layers_[index];
  NetParam& owner = net_.net_params_[owners_.at(name)];
  const Layer& owner_layer = *net_.layers_[owner.layer];
  Blob& blob = *layer.params()[param];
  const ParamSpec spec = spec_of(layer.param(), param),
                  owner_spec = spec_of(owner_layer.param(), owner.index);
  const bool strict = spec.share_mode() == ParamSpec::STRICT;
  if (strict ? blob.shape() != owner.blob->shape() : blob.data.count() != owner.blob->data.count())
    throw config_error(layer.param(), "param '", name, "' has shape ", blob.shape().str(),
                       ", but its owner, layer '", owner_layer.name(), "'",
                       in_brackets(owner_layer.param().origin()), ", has ",
                       owner.blob->shape().str(),
                       strict ? "; share_mode: PERMISSIVE compares counts only" : "");
  const auto agree = [&](const char* field, bool has, float value, bool owner_has,
                         float& owner_value) {
    if (has && owner_has && value != owner_value)
      throw config_error(layer.param(), "param '", name, "' has ", field, " ", value,
                         ", its owner, layer '", owner_layer.name(), "', has ", owner_value,
                         "; a shared param has one");
    if (has && !owner_has) owner_value = value;
  };
  agree("lr_mult", spec.has_lr_mult(), spec.lr_mult(), owner_spec.has_lr_mult(), owner.lr_mult);
  agree("decay_mult", spec.has_decay_mult(), spec.decay_mult(), owner_spec.has_decay_mult(),
        owner.decay_mult);
  blob.data.share(owner.blob->data);
  blob.grad.share(owner.blob->grad);
}

void NetBuilder::find_gradients() {
  for (int i = 0; i < static_cast<int>(net_.layers_.size()); ++i) want_gradients(i);
  drop_gradients_without_loss();
  if (net_.options_.forward_only)
    for (Net::Wiring& wires : net_.wiring_) {
      wires.needs_backward = false;
      wires.propagate.assign(wires.bottoms.size(), false);
    }
  find_missing_gradients();
}

// Finds, called for each layer in order, the bottoms whose gradients layers upstream need.
void NetBuilder::want_gradients(int index) {
  const Layer& layer = *net_.layers_[index];
  Net::Wiring& wires = net_.wiring_[index];
  const bool forced = param_.force_backward();
  for (int i = 0; i < static_cast<int>(layer.params().size()); ++i)
    wires.needs_backward |= layer.param_propagates(i);
  bool learned = wires.needs_backward;
  for (int i = 0; i < static_cast<int>(wires.bottoms.size()); ++i) {
    const Blob* const bottom = wires.bottoms[i];
    const bool needed = wanted_.contains(bottom) && !without_.contains(bottom);
    const bool explicit_choice = layer.param().propagate_down_size() > 0;
    const bool wanted =
        explicit_choice ? layer.param().propagate_down(i) : forced || wanted_.contains(bottom);
    if (explicit_choice && wanted && layer.propagates(i) != Propagates::kYes)
      throw config_error(layer.param(), "propagate_down is true for bottom '", bottom->name,
                         "', to which a ", layer.type(), " layer has no gradient");
    // force_backward does not reach where there is no gradient; a gradient that is needed and
    // refused is an error found below.
    wires.propagate.push_back(wanted && (layer.propagates(i) == Propagates::kYes || needed));
    wires.needs_backward |= wanted;
    learned |= explicit_choice ? wanted : needed;
  }
  for (Blob* top : wires.tops) {
    if (!learned || layer.does_without_gradients())
      without_.insert(top);
    else
      without_.erase(top);
    if (wires.needs_backward)
      wanted_.insert(top);
    else
      wanted_.erase(top);
  }
}

// Walks back through the net: no gradient flows where no loss depends on the blob, unless
// force_backward says so.
void NetBuilder::drop_gradients_without_loss() {
  std::set<const Blob*> under_loss;
  for (int i = static_cast<int>(net_.layers_.size()) - 1; i >= 0; --i) {
    const Layer& layer = *net_.layers_[i];
    Net::Wiring& wires = net_.wiring_[i];
    bool contributes = param_.force_backward();
    for (std::size_t t = 0; t < wires.tops.size(); ++t)
      contributes |=
          layer.loss_weight(static_cast<int>(t)) != 0 || under_loss.contains(wires.tops[t]);
    if (!contributes) wires.needs_backward = false;
    for (std::size_t b = 0; b < wires.bottoms.size(); ++b) {
      wires.propagate[b] = wires.propagate[b] && wires.needs_backward;
      if (wires.propagate[b] && layer.propagates(static_cast<int>(b)) == Propagates::kRefuses)
        throw config_error(
            layer.param(), "bottom '", wires.bottoms[b]->name,
            "' needs a gradient, because layers that learn make it, and a ", layer.type(),
            " layer has none for it; say propagate_down: false for it if that is meant");
      if (layer.propagates(static_cast<int>(b)) == Propagates::kNothing) wires.propagate[b] = false;
    }
    // An in-place layer's top and bottom are one blob: below it, what counts is the bottom.
    for (Blob* top : wires.tops) under_loss.erase(top);
    for (std::size_t b = 0; b < wires.bottoms.size(); ++b)
      if (wires.propagate[b]) under_loss.insert(wires.bottoms[b]);
  }
}

// Marks the tops whose gradient backward will read although no layer writes it.
void NetBuilder::find_missing_gradients() {
  std::set<const Blob*> written;
  for (int i = static_cast<int>(net_.layers_.size()) - 1; i >= 0; --i) {
    Net::Wiring& wires = net_.wiring_[i];
    for (std::size_t t = 0; t < wires.tops.size(); ++t)
      wires.missing.push_back(!net_.options_.interactive && wires.needs_backward &&
                              net_.layers_[i]->loss_weight(static_cast<int>(t)) == 0 &&
                              !written.contains(wires.tops[t]));
    for (const Blob* top : wires.tops) written.erase(top);
    for (std::size_t b = 0; b < wires.bottoms.size(); ++b)
      if (wires.propagate[b]) written.insert(wires.bottoms[b]);
    if (net_.layers_[i]->skips_missing_gradients())
      net_.layers_[i]->set_missing_gradients(wires.missing);
  }
}

}  // namespace shoal
