#include "shoal/net/net.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/net/blob_layouts.h"
#include "shoal/net/build.h"
#include "shoal/net/forward_state.h"
#include "shoal/net/graph.h"
#include "shoal/net/memory_plan.h"
#include "shoal/net/passes.h"
#include "shoal/net/varying.h"
#include "shoal/ops/op.h"
#include "shoal/ops/vector.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/net.pb.h"

namespace shoal {

Net::Net(const NetParameter& param, Context& context, const NetOptions& options)
    : context_(context),
      options_(options),
      definition_(std::make_unique<NetParameter>(filter_net(param))) {
  if (const std::string words = misspelt_stage(param); !words.empty()) LOG(WARNING) << words;
  if (definition_->layer_size() == 0)
    throw ConfigError(Code::kConfig, "net '", param.name(), "' has no layer in phase ",
                      Phase_Name(param.state().phase()));
  const NetParameter with_splits = insert_splits(*definition_, param);
  NetBuilder builder(*this, with_splits);
  builder.build();
  if (options.fuse && !definition_->debug_info()) builder.fuse();
  for (LayerParameter& layer : *definition_->mutable_layer()) layer.clear_blobs();
  for (const std::string& name : options_.keep)
    if (blob(name) == nullptr)
      throw ConfigError(Code::kConfig, "net '", this->name(), "' has no blob '", name, "'",
                        known_words(name, blob_names()));
  plan_blobs();
  passes_ = std::make_unique<Passes>(*this);
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

Status Net::failure_of(int layer) {
  std::optional<Failure> failure = context_.take_failure();
  if (!failure) return {};
  std::string where;
  for (std::size_t i = 0; failure->item >= 0 && where.empty() && i < layers_.size(); ++i)
    if (const std::string record = layers_[i]->record_name(failure->item); !record.empty())
      where = str("; record ", record);
  const std::string place = layer_place(layers_[static_cast<std::size_t>(layer)]->param());
  return Error{failure->error.code,
               with_own_names(str(place, ": ", failure->error.message, where))};
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

void Net::each_loss(const std::function<void(const Tensor&, float weight)>& visit) const {
  for (std::size_t i = 0; i < layers_.size(); ++i)
    for (std::size_t t = 0; t < wiring_[i].tops.size(); ++t)
      if (const float weight = layers_[i]->loss_weight(static_cast<int>(t)); weight != 0)
        visit(wiring_[i].tops[t]->data, weight);
}

float Net::loss() const {
  float loss = 0;
  each_loss([&](const Tensor& top, float weight) {
    for (const float value : top.host()) loss += weight * value;
  });
  return loss;
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
  may_record_ = context_.recordings() && !after_forward_ &&
                (!before_forward_ || together_before_forward_ > 0);
  const bool was_recorded = passes_->forward.is_recorded();
  const Status status = passes_->forward.run(may_record_);
  // what forward left for backward may be in another order now
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
  for (std::size_t i = 0; i < layers_.size(); ++i)
    reshape_layer(*layers_[i], context_, wiring_[i].bottoms, wiring_[i].tops);
  plan_blobs();
  passes_->forward.forget();
  passes_->backward.forget();
}

void Net::keep_blobs(const std::function<void(const Blob&)>& keep) const {
  for (const Blob* output : outputs_) keep(*output);
  for (const std::string& name : options_.keep) keep(*blob(name));
  // in training, inputs stay for find_non_finite
  for (std::size_t i = 0; i < layers_.size(); ++i)
    if (layers_[i]->keeps_tops() || (training() && wiring_[i].bottoms.empty()))
      for (const Blob* top : wiring_[i].tops) keep(*top);
}

std::int64_t Net::workspace_of(int layer, Workspace of) const {
  std::int64_t most = 0;
  if (layer >= 0)
    for (const ops::Choice& choice : layers_[static_cast<std::size_t>(layer)]->choices())
      most = std::max(most, of == Workspace::kForward
                                ? choice.needs.workspace
                                : choice.needs.backward_workspace.value_or(choice.needs.workspace));
  return most;
}

// Calls use(tensor, step) for each step at which a tensor of the blobs must have its memory. Steps:
// forward of layer i is step i, its backward step 2n - 1 - i; step 2n is after the pass.
void Net::each_use(const std::function<void(const Tensor&, int step)>& use) const {
  const int n = static_cast<int>(layers_.size());
  // what layer i uses when it is layer `turn`'s turn
  const auto use_at = [&](int i, int turn) {
    const Wiring& wires = wiring_[static_cast<std::size_t>(i)];
    const Layer::Reads reads = layers_[static_cast<std::size_t>(i)]->reads();
    const int back = 2 * n - 1 - turn;
    for (const Blob* blob : wires.bottoms) use(blob->data, turn);
    for (std::size_t t = 0; t < wires.tops.size(); ++t) {
      const float weight = layers_[static_cast<std::size_t>(i)]->loss_weight(static_cast<int>(t));
      use(wires.tops[t]->data, turn);
      if (weight != 0) use(wires.tops[t]->data, 2 * n);  // for loss()
    }
    // one that takes another's work over may be called backward for the other's params alone
    if (!wires.needs_backward && !wiring_[static_cast<std::size_t>(turn)].needs_backward) return;
    for (const Blob* blob : wires.tops) use(blob->grad, back);
    for (std::size_t b = 0; b < wires.bottoms.size(); ++b)
      if (wires.propagate[b]) use(wires.bottoms[b]->grad, back);
    if (reads.bottom_data)
      for (const Blob* blob : wires.bottoms) use(blob->data, back);
    if (reads.top_data)
      for (const Blob* blob : wires.tops) use(blob->data, back);
  };
  for (int i = 0; i < n; ++i) {
    use_at(i, i);
    if (const int called = wiring_[static_cast<std::size_t>(i)].forward; called >= 0)
      use_at(called, i);
  }
  keep_blobs([&](const Blob& blob) { use(blob.data, 0), use(blob.data, 2 * n); });
}

void Net::plan_blobs() {
  std::vector<Storage*> storages;
  std::vector<Lifetime> lifetimes;
  std::unordered_map<const Storage*, std::size_t> index;
  std::unordered_set<const Storage*> brought;
  for (std::size_t i = 0; i < layers_.size(); ++i)
    if (layers_[i]->brings_memory())
      for (const Blob* top : wiring_[i].tops) brought.insert(top->data.storage().get());
  const BlobLayouts layouts = layouts_of(*this);
  const auto touch = [&](const Tensor& tensor, int step) {
    Storage* storage = tensor.storage().get();
    if (brought.contains(storage)) return;
    const auto [entry, fresh] = index.emplace(storage, storages.size());
    if (fresh) {
      storages.push_back(storage);
      lifetimes.push_back({0, step, step});
    }
    Lifetime& lifetime = lifetimes[entry->second];
    lifetime.bytes = std::max(lifetime.bytes, bytes_in(layouts, tensor));
    lifetime.first = std::min(lifetime.first, step);
    lifetime.last = std::max(lifetime.last, step);
  };
  each_use(touch);
  // a workspace lives for one step
  std::vector<std::span<float>*> rooms;
  std::int64_t most = 0;
  const auto plan_room = [&](int called, Workspace of, int step, std::span<float>& room) {
    room = {};
    const std::int64_t floats = workspace_of(called, of);
    if (floats == 0) return;
    most = std::max(most, floats);
    rooms.push_back(&room);
    lifetimes.push_back({static_cast<std::size_t>(floats) * sizeof(float), step, step});
  };
  const int n = static_cast<int>(layers_.size());
  for (int i = 0; i < n; ++i) {
    Wiring& wires = wiring_[static_cast<std::size_t>(i)];
    plan_room(wires.forward, Workspace::kForward, i, wires.forward_scratch);
    plan_room(wires.needs_backward ? wires.backward : -1, Workspace::kBackward, 2 * n - 1 - i,
              wires.backward_scratch);
  }

  memory_ = {};
  for (const NetParam& param : net_params_) memory_.params += 2 * param.blob->data.bytes();
  for (std::size_t i = 0; i < storages.size(); ++i) memory_.blobs_unshared += lifetimes[i].bytes;
  memory_.blobs_unshared += static_cast<std::size_t>(most) * sizeof(float);
  if (!options_.share_memory) {
    memory_.blobs = memory_.blobs_unshared;
    for (std::span<float>* room : rooms) *room = {};
    if (most > 0) context_.scratch(most);
    return;
  }
  const MemoryPlan plan = plan_memory(lifetimes);
  memory_.blobs = plan.bytes;
  if (!arena_ || arena_->bytes() < plan.bytes) arena_ = context_.device().allocate(plan.bytes);
  for (std::size_t i = 0; i < storages.size(); ++i) {
    const auto layout = layouts.find(storages[i]);
    storages[i]->bind(arena_, plan.offsets[i], layout == layouts.end() ? nullptr : layout->second,
                      lifetimes[i].bytes);
  }
  for (std::size_t r = 0; r < rooms.size(); ++r) {
    const std::size_t at = storages.size() + r;
    *rooms[r] = {reinterpret_cast<float*>(arena_->data() + plan.offsets[at]),
                 lifetimes[at].bytes / sizeof(float)};
  }
}

std::string Net::find_non_finite() {
  const auto is_finite = [this](const Tensor& tensor) {
    const Tensor* const one[] = {&tensor};
    return ops::all_finite(context_, one);
  };
  for (const NetParam& param : net_params_)
    // running sums follow what came in
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
