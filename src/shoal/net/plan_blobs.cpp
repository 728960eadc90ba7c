// Plans the memory of a net's blobs and of its kernels' workspace, within a limit if there is one.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/net/blob_layouts.h"
#include "shoal/net/memory_plan.h"
#include "shoal/net/net.h"
#include "shoal/ops/op.h"

namespace shoal {

// Blocks of memory and their places in the arena. Blocks of storages come first, then those of
// rooms, in which kernels work for one step.
struct Net::BlobPlan {
  struct Room {
    std::string layer;  // whose kernels work there
    std::span<float>* at;
  };
  std::vector<Storage*> storages;
  BlobLayouts layouts;
  std::vector<Room> rooms;
  std::vector<Lifetime> lifetimes;
  std::int64_t most = 0;  // floats of the largest room
  MemoryPlan memory;
};

namespace {

double megabytes(std::size_t bytes) { return static_cast<double>(bytes) / 1e6; }

// Returns the bytes that a layer's kernels work in and keep, if they compute by Winograd's
// algorithm.
std::int64_t winograd_bytes(const Layer& layer) {
  std::int64_t floats = 0;
  for (const ops::Choice& choice : layer.choices()) {
    const KernelNeeds& needs = choice.needs;
    if (needs.has_winograd)
      floats += std::max(needs.workspace, needs.backward_workspace.value_or(0)) + needs.kept;
  }
  return floats * static_cast<std::int64_t>(sizeof(float));
}

// Returns the step at which most bytes are in use.
int fullest_step(const std::vector<Lifetime>& lifetimes) {
  std::size_t most = 0;
  int fullest = 0;
  for (const Lifetime& at : lifetimes) {
    std::size_t bytes = 0;
    for (const Lifetime& other : lifetimes)
      if (other.first <= at.first && at.first <= other.last) bytes += other.bytes;
    if (bytes > most) {
      most = bytes;
      fullest = at.first;
    }
  }
  return fullest;
}

}  // namespace

void Net::keep_blobs(const std::function<void(const Blob&)>& keep) const {
  for (const Blob* output : outputs_) keep(*output);
  for (const std::string& name : options_.keep) keep(*blob(name));
  // In training, inputs stay for find_non_finite.
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
  // Notes what layer i uses when it is layer `turn`'s turn.
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
    // A layer that takes another's work over may go backward for the other's params alone.
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

Net::BlobPlan Net::make_blob_plan() {
  BlobPlan plan;
  std::unordered_map<const Storage*, std::size_t> index;
  std::unordered_set<const Storage*> brought;
  for (std::size_t i = 0; i < layers_.size(); ++i)
    if (layers_[i]->brings_memory())
      for (const Blob* top : wiring_[i].tops) brought.insert(top->data.storage().get());
  plan.layouts = layouts_of(*this);
  const auto touch = [&](const Tensor& tensor, int step) {
    Storage* storage = tensor.storage().get();
    if (brought.contains(storage)) return;
    const auto [entry, fresh] = index.emplace(storage, plan.storages.size());
    if (fresh) {
      plan.storages.push_back(storage);
      plan.lifetimes.push_back({0, step, step});
    }
    Lifetime& lifetime = plan.lifetimes[entry->second];
    lifetime.bytes = std::max(lifetime.bytes, bytes_in(plan.layouts, tensor));
    lifetime.first = std::min(lifetime.first, step);
    lifetime.last = std::max(lifetime.last, step);
  };
  each_use(touch);
  memory_ = {};
  for (const NetParam& param : net_params_) memory_.params += 2 * param.blob->data.bytes();
  for (const Lifetime& lifetime : plan.lifetimes) memory_.blobs_unshared += lifetime.bytes;
  // A workspace lives for one step.
  const auto plan_room = [&](int called, Workspace of, int step, std::span<float>& room) {
    room = {};
    const std::int64_t floats = workspace_of(called, of);
    if (floats == 0) return;
    plan.most = std::max(plan.most, floats);
    plan.rooms.push_back({layers_[static_cast<std::size_t>(called)]->name(), &room});
    plan.lifetimes.push_back({static_cast<std::size_t>(floats) * sizeof(float), step, step});
  };
  const int n = static_cast<int>(layers_.size());
  for (int i = 0; i < n; ++i) {
    Wiring& wires = wiring_[static_cast<std::size_t>(i)];
    plan_room(wires.forward, Workspace::kForward, i, wires.forward_scratch);
    plan_room(wires.needs_backward ? wires.backward : -1, Workspace::kBackward, 2 * n - 1 - i,
              wires.backward_scratch);
    for (const ops::Choice& choice : layers_[static_cast<std::size_t>(i)]->choices())
      memory_.kept += static_cast<std::size_t>(choice.needs.kept) * sizeof(float);
  }
  memory_.blobs_unshared += static_cast<std::size_t>(plan.most) * sizeof(float);
  if (options_.share_memory) plan.memory = plan_memory(plan.lifetimes);
  memory_.blobs = options_.share_memory ? plan.memory.bytes : memory_.blobs_unshared;
  return plan;
}

// Leaves Winograd's algorithm out of layers, where it takes most first, until the plan fits.
void Net::keep_to_limit(BlobPlan& plan) {
  const auto needed = [this] { return memory_.blobs + memory_.kept; };
  const std::size_t limit = options_.memory_limit, before = needed();
  std::vector<std::string> without;
  while (needed() > limit) {
    const auto largest = std::ranges::max_element(
        layers_, {}, [](const auto& layer) { return winograd_bytes(*layer); });
    if (!(*largest)->leave_winograd(context_)) break;
    without.push_back((*largest)->name());
    plan = make_blob_plan();
  }
  if (needed() > limit)
    throw ConfigError(
        Code::kConfig, "net '", name(), "': blobs and scratch take ", megabytes(needed()),
        " MB, more than memory_limit: ", megabytes(limit),
        without.empty() ? "" : ", even without Winograd's algorithm",
        ". The largest: ", largest_blocks(plan),
        ". Half the batch_size with twice the iter_size halves the blobs; on a CPU so does "
        "precision: BFLOAT16 with the images; or raise the limit");
  if (!without.empty())
    LOG(INFO) << "Net '" << name() << "': memory_limit " << megabytes(limit)
              << " MB leaves Winograd's algorithm out of " << join(without) << ": "
              << megabytes(before) << " MB of blobs and scratch become " << megabytes(needed());
}

// Names the blocks that take most when the plan is at its fullest.
std::string Net::largest_blocks(const BlobPlan& plan) const {
  std::unordered_map<const Storage*, std::string> names;
  for (const auto& blob : blobs_) {
    names.emplace(blob->data.storage().get(), str("blob '", blob->name, "'"));
    names.emplace(blob->grad.storage().get(), str("gradient of '", blob->name, "'"));
  }
  const int step = fullest_step(plan.lifetimes);
  std::vector<std::pair<std::size_t, std::string>> blocks;
  for (std::size_t i = 0; i < plan.lifetimes.size(); ++i) {
    const Lifetime& block = plan.lifetimes[i];
    if (block.first > step || step > block.last) continue;
    const std::size_t room = i - plan.storages.size();
    blocks.emplace_back(block.bytes, i < plan.storages.size()
                                         ? names[plan.storages[i]]
                                         : str("scratch of layer '", plan.rooms[room].layer, "'"));
  }
  std::ranges::stable_sort(blocks, std::ranges::greater(), &decltype(blocks)::value_type::first);
  constexpr std::size_t kNamed = 3;
  std::vector<std::string> words;
  for (std::size_t i = 0; i < std::min(kNamed, blocks.size()); ++i)
    words.push_back(str(blocks[i].second, ' ', megabytes(blocks[i].first), " MB"));
  return with_own_names(join(words));
}

void Net::plan_blobs() {
  BlobPlan plan = make_blob_plan();
  if (options_.memory_limit > 0) keep_to_limit(plan);
  if (!options_.share_memory) {
    if (plan.most > 0) context_.scratch(plan.most);
    return;
  }
  if (!arena_ || arena_->bytes() < plan.memory.bytes)
    arena_ = context_.device().allocate(plan.memory.bytes);
  for (std::size_t i = 0; i < plan.storages.size(); ++i) {
    const auto layout = plan.layouts.find(plan.storages[i]);
    plan.storages[i]->bind(arena_, plan.memory.offsets[i],
                           layout == plan.layouts.end() ? nullptr : layout->second,
                           plan.lifetimes[i].bytes);
  }
  for (std::size_t r = 0; r < plan.rooms.size(); ++r) {
    const std::size_t at = plan.storages.size() + r;
    *plan.rooms[r].at = {reinterpret_cast<float*>(arena_->data() + plan.memory.offsets[at]),
                         plan.lifetimes[at].bytes / sizeof(float)};
  }
}

}  // namespace shoal
