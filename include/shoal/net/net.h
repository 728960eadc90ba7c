// A net: layers in order, the blobs between them, the params they learn, and a plan for the memory
// of it all.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/layers/layer.h"
#include "shoal/tensor/context.h"

namespace shoal {

class NetParameter;
class NetState;

struct NetOptions {
  // False gives every blob bytes of its own for as long as the net lives: for looking at all of
  // them after a pass.
  bool share_memory = true;
  // Blobs whose data must still be there after forward (features to extract); the net's outputs
  // always are.
  std::vector<std::string> keep = {};
  // False: each layer does its own forward pass, so that a hook sees what each one makes.
  bool fuse = true;
  // Says that backward is never called: no memory is planned for gradients, and layers may work
  // together in ways that have no backward pass.
  bool forward_only = false;
  // Says that a caller works on the blobs between passes and parts of passes, as from Python:
  // share_memory and fuse count as false; a layer whose bottoms or tops have other shapes than
  // before, or that asks for it (Layer::reshapes_each_pass), is reshaped before its forward pass,
  // without which its backward pass is an error; a layer that had no forward pass at all is given
  // one before its backward pass; and a gradient that no layer writes is the caller's: zeros, or a
  // loss weight, until it is changed.
  bool interactive = false;
  // Bytes that NetMemory's blobs and kept may take together; 0: no limit. Convolutions do without
  // Winograd's algorithm where that is needed, and if it is not enough a ConfigError says so.
  std::size_t memory_limit = 0;
};

// A learned blob that this net updates. A blob shared by name is listed once, where it is owned.
struct NetParam {
  Blob* blob = nullptr;
  int layer = 0;  // the owner's index in layers()
  int index = 0;  // among the owner's params
  float lr_mult = 1, decay_mult = 1;
  bool overwritten = false;  // backward overwrites the grad, which nothing has to clear
};

// Bytes, as planned.
struct NetMemory {
  std::size_t params = 0;  // data and gradients
  // Taken by the data and gradients between layers and the workspace of kernels, with sharing.
  std::size_t blobs = 0;
  std::size_t blobs_unshared = 0;  // the same, without
  std::size_t kept = 0;            // by kernels, from pass to pass: weights in another order
};

// The part of a pass whose work on the device is recorded (docs/internals/design.md, "Devices,
// tensors, ops").
struct RecordedWork {
  int stretches = 0, layers = 0;
  // The layers that are called in each pass, and why; empty until recordings begin.
  std::vector<std::pair<std::string, std::string>> others{};
};

class Net {
 public:
  // Builds the net that `param` describes under its own `state` (phase, level, stage): filters
  // layers, inserts splits, sets layers up, shares params, plans memory. Throws ConfigError.
  // Borrows the context, which must outlive the net.
  Net(const NetParameter& param, Context& context, const NetOptions& options = {});
  ~Net();
  Net(const Net&) = delete;

  const std::string& name() const;
  bool training() const;
  Context& context() { return context_; }
  std::span<const std::unique_ptr<Layer>> layers() const { return layers_; }
  Bottoms bottoms(int layer) const;
  Tops tops(int layer) const;
  bool needs_backward(int layer) const;
  // Returns whether the layer's shapes may differ from pass to pass though those of the inputs do
  // not: they depend on numbers (Layer::sizes_tops), of this layer or of one before it.
  bool varies(int layer) const;
  // Returns the layer whose forward pass does this one's too (a convolution with the ReLU behind
  // it), or both of whose passes do (batch normalization with the Scale behind it); null: none.
  const Layer* fused_into(int layer) const;
  // Returns the blob of this name, or null; the last one, if in-place layers use the name again.
  // Blobs made by inserted splits have names of their own.
  Blob* blob(const std::string& name) const;
  std::vector<std::string> blob_names() const;
  // Tops that no layer takes, in alphabetical order.
  std::span<Blob* const> outputs() const { return outputs_; }
  // Returns the outputs of which each pass makes as many numbers: means of them can be taken.
  std::span<Blob* const> outputs_of_one_size() const { return outputs_of_one_size_; }
  // Returns the weight of a top in the net's loss; 0: none.
  float loss_weight(const Blob& top) const;
  std::span<const NetParam> params() const { return net_params_; }

  // Passes once over the layers, which first follow the data layers' next batch if it has another
  // size. The loss is the sum of weight x top over all tops with a weight. An error is a data
  // layer's, a loss layer's, a hook's, or that of a layer which cannot follow: nothing after that
  // layer ran.
  Result<float> forward();
  // Do the same in two calls: the second waits for the device, and may come after backward().
  Status run_forward();
  float loss() const;
  // Calls visit(top, weight) for each top with a weight, in the order in which loss() adds them.
  using LossVisit = std::function<void(const Tensor& top, float weight)>;
  void each_loss(const LossVisit& visit) const;
  // Computes the gradients of the last forward's loss: adds to the params' grads.
  Status backward();
  // Do the part of a pass from one layer to another, both included, by what the blobs hold. `last`
  // is not before `first` in the order of the pass, which for backward is the net's from its end.
  // The loss is that of these layers.
  Result<float> forward(int first, int last);
  Status backward(int first, int last);
  // Sets the params' grads to zero, but those that backward overwrites.
  void clear_gradients();
  // Makes backward overwrite what it can of the grads of these layers' params (by layer) instead of
  // adding to them.
  void overwrite_gradients(const std::vector<bool>& layers);
  // Gives all layers a chance to follow new shapes of input blobs, and plans memory anew. Throws
  // ConfigError.
  void reshape();

  // Is called with the layer's index before its forward, after its forward, and when its params'
  // grads are complete. May block. An error ends the pass. At most one of each; the caller outlives
  // the net or sets nullptr.
  using Hook = std::function<Status(int layer)>;
  // Is called with the indices of one or more layers, in order of the pass.
  using LayersHook = std::function<Status(std::span<const int> layers)>;
  // `together`: the calls of neighbouring layers whose params have at most so many bytes in all may
  // come together, before the first, or as one call after the last of them; 0: each layer's comes
  // on its own. Only the work of layers whose calls come together can be recorded.
  void before_forward(Hook hook, std::int64_t together = 0) {
    before_forward_ = std::move(hook);
    together_before_forward_ = together;
  }
  void after_forward(Hook hook) { after_forward_ = std::move(hook); }
  void after_backward(LayersHook hook, std::int64_t together = 0) {
    after_backward_ = std::move(hook);
    together_after_backward_ = together;
  }
  void before_backward(Hook hook) { before_backward_ = std::move(hook); }

  RecordedWork recorded_forward() const;
  RecordedWork recorded_backward() const;

  // Copies params by layer name from a net read from `file`; layers that only one side has are
  // skipped with a log line. Returns the names of this net's that keep their values. Throws
  // ConfigError where counts or shapes differ, naming both shapes and both files.
  std::vector<std::string> copy_weights(const NetParameter& from, const std::string& file);
  // Looks from now on at the params of `other` (a test net at the train net's), by layer name.
  // Throws ConfigError.
  void share_weights(const Net& other);
  // Returns the net as built, with its params (and their gradients): the content of a caffemodel.
  NetParameter to_proto(bool with_gradients) const;
  // Returns the net as built, without numbers; splits not included.
  const NetParameter& definition() const;

  NetMemory memory() const { return memory_; }
  // Returns, after a pass whose loss or gradient is not finite, the first bad layer and blob in
  // order of computation. Runs the layers again on the inputs of the last pass, without reading new
  // data. Empty if all is finite.
  std::string find_non_finite();

 private:
  friend class NetBuilder;
  struct Passes;
  // Says how a layer stands in the net.
  struct Wiring {
    std::vector<Blob*> bottoms, tops;
    std::vector<bool> propagate;  // a gradient goes to this bottom
    // For each top: no layer writes its gradient, which backward will read.
    std::vector<bool> missing;
    // If interactive: the shapes of bottoms and tops at the last forward pass, or as they were
    // made, and that there was one since.
    std::vector<Shape> shapes{};
    bool ran = false;
    bool needs_backward = false;
    bool varies = false;
    const Layer* fused_into = nullptr;
    // The layers whose passes are called when it is this one's turn: itself, one that took its work
    // over (Layer::TakesOver::kBoth), or none (-1).
    int forward = -1, backward = -1;
    // The memory of the kernels called at these turns; empty: scratch of the context's own.
    std::span<float> forward_scratch, backward_scratch;
  };
  void forward_at(int layer);  // what Wiring::forward says
  void backward_of(int layer);
  Status size_tops(int layer);
  std::vector<Shape> shapes_at(int layer) const;
  Status follow_shapes(int layer);
  Status make_ready_for_backward(int layer);
  void note_shapes(int layer, bool ran);
  Status follow_inputs();
  Status failure_of(int layer);
  std::string record_behind(const Blob& blob, int layer, std::int64_t item) const;
  // Returns the sentence with the user's names for blobs, 'label', where it has those of inserted
  // splits, 'label_data_1_split_0'.
  std::string with_own_names(std::string sentence) const;
  void prepare_gradients(int layer);
  void fill_loss_gradients(int layer);
  void each_loss_of(int layer, const LossVisit& visit) const;
  void each_use(const std::function<void(const Tensor&, int step)>& use) const;
  void tune_kernels(ops::ConvTuning& tuning);
  struct BlobPlan;
  void plan_blobs();
  BlobPlan make_blob_plan();  // and memory_
  void keep_to_limit(BlobPlan& plan);
  std::string largest_blocks(const BlobPlan& plan) const;
  enum class Workspace { kForward, kBackward };
  std::int64_t workspace_of(int layer, Workspace of) const;  // floats; of its kernels
  void keep_blobs(const std::function<void(const Blob&)>& keep) const;

  Context& context_;
  NetOptions options_;
  std::unique_ptr<NetParameter> definition_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<Wiring> wiring_;  // one a layer
  std::vector<std::unique_ptr<Blob>> blobs_;
  std::vector<Blob*> outputs_, outputs_of_one_size_;
  std::vector<NetParam> net_params_;
  std::shared_ptr<Memory> arena_;  // of all planned blobs
  NetMemory memory_;
  Random::State pass_start_;  // random state when the last forward began
  Hook before_forward_, after_forward_, before_backward_;
  LayersHook after_backward_;
  std::int64_t together_before_forward_ = 0, together_after_backward_ = 0;  // bytes of params
  bool may_record_ = false;  // the last forward pass, and so its backward
  std::unique_ptr<Passes> passes_;
};

}  // namespace shoal
