// A layer: shapes, params and the order of op calls. It names no device, no vendor and no file but
// the data layers'.
//
// Life: constructed with its parameters; setup once, when the bottoms have their shapes; reshape
// after that and again whenever a bottom changes shape; then forward and backward any number of
// times. All on the thread that drives the net.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/tensor/context.h"
#include "shoal/tensor/tensor.h"

namespace shoal {

class LayerParameter;
class FillerParameter;
namespace ops {
struct Choice;
}

using Bottoms = std::span<Blob* const>;
using Tops = std::span<Blob* const>;

// Says how many bottoms and tops a layer takes.
struct Arity {
  static constexpr int kAny = std::numeric_limits<int>::max();
  int min_bottoms = 1, max_bottoms = 1;
  int min_tops = 1, max_tops = 1;
  bool paired = false;  // as many tops as bottoms (Convolution with several of each)
};

// Says whether a gradient reaches a bottom.
enum class Propagates {
  kYes,  // backward overwrites bottom.grad when asked
  // The gradient is nought by definition (Crop's size reference): the net writes the zeros where
  // they are needed.
  kNothing,
  kRefuses,  // there is none (labels, ArgMax): a net that needs it is a ConfigError
};

class Layer {
 public:
  // Copies the parameters. The phase in them is the net's.
  explicit Layer(const LayerParameter& param);
  virtual ~Layer();
  Layer(const Layer&) = delete;

  const LayerParameter& param() const { return *param_; }
  const std::string& name() const;
  const std::string& type() const;

  virtual Arity arity() const { return {}; }
  // Checks what can be checked and makes the params (add_param). Throws ConfigError by
  // config_error(param(), ...).
  virtual void setup(Context&, Bottoms, Tops) {}
  // Gives the tops their shapes (Blob::reshape); may make a top look at a bottom's bytes
  // (Tensor::share). Throws ConfigError. Must not touch any blob's numbers: memory comes after all
  // layers are reshaped.
  virtual void reshape(Context&, Bottoms, Tops) = 0;
  // Is called for layers without bottoms before each forward pass, when the next batch may be
  // looked at. Gives the tops new shapes if they differ from the last batch's and says whether it
  // did; the net then reshapes what follows. Failures go to ctx.fail.
  virtual bool follow_input(Context&, Tops) { return false; }
  // Returns whether reshape is to be called before each forward pass, in which the layer may give
  // its tops yet other shapes. Its net must be interactive (NetOptions).
  virtual bool reshapes_each_pass() const { return false; }
  // Returns whether the shapes of the tops depend on numbers of the bottoms. Before each forward
  // pass of such a layer the net calls size_tops, which gives the tops their shapes of this pass;
  // the net then reshapes each layer behind before its own forward pass. No top may take more than
  // reshape gave it, since the memory is planned for that; axis 0 may be 0. The net does not call
  // forward and backward of a layer that has no numbers to work on: its tops, and the gradients of
  // its bottoms, count as zeros.
  virtual bool sizes_tops() const { return false; }
  virtual void size_tops(Context&, Bottoms, Tops) {}
  // Overwrites each top.data. Never throws: what can go wrong at run time is noted by ctx.fail and
  // ends the pass.
  virtual void forward(Context&, Bottoms, Tops) = 0;
  // The passes of a layer behind it that a layer does. With kBoth, and if the other has params, the
  // net calls the layer when it is the other's turn, not its own: these params have then their
  // numbers of this pass, and their gradients leave when they are complete.
  enum class TakesOver {
    kNothing,
    // Its forward pass does the other's, too, by params as they are then; the other does its own
    // backward pass.
    kForward,
    kBoth,  // both its passes do the other's, too
  };
  // Asks the layer to work for `next` from now on, a layer that works in place on this one's only
  // top and is that blob's only taker, or is that behind layers whose work this one took over.
  // `next` lives as long as this layer. backward: the net calls a backward pass of one of the two.
  // Called after reshape.
  virtual TakesOver take_over(Context&, const Layer& next, bool backward) {
    (void)next;
    (void)backward;
    return TakesOver::kNothing;
  }
  // Computes from top.grad: overwrites bottom[i].grad where propagate[i], leaves it alone
  // elsewhere, and *adds* to the params' grads (of those with param_propagates), but for
  // overwrite_gradient. top.data and bottom.data are as forward left them unless reads() says they
  // are not needed.
  virtual void backward(Context&, Tops, const std::vector<bool>& propagate, Bottoms) = 0;

  // Makes backward overwrite the gradient of this param instead of adding to it. Returns false if
  // the layer cannot, and goes on adding. Called after reshape.
  virtual bool overwrite_gradient(Context&, int param) {
    (void)param;
    return false;
  }

  virtual Propagates propagates(int bottom) const {
    (void)bottom;
    return Propagates::kYes;
  }
  // Returns whether gradients of the tops that no layer has (Propagates::kRefuses) count as zeros,
  // and are no error.
  virtual bool does_without_gradients() const { return false; }
  // Returns the weight of a top in the net's loss where the prototxt gives none: 1 for the first
  // top of a loss layer.
  virtual float default_loss_weight(int top) const {
    (void)top;
    return 0;
  }
  // Returns the lr_mult of a param that has no param {} of its own: 0 for BatchNorm's running sums.
  virtual float default_lr_mult(int param) const {
    (void)param;
    return 1;
  }
  // The weight of each top in the net's loss, set by the net after setup; 0 before. The net fills
  // the gradient of a top that has a weight with it before backward.
  void set_loss_weights(std::span<const float> weights) {
    loss_weights_.assign(weights.begin(), weights.end());
  }
  float loss_weight(int top) const {
    const std::size_t at = static_cast<std::size_t>(top);
    return at < loss_weights_.size() ? loss_weights_[at] : 0;
  }
  // Makes the gradients of losses, and so all others, `scale` times as large; the losses stay.
  // Serves gradients that would be too small for a type of few bits.
  void scale_gradients(float scale) { gradient_scale_ = scale; }
  float gradient_scale() const { return gradient_scale_; }
  float loss_gradient(int top) const { return gradient_scale_ * loss_weight(top); }
  // Loss layers get their first top made for them if the prototxt names none.
  virtual bool makes_missing_top() const { return false; }
  // Returns whether a top may have the name of the same bottom: forward and backward work when both
  // are one blob.
  virtual bool can_be_in_place() const { return false; }
  // Data that backward looks at; what no backward needs, the net's memory plan reuses during the
  // forward pass.
  struct Reads {
    bool bottom_data = true, top_data = true;
  };
  virtual Reads reads() const { return {}; }
  // Says whether its ops write each top's data in the layout of the bottoms' (data), and each
  // bottom's gradient in that of its data (grad), where that takes the same bytes in every shape:
  // numbers of 16 bits. The plan of the memory goes by it; other numbers would take memory of their
  // own.
  struct KeepsLayout {
    bool data = false, grad = false;
    bool of_first = false;  // the tops follow the first bottom, however the others lie
  };
  virtual KeepsLayout keeps_layout() const { return {}; }
  // Passes that can be queued again without calling them (net/recorded_pass.h): what they do, all
  // on the device, depends on shapes and on tensors there, and on nothing that differs from pass to
  // pass: random numbers, numbers that the host reads or writes, a state of the layer. Each case of
  // a layer is tested.
  struct Replays {
    bool forward = true, backward = true;
  };
  virtual Replays replays() const { return {}; }
  // Returns whether the tops' data outlive a pass: inputs that a caller fills, constants filled
  // once.
  virtual bool keeps_tops() const { return false; }
  // forward lets the tops' data look at memory of the layer's own (Storage::bind); the net plans
  // none.
  virtual bool brings_memory() const { return false; }
  // backward copes with tops whose `grad` no layer wrote (they count as zeros); such tops are named
  // by set_missing_gradients.
  virtual bool skips_missing_gradients() const { return false; }
  void set_missing_gradients(std::vector<bool> missing) { missing_gradients_ = std::move(missing); }

  // Returns what a resumed run needs besides params and random state: a data layer's position.
  // load_state undoes save_state; it also takes the state that any member of a job of any size
  // saved, and then goes on where that job as a whole had come to (context.h, Share), each member
  // with its own part of the data.
  virtual std::string save_state() const { return {}; }
  virtual Status load_state(std::string_view) { return {}; }
  // Loads the state when the members of a job change: `all` are the states of this layer on all
  // nets that trained together, in their order, `own` is this net's, or empty if it is new.
  virtual Status load_states(std::string_view own, const std::vector<std::string_view>& all) {
    return load_state(own.empty() ? all.front() : own);
  }
  // Returns the states, not params, that a forward pass leaves to the next. They are put back when
  // a pass is to be as if it had not been.
  virtual std::span<Tensor> carried() { return {}; }
  // Names the record behind item i of the last forward: "key of source"; empty for layers without
  // records.
  virtual std::string record_name(std::int64_t item) const {
    (void)item;
    return {};
  }
  // Products of a forward pass at the present shapes, each with its addition: of layers whose work
  // is products (convolutions, inner products); 0 for others.
  virtual std::int64_t multiply_adds() const { return 0; }
  // Returns the seconds that forward spent waiting for data since the layer was made.
  virtual double seconds_waited() const { return 0; }
  // Chooses the layer's kernels by the times that the context's ConvTuning has, or measures, for a
  // net that calls forward and these backward passes. Called at most once, when shapes are known
  // and layers have taken each other's work over.
  struct Backward {
    bool to_bottoms = false, to_params = false;
  };
  virtual void tune(Context&, Backward) {}
  // Does without Winograd's algorithm from now on, to save memory. False: it has none.
  virtual bool leave_winograd(Context&) { return false; }
  // Returns the implementations that serve this layer; for --explain_ops.
  virtual std::vector<ops::Choice> choices() const;

  // Returns the learned blobs, in Caffe's order. A param's lr_mult of 0 still has a grad tensor.
  const std::vector<std::unique_ptr<Blob>>& params() const { return params_; }
  // Returns false if the gradient of param i is not needed (lr_mult 0): backward need not make it.
  // Set by the net; true at first.
  bool param_propagates(int i) const {
    return i >= static_cast<int>(param_propagates_.size()) || param_propagates_[i];
  }
  void set_param_propagates(std::vector<bool> wanted) { param_propagates_ = std::move(wanted); }
  // Puts the params named by the prototxt's blobs {} in place, if there are any. Called by the net
  // after setup. Throws ConfigError.
  void load_own_blobs();

 protected:
  // Returns a new param of `shape`, filled by `filler` from a random stream named after this layer
  // and the param's index: what other layers there are does not change it, and all nets of a job
  // start from the same.
  Blob& add_param(Context& ctx, const Shape& shape, const FillerParameter& filler);
  Blob& add_constant_param(const Shape& shape, float value);
  // `axis` of the prototxt counted from the front; a ConfigError that names `field` if the shape
  // has no such axis.
  int axis_of(const Shape& shape, int axis, const char* field) const;
  bool missing_gradient(int top) const {
    return top < static_cast<int>(missing_gradients_.size()) && missing_gradients_[top];
  }
  bool training() const;  // phase TRAIN

 private:
  std::unique_ptr<LayerParameter> param_;
  std::vector<std::unique_ptr<Blob>> params_;
  std::vector<bool> param_propagates_, missing_gradients_;
  std::vector<float> loss_weights_;
  float gradient_scale_ = 1;
};

// Makes the layer that param.type() names. Throws ConfigError with the nearest known type and the
// list of all.
std::unique_ptr<Layer> make_layer(const LayerParameter& param);
// Says how layers of type Python are made from now on, in a program that has an interpreter; before
// that the type is not known. Any thread.
using PythonLayers = std::unique_ptr<Layer> (*)(const LayerParameter&);
void set_python_layers(PythonLayers make);
// Returns the known types, in alphabetical order.
std::vector<std::string> layer_types();

}  // namespace shoal
