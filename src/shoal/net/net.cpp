#include "shoal/net/net.h"

#include <algorithm>
#include <utility>

#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/net/build.h"
#include "shoal/net/forward_state.h"
#include "shoal/net/graph.h"
#include "shoal/net/passes.h"
#include "shoal/net/varying.h"
#include "shoal/ops/tuning.h"
#include "shoal/ops/vector.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/net.pb.h"

namespace shoal {

namespace {

// Layers of type Python work on blobs as a caller does.
NetOptions effective(NetOptions options, const NetParameter& net) {
  const auto is_python = [](const LayerParameter& layer) { return layer.type() == "Python"; };
  options.interactive = options.interactive || std::ranges::any_of(net.layer(), is_python);
  options.share_memory = options.share_memory && !options.interactive;
  options.fuse = options.fuse && !options.interactive;
  return options;
}

}  // namespace

Net::Net(const NetParameter& param, Context& context, const NetOptions& options)
    : context_(context),
      options_(effective(options, param)),
      definition_(std::make_unique<NetParameter>(filter_net(param))) {
  if (const std::string words = misspelt_stage(param); !words.empty()) LOG(WARNING) << words;
  if (definition_->layer_size() == 0)
    throw ConfigError(Code::kConfig, "net '", param.name(), "' has no layer in phase ",
                      Phase_Name(param.state().phase()));
  const NetParameter with_splits = insert_splits(*definition_, param);
  NetBuilder builder(*this, with_splits);
  builder.build();
  if (options_.fuse && !definition_->debug_info()) builder.fuse();
  for (LayerParameter& layer : *definition_->mutable_layer()) layer.clear_blobs();
  for (const std::string& name : options_.keep)
    if (blob(name) == nullptr)
      throw ConfigError(Code::kConfig, "net '", this->name(), "' has no blob '", name, "'",
                        known_words(name, blob_names()));
  if (context.tuning()) tune_kernels(*context.tuning());
  plan_blobs();
  passes_ = std::make_unique<Passes>(*this);
  for (int i = 0; options_.interactive && i < std::ssize(layers_); ++i) {
    fill_loss_gradients(i);
    note_shapes(i, false);
  }
}

Net::~Net() = default;

const std::string& Net::name() const { return definition_->name(); }
bool Net::training() const { return definition_->state().phase() == TRAIN; }
const NetParameter& Net::definition() const { return *definition_; }
Bottoms Net::bottoms(int layer) const { return wiring_[static_cast<std::size_t>(layer)].bottoms; }
Tops Net::tops(int layer) const { return wiring_[static_cast<std::size_t>(layer)].tops; }
bool Net::needs_backward(int layer) const {
  return wiring_[static_cast<std::size_t>(layer)].needs_backward;
}
bool Net::varies(int layer) const { return wiring_[static_cast<std::size_t>(layer)].varies; }
const Layer* Net::fused_into(int layer) const {
  return wiring_[static_cast<std::size_t>(layer)].fused_into;
}

Blob* Net::blob(const std::string& name) const {
  const auto found = std::find_if(blobs_.rbegin(), blobs_.rend(),
                                  [&](const auto& blob) { return blob->name == name; });
  return found == blobs_.rend() ? nullptr : found->get();
}

std::vector<std::string> Net::blob_names() const {
  std::vector<std::string> names;
  for (const auto& entry : blobs_)
    if (blob(entry->name) == entry.get()) names.push_back(entry->name);
  return names;
}

float Net::loss_weight(const Blob& top) const {
  for (std::size_t i = 0; i < layers_.size(); ++i)
    for (std::size_t t = 0; t < wiring_[i].tops.size(); ++t)
      if (const float weight = layers_[i]->loss_weight(static_cast<int>(t));
          wiring_[i].tops[t] == &top && weight != 0)
        return weight;
  return 0;
}

// Returns the record behind an item of the blob, which a layer before `layer` made, or "". Layers
// that bring no records are followed to their bottoms, as far as the items stay the same.
std::string Net::record_behind(const Blob& blob, int layer, std::int64_t item) const {
  for (int i = layer - 1; i >= 0; --i) {
    const Wiring& wires = wiring_[static_cast<std::size_t>(i)];
    if (std::ranges::count(wires.tops, &blob) == 0) continue;
    if (wires.bottoms.empty()) return layers_[static_cast<std::size_t>(i)]->record_name(item);
    for (const Blob* bottom : wires.bottoms) {
      const bool same_items = blob.shape().axes() > 0 && bottom->shape().axes() > 0 &&
                              bottom->shape()[0] == blob.shape()[0];
      if (!same_items) continue;
      if (const std::string record = record_behind(*bottom, i, item); !record.empty())
        return record;
    }
    if (std::ranges::count(wires.bottoms, &blob) == 0) return "";
  }
  return "";
}

Status Net::failure_of(int layer) {
  std::optional<Failure> failure = context_.take_failure();
  if (!failure) return {};
  const auto& wires = wiring_[static_cast<std::size_t>(layer)];
  const Layer& failed = *layers_[static_cast<std::size_t>(layer)];
  std::string record;
  if (failure->item >= 0 && wires.bottoms.empty()) record = failed.record_name(failure->item);
  // The sentence names the bottom that is to blame first.
  const auto place = [&](const Blob* bottom) {
    return failure->error.message.find(str("'", bottom->name, "'"));
  };
  if (failure->item >= 0 && !wires.bottoms.empty())
    record =
        record_behind(**std::ranges::min_element(wires.bottoms, {}, place), layer, failure->item);
  const std::string where = record.empty() ? "" : str("; record ", record);
  return Error{failure->error.code, with_own_names(str(layer_place(failed.param()), ": ",
                                                       failure->error.message, where))};
}

std::string Net::with_own_names(std::string sentence) const {
  for (const auto& layer : layers_) {
    if (!is_inserted_split(layer->param())) continue;
    const std::string own = str("'", layer->param().bottom(0), "'");
    for (const std::string& top : layer->param().top()) {
      const std::string quoted = str("'", top, "'");
      for (std::size_t at = 0; (at = sentence.find(quoted, at)) != std::string::npos;
           at += own.size())
        sentence.replace(at, quoted.size(), own);
    }
  }
  return sentence;
}

void Net::each_loss(const LossVisit& visit) const {
  for (std::size_t i = 0; i < layers_.size(); ++i) each_loss_of(static_cast<int>(i), visit);
}

void Net::each_loss_of(int layer, const LossVisit& visit) const {
  const Tops all = tops(layer);
  for (std::size_t t = 0; t < all.size(); ++t)
    if (const float weight =
            layers_[static_cast<std::size_t>(layer)]->loss_weight(static_cast<int>(t));
        weight != 0)
      visit(all[t]->data, weight);
}

float Net::loss() const {
  float loss = 0;
  each_loss([&](const Tensor& top, float weight) {
    for (const float value : top.host()) loss += weight * value;
  });
  return loss;
}

void Net::tune_kernels(ops::ConvTuning& tuning) {
  if (!context_.device().is_host())
    throw ConfigError(Code::kUsage,
                      "--tune chooses among the CPU's convolutions; on a GPU the fastest ones are "
                      "found without it");
  if (context_.deterministic())
    throw ConfigError(Code::kUsage,
                      "--tune chooses kernels by measured times, and deterministic: true allows no "
                      "such choice; leave one of them out");
  const int measured = tuning.measured();
  const double seconds = tuning.seconds();
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Wiring& wires = wiring_[i];
    layers_[i]->tune(context_,
                     {.to_bottoms = std::ranges::count(wires.propagate, true) > 0,
                      .to_params = wires.needs_backward && !layers_[i]->params().empty() &&
                                   layers_[i]->param_propagates(0)});
  }
  if (tuning.measured() > measured)
    LOG(INFO) << "Net '" << name() << "': measured the kernels of " << tuning.measured() - measured
              << " convolution shapes in " << tuning.seconds() - seconds << " s";
}

// Lets data layers say what the next batch looks like. What a caller put into inputs is still there
// afterwards.
Status Net::follow_inputs() {
  bool changed = false;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (!wiring_[i].bottoms.empty()) continue;
    changed |= layers_[i]->follow_input(context_, wiring_[i].tops);
    if (context_.failed()) return failure_of(static_cast<int>(i));
  }
  if (!changed) return {};
  std::vector<std::pair<Blob*, std::vector<float>>> filled;
  std::string records;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (layers_[i]->keeps_tops())
      for (Blob* top : wiring_[i].tops)
        filled.emplace_back(top,
                            std::vector<float>(top->data.host().begin(), top->data.host().end()));
    if (const std::string record = layers_[i]->record_name(0); !record.empty())
      records += str("; record ", record);
  }
  try {
    reshape();
  } catch (const ConfigError& error) {
    return Error{error.error().code, str(error.what(), records)};
  }
  for (const auto& [top, numbers] : filled)
    std::ranges::copy(numbers, top->data.host_out().begin());
  return {};
}

Result<float> Net::forward() {
  if (Status status = run_forward(); !status.ok()) return status.error();
  return loss();
}

Status Net::run_forward() {
  if (Status status = follow_inputs(); !status.ok()) return status;
  pass_start_ = context_.random().state();
  may_record_ = context_.recordings() && !options_.interactive && !after_forward_ &&
                (!before_forward_ || together_before_forward_ > 0);
  const bool was_recorded = passes_->forward.is_recorded();
  const Status status = passes_->forward.run(may_record_);
  // The numbers that forward left for backward may be in another order now.
  if (was_recorded && !passes_->forward.is_recorded()) passes_->backward.forget();
  if (status.ok()) each_loss([](const Tensor& top, float) { top.begin_download(); });
  return status;
}

// Gives the tops of a layer that varies their shapes of this pass.
Status Net::size_tops(int i) {
  const Wiring& wires = wiring_[static_cast<std::size_t>(i)];
  if (!wires.varies) return {};
  Layer& layer = *layers_[static_cast<std::size_t>(i)];
  try {
    reshape_layer(layer, context_, wires.bottoms, wires.tops);
  } catch (const ConfigError& error) {
    return Error{error.error().code, with_own_names(error.what())};
  }
  layer.size_tops(context_, wires.bottoms, wires.tops);
  return {};
}

void Net::forward_at(int i) {
  const int called = wiring_[static_cast<std::size_t>(i)].forward;
  if (called < 0) return;
  const Wiring& wires = wiring_[static_cast<std::size_t>(called)];
  if (wires.varies && !has_work(*this, called)) {
    for (Blob* top : wires.tops)
      if (top->data.count() > 0) ops::fill(context_, 0, top->data);
    return;
  }
  const LentScratch lent(context_, wiring_[static_cast<std::size_t>(i)].forward_scratch);
  layers_[static_cast<std::size_t>(called)]->forward(context_, wires.bottoms, wires.tops);
}

void Net::backward_of(int i) {
  const Wiring& wires = wiring_[static_cast<std::size_t>(i)];
  if (!wires.varies || has_work(*this, i))
    return layers_[static_cast<std::size_t>(i)]->backward(context_, wires.tops, wires.propagate,
                                                          wires.bottoms);
  for (std::size_t b = 0; b < wires.bottoms.size(); ++b)
    if (wires.propagate[b] && wires.bottoms[b]->data.count() > 0)
      ops::fill(context_, 0, wires.bottoms[b]->grad);
}

// Fills the tops' gradients that no layer writes: the loss weight as it is scaled, or zeros.
void Net::prepare_gradients(int i) {
  Wiring& wires = wiring_[static_cast<std::size_t>(i)];
  const Layer& layer = *layers_[static_cast<std::size_t>(i)];
  if (options_.interactive && layer.gradient_scale() == 1) return;  // they are the caller's
  for (std::size_t t = 0; t < wires.tops.size(); ++t) {
    const float weight = layer.loss_gradient(static_cast<int>(t));
    if (weight != 0 || (wires.missing[t] && !layer.skips_missing_gradients()))
      ops::fill(context_, weight, wires.tops[t]->grad);
  }
}

Status Net::backward() {
  CHECK(!options_.forward_only) << "net '" << name() << "' was built without a backward pass";
  const bool together = !before_backward_ && (!after_backward_ || together_after_backward_ > 0);
  return passes_->backward.run(may_record_ && together);
}

RecordedWork Net::recorded_forward() const { return passes_->forward.summary(); }
RecordedWork Net::recorded_backward() const { return passes_->backward.summary(); }

void Net::clear_gradients() {
  std::vector<Tensor*> gradients;
  for (const NetParam& param : net_params_)
    if (!param.overwritten) gradients.push_back(&param.blob->grad);
  ops::fill_all(context_, 0, gradients);
}

void Net::reshape() {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    reshape_layer(*layers_[i], context_, wiring_[i].bottoms, wiring_[i].tops);
    if (options_.interactive) fill_loss_gradients(static_cast<int>(i));
    note_shapes(static_cast<int>(i), false);
  }
  plan_blobs();
  passes_->forward.forget();
  passes_->backward.forget();
}

std::string Net::find_non_finite() {
  const auto is_finite = [this](const Tensor& tensor) {
    const Tensor* const one[] = {&tensor};
    return ops::all_finite(context_, one);
  };
  for (const NetParam& param : net_params_)
    // Running sums follow what came in, and are not to blame.
    if (layers_[static_cast<std::size_t>(param.layer)]->default_lr_mult(param.index) != 0 &&
        !is_finite(param.blob->data))
      return str(layer_place(layers_[static_cast<std::size_t>(param.layer)]->param()), ": param ",
                 param.index, " is not finite");
  const Random::State now = context_.random().state();
  ForwardState state;
  state.save(*this);
  context_.random() = Random(pass_start_);
  may_record_ = false;  // backward follows what the layers do here
  std::string found;
  for (std::size_t i = 0; i < layers_.size() && found.empty(); ++i) {
    if (wiring_[i].forward < 0) continue;  // its top is made later, or was made already
    if (!size_tops(static_cast<int>(i)).ok()) break;
    if (!wiring_[i].bottoms.empty()) forward_at(static_cast<int>(i));
    if (context_.take_failure()) break;
    for (const Blob* top : wiring_[i].tops)
      if (found.empty() && !is_finite(top->data))
        found = with_own_names(
            str(layer_place(layers_[i]->param()), ": top '", top->name, "' is not finite"));
  }
  context_.random() = Random(now);
  state.restore(*this);
  for (const NetParam& param : net_params_)
    if (found.empty() && !is_finite(param.blob->grad))
      found = str(layer_place(layers_[static_cast<std::size_t>(param.layer)]->param()),
                  ": the gradient of param ", param.index, " is not finite");
  return found;
}

}  // namespace shoal
