// Converts layers of products and sums.
#include "shoal/onnx/converters.h"

namespace shoal::onnx {
namespace {

// Returns sizes `dims` followed by ones up to the last of `axes`, so that they lie on the axes from
// `first` on.
template <class List>
List spread(List dims, int first, int axes) {
  while (!dims.empty() && first + static_cast<int>(dims.size()) < axes) dims.push_back({1});
  return dims;
}

// Returns the second bottom, or the layer's first param, as it lies on the first bottom's axes.
std::string operand(LayerExport& x, int axis) {
  const Shape& shape = x.bottom();
  const Shape& numbers = x.bottoms() == 2 ? x.bottom(1) : x.param_data(0).shape();
  const int first = numbers.axes() == 0 ? 0 : shape.canonical(axis);
  if (x.bottoms() == 1) return x.weight(0, spread(numbers.dims(), first, shape.axes()));
  const Dims dims = spread(x.bottom_dims(1), first, shape.axes());
  return dims == x.bottom_dims(1) ? x.in(1) : x.reshaped(x.in(1), dims);
}

}  // namespace

void convert_axpy(LayerExport& x) {
  Dims dims = x.bottom_dims(0);
  dims.resize(2);
  const std::string factor = x.reshaped(x.in(0), spread(dims, 0, x.bottom(1).axes()));
  x.give("Add", {x.add("Mul", {x.in(1), factor}), x.in(2)});
}

void convert_bias(LayerExport& x) {
  x.give("Add", {x.in(), operand(x, x.param().bias_param().axis())});
}

void convert_scale(LayerExport& x) {
  const ScaleParameter& scale = x.param().scale_param();
  const std::string factor = operand(x, scale.axis());
  if (!scale.bias_term()) return x.give("Mul", {x.in(), factor});
  const int bias = x.bottoms() == 2 ? 0 : 1;
  const Shape& numbers = x.param_data(bias).shape();
  const int first = numbers.axes() == 0 ? 0 : x.bottom().canonical(scale.axis());
  x.give("Add", {x.add("Mul", {x.in(), factor}),
                 x.weight(bias, spread(numbers.dims(), first, x.bottom().axes()))});
}

void convert_eltwise(LayerExport& x) {
  const EltwiseParameter& eltwise = x.param().eltwise_param();
  Names terms;
  for (int i = 0; i < x.bottoms(); ++i) {
    const float coeff = eltwise.coeff_size() > 0 ? eltwise.coeff(i) : 1;
    terms.push_back(coeff == 1 ? x.in(i) : x.add("Mul", {x.in(i), x.number(coeff)}));
  }
  if (eltwise.operation() == EltwiseParameter::MAX) return x.give("Max", terms);
  const char* const op = eltwise.operation() == EltwiseParameter::PROD ? "Mul" : "Add";
  std::string sum = terms[0];
  for (std::size_t i = 1; i + 1 < terms.size(); ++i) sum = x.add(op, {sum, terms[i]});
  x.give(op, {sum, terms.back()});
}

void convert_embed(LayerExport& x) {
  const std::string rows = x.add("Cast", {x.in()}, {{"to", kInt64Type}});
  if (x.params() == 1) return x.give("Gather", {x.weight(0), rows});
  x.give("Add", {x.add("Gather", {x.weight(0), rows}), x.weight(1)});
}

void convert_inner_product(LayerExport& x) {
  const InnerProductParameter& product = x.param().inner_product_param();
  const Shape& bottom = x.bottom();
  const int axis = bottom.canonical(product.axis());
  std::string value = x.in();
  const bool is_matrix = bottom.axes() == 2 && axis == 1;
  if (!is_matrix) {
    // The rows follow the batch, if anything does.
    Dims dims{{bottom.count(0, axis)}, {bottom.count(axis)}};
    for (int i = 0; i < axis; ++i)
      if (x.bottom_dims()[static_cast<std::size_t>(i)].kind != Dim::Kind::kFixed)
        dims[0].kind = Dim::Kind::kUnknown;
    value = x.reshaped(value, dims);
  }
  Names inputs{value, x.weight(0)};
  if (product.bias_term()) inputs.push_back(x.weight(1));
  const Attributes attributes{{"transB", std::int64_t{product.transpose() ? 0 : 1}}};
  if (axis == 1) return x.give("Gemm", inputs, attributes);
  x.give_reshaped(x.add("Gemm", inputs, attributes));
}

void convert_reduction(LayerExport& x) {
  const ReductionParameter& reduction = x.param().reduction_param();
  const Shape& bottom = x.bottom();
  const int axis = bottom.axes() == 0 ? 0 : bottom.canonical(reduction.axis());
  const Sizes axes = axes_between(axis, bottom.axes());
  const std::int64_t keep = 0;
  std::string value;
  switch (reduction.operation()) {
    case ReductionParameter::ASUM:
      value = x.add("ReduceL1", {x.in()}, {{"axes", axes}, {"keepdims", keep}});
      break;
    case ReductionParameter::SUMSQ:
      value = x.add("ReduceSumSquare", {x.in()}, {{"axes", axes}, {"keepdims", keep}});
      break;
    case ReductionParameter::MEAN:
      value = x.add("ReduceMean", {x.in()}, {{"axes", axes}, {"keepdims", keep}});
      break;
    default: value = x.add("ReduceSum", {x.in(), x.integers(axes)}, {{"keepdims", keep}});
  }
  x.give("Mul", {value, x.number(reduction.coeff())});
}

}  // namespace shoal::onnx
