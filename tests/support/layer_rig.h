// One layer with its blobs, driven without a net: by the conformance tests and by the golden ones.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shoal/layers/layer.h"

namespace shoal::test {

using Numbers = std::vector<float>;

Numbers values(const Tensor& tensor);
void put(const Numbers& numbers, Tensor& tensor);  // counts must agree
void poison(Tensor& tensor);                       // all NaN
bool is_poison(const Tensor& tensor);              // all NaN still
bool any_nan(const Tensor& tensor);

// The largest difference over the largest absolute value of `want`, or over `floor` where that is
// larger. NaN counts as infinity; 0 for two empty ones. Sizes must agree.
double relative_error(const Numbers& got, const Numbers& want, double floor = 0);

// The one layer of a prototxt "layer { ... }". Fails the run on a syntax error.
LayerParameter parse_layer(const std::string& prototxt);

// Holds the blobs b0, b1, ... and the tops that a layer's prototxt names; a top with its bottom's
// name is the same blob. Made as a net makes it: setup, load_own_blobs, reshape. Throws ConfigError
// as these do.
class LayerRig {
 public:
  LayerRig(const LayerParameter& param, const std::vector<Shape>& bottoms, int threads = 1,
           std::uint64_t seed = 1, const Device* device = nullptr);
  ~LayerRig();
  LayerRig(const LayerRig&) = delete;

  Layer& layer() { return *layer_; }
  Context& context() { return context_; }
  int bottoms() const { return static_cast<int>(bottoms_.size()); }
  int tops() const { return static_cast<int>(tops_.size()); }
  int params() const { return static_cast<int>(layer_->params().size()); }
  Blob& bottom(int i) { return *bottoms_.at(static_cast<std::size_t>(i)); }
  Blob& top(int i) { return *tops_.at(static_cast<std::size_t>(i)); }
  Blob& param(int i) { return *layer_->params().at(static_cast<std::size_t>(i)); }
  Bottoms bottom_blobs() const { return bottoms_; }
  Tops top_blobs() const { return tops_; }
  bool in_place() const;

  // The values that forward() puts into bottom i, and load_params() into param i. Start as what is
  // there: zeros, and what the fillers made.
  Numbers& input(int i) { return inputs_.at(static_cast<std::size_t>(i)); }
  Numbers& param_value(int i) { return param_values_.at(static_cast<std::size_t>(i)); }
  void load_params();

  // New shapes for the bottoms, and inputs of zeros.
  void reshape(const std::vector<Shape>& bottoms);
  // Gives the tops their shapes of a pass with the numbers that are in the bottoms, where they
  // depend on these (Layer::sizes_tops).
  void size_tops();
  // Puts the inputs in place, gives the tops their shapes, starts the random numbers again, poisons
  // the tops that forward owns and runs it. Fails the run if the layer notes a failure.
  void forward();
  // Poisons the bottoms' gradients, puts the tops' in place and runs backward.
  void backward(const std::vector<Numbers>& top_grads, const std::vector<bool>& propagate);
  void clear_param_grads();

  // The weight of top i in the loss: the prototxt's, or the layer's own.
  float loss_weight(int i) const;
  bool has_loss() const;
  // Sum of weight times top.
  double loss();

  std::vector<Numbers> top_values();
  std::vector<Numbers> bottom_grads();
  std::vector<Numbers> param_grads();

 private:
  void read_inputs();
  Context context_;
  std::unique_ptr<Layer> layer_;
  std::vector<std::unique_ptr<Blob>> owned_;
  std::vector<Blob*> bottoms_, tops_;
  std::vector<Numbers> inputs_, param_values_;
};

}  // namespace shoal::test
