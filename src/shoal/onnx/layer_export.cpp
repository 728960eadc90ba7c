#include "shoal/onnx/layer_export.h"

#include <algorithm>

#include "shoal/base/log.h"
#include "shoal/onnx/weight_files.h"

namespace shoal::onnx {

std::string Builder::unique(const std::string& name) {
  std::string result = name;
  for (int i = 2; !names_.insert(result).second; ++i) result = str(name, "_", i);
  return result;
}

void Builder::add(const std::string& op, const std::string& name, std::vector<std::string> inputs,
                  std::vector<std::string> outputs, Attributes attributes) {
  Graph& graph = body_ != nullptr ? *body_ : graph_;
  graph.operations.push_back(
      {op, name, std::move(inputs), std::move(outputs), std::move(attributes)});
}

std::string Builder::constant(Constant constant) {
  constant.name = unique(constant.name);
  graph_.constants.push_back(std::move(constant));
  return graph_.constants.back().name;
}

std::string Builder::borrowed(const std::string& name, std::span<const float> numbers,
                              std::vector<std::int64_t> dims) {
  std::string& made = params_[{numbers.data(), dims}];
  if (made.empty()) made = constant({.name = name, .dims = std::move(dims), .borrowed = numbers});
  return made;
}

std::string LayerExport::weight(int i) { return weight(i, param_data(i).shape().dims()); }

std::string LayerExport::weight(int i, Sizes dims) {
  const Tensor& data = param_data(i);
  CHECK(Shape(dims).count() == data.count()) << name() << ": " << data.shape().str();
  return builder_.borrowed(param_name(layer_, i), data.host(), std::move(dims));
}

std::string LayerExport::add(const std::string& op, Names inputs, Attributes attributes) {
  return add_many(op, std::move(inputs), 1, std::move(attributes))[0];
}

Names LayerExport::add_many(const std::string& op, Names inputs, int outputs,
                            Attributes attributes) {
  Names made;
  for (int i = 0; i < outputs; ++i) made.push_back(inner(op));
  builder_.add(op, made[0], std::move(inputs), made, std::move(attributes));
  return made;
}

void LayerExport::give(const std::string& op, Names inputs, Attributes attributes, int top) {
  const std::string& out = wiring_.out[at(top)];
  builder_.add(op, inner(op), std::move(inputs), {out}, std::move(attributes));
}

void LayerExport::give_all(const std::string& op, Names inputs, Attributes attributes) {
  builder_.add(op, inner(op), std::move(inputs), wiring_.out, std::move(attributes));
}

std::string LayerExport::number(float value) { return numbers({value}, {}); }

std::string LayerExport::numbers(std::vector<float> values, Sizes dims) {
  CHECK(Shape(dims).count() == static_cast<std::int64_t>(values.size())) << name();
  return builder_.constant(
      {.name = name() + "/numbers", .dims = std::move(dims), .own = std::move(values)});
}

std::string LayerExport::integers(Sizes values) {
  const auto count = static_cast<std::int64_t>(values.size());
  return builder_.constant({.name = name() + "/integers",
                            .dims = {count},
                            .integers = std::move(values),
                            .is_integer = true});
}

std::string LayerExport::integer(std::int64_t value) {
  return builder_.constant({.name = name() + "/integers", .integers = {value}, .is_integer = true});
}

namespace {

// Returns the sizes of a Reshape, in which -1 is what is left.
Sizes reshape_sizes(const LayerExport& x, const Dims& dims) {
  Sizes sizes;
  for (const Dim& dim : dims) sizes.push_back(dim.kind == Dim::Kind::kFixed ? dim.size : -1);
  if (std::ranges::count(sizes, -1) > 1)
    x.refuse("more than one axis of a shape follows the batch; give --batch=N");
  return sizes;
}

}  // namespace

std::string LayerExport::reshaped(const std::string& value, const Dims& dims) {
  return add("Reshape", {value, integers(reshape_sizes(*this, dims))});
}

void LayerExport::give_reshaped(const std::string& value, int top) {
  give("Reshape", {value, integers(reshape_sizes(*this, top_dims(top)))}, {}, top);
}

std::string LayerExport::sizes_with(const std::string& value, int axes, Sizes tail) {
  const std::string all = add("Shape", {value});
  const std::int64_t kept = axes - static_cast<std::int64_t>(tail.size());
  const std::string first = add("Slice", {all, integers({0}), integers({kept})});
  return add("Concat", {first, integers(std::move(tail))}, {{"axis", std::int64_t{0}}});
}

std::span<const float> LayerExport::computed(int top) {
  layer_.forward(context_, wiring_.bottoms, wiring_.tops);
  return wiring_.tops[at(top)]->data.host();
}

Sizes axes_between(int first, int last) {
  Sizes axes;
  for (int axis = first; axis < last; ++axis) axes.push_back(axis);
  return axes;
}

Dims fixed(const Sizes& sizes) {
  Dims dims;
  for (const std::int64_t size : sizes) dims.push_back({size});
  return dims;
}

}  // namespace shoal::onnx
