// A layer while it is converted: its blobs, and the graph that it adds to.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/layers/layer.h"
#include "shoal/onnx/graph.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/net.pb.h"

namespace shoal::onnx {

// The graph while it is made: gives names that are used once, and keeps each param once.
class Builder {
 public:
  explicit Builder(Graph& graph) : graph_(graph) {}
  // Keeps other values from getting this name.
  void reserve(const std::string& name) { names_.insert(name); }
  // Returns the name, or one that begins so.
  std::string unique(const std::string& name);
  void add(const std::string& op, const std::string& name, std::vector<std::string> inputs,
           std::vector<std::string> outputs, Attributes attributes);
  std::string constant(Constant constant);
  // Adds operations to `body` from now on, which an operator repeats; null: to the graph
  // itself, which has all constants.
  void add_to(Graph* body) { body_ = body; }
  // Returns the constant that looks at these numbers under these sizes, made at the first call.
  std::string borrowed(const std::string& name, std::span<const float> numbers,
                       std::vector<std::int64_t> dims);

 private:
  Graph& graph_;
  Graph* body_ = nullptr;
  std::set<std::string> names_;
  std::map<std::pair<const float*, std::vector<std::int64_t>>, std::string> params_;
};

// Types of numbers, as Cast names them (TensorProto.DataType).
inline constexpr std::int64_t kFloatType = 1, kInt64Type = 7, kBoolType = 9;

using Sizes = std::vector<std::int64_t>;
using Names = std::vector<std::string>;

// A layer while it is converted. Values are called by their names in the graph.
class LayerExport {
 public:
  // The sizes of a blob's axes, as the graph has them.
  using DimsOf = std::map<const Blob*, Dims>;
  struct Wiring {
    Bottoms bottoms;
    Tops tops;
    Names in, out;  // names of the bottoms' values, and those that the tops' are to have
  };
  LayerExport(Builder& builder, Layer& layer, Context& context, const DimsOf& dims, Wiring wiring)
      : builder_(builder),
        layer_(layer),
        context_(context),
        dims_(dims),
        wiring_(std::move(wiring)) {}

  const LayerParameter& param() const { return layer_.param(); }
  int bottoms() const { return static_cast<int>(wiring_.in.size()); }
  int tops() const { return static_cast<int>(wiring_.out.size()); }
  const Shape& bottom(int i = 0) const { return wiring_.bottoms[at(i)]->shape(); }
  const Shape& top(int i = 0) const { return wiring_.tops[at(i)]->shape(); }
  const Dims& bottom_dims(int i = 0) const { return dims_.at(wiring_.bottoms[at(i)]); }
  const Dims& top_dims(int i = 0) const { return dims_.at(wiring_.tops[at(i)]); }
  std::string in(int i = 0) const { return wiring_.in[at(i)]; }

  int params() const { return static_cast<int>(layer_.params().size()); }
  const Tensor& param_data(int i) const { return layer_.params()[at(i)]->data; }
  // Returns the layer's param i as a value: of its own shape, or of other sizes of as many numbers.
  std::string weight(int i);
  std::string weight(int i, Sizes dims);

  // Adds an operation and returns its first output.
  std::string add(const std::string& op, Names inputs, Attributes attributes = {});
  Names add_many(const std::string& op, Names inputs, int outputs, Attributes attributes = {});
  // Adds the operation that makes a top.
  void give(const std::string& op, Names inputs, Attributes attributes = {}, int top = 0);
  // Makes a top of a value, in the top's shape.
  void give_reshaped(const std::string& value, int top = 0);
  // Adds the operation that makes all tops.
  void give_all(const std::string& op, Names inputs, Attributes attributes = {});

  std::string number(float value);  // a scalar
  std::string numbers(std::vector<float> values, Sizes dims);
  std::string integers(Sizes values);       // of one axis
  std::string integer(std::int64_t value);  // a scalar
  // Returns the value in another shape, of which one axis at most may follow the batch or the
  // numbers.
  std::string reshaped(const std::string& value, const Dims& dims);
  // Returns the axes of a value as whole numbers, those of `tail` in place of the last ones.
  std::string sizes_with(const std::string& value, int axes, Sizes tail);

  // Runs the layer, whose tops follow the shapes of its bottoms alone, and returns what it made.
  std::span<const float> computed(int top = 0);
  const std::string& name() const { return layer_.name(); }
  Builder& builder() { return builder_; }

  // Throws: the layer cannot be exported.
  template <class... Args>
  [[noreturn]] void refuse(const Args&... args) const {
    throw config_error(param(), "cannot be exported to ONNX: ", args...);
  }

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  std::string inner(const std::string& op) { return builder_.unique(layer_.name() + "/" + op); }

  Builder& builder_;
  Layer& layer_;
  Context& context_;
  const DimsOf& dims_;
  Wiring wiring_;
};

// Returns the axis counted from the front.
inline std::int64_t canonical(int axis, const Shape& shape) { return shape.canonical(axis); }
// Returns the axes [first, last).
Sizes axes_between(int first, int last);
Dims fixed(const Sizes& sizes);

using Converter = void (*)(LayerExport&);
// Returns the converter of a type, or null.
Converter converter_of(std::string_view type);

}  // namespace shoal::onnx
