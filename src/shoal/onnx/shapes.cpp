// Converts layers that put numbers in other places, or in another shape.
#include <algorithm>

#include "shoal/onnx/converters.h"

namespace shoal::onnx {
namespace {

constexpr std::int64_t kToEnd = std::numeric_limits<std::int64_t>::max();

// Makes the top of the bottom seen in shape `dims`, with its axes in another order.
void give_permuted(LayerExport& x, Dims dims, const Sizes& order) {
  dims[0] = x.bottom_dims()[0];
  x.give_reshaped(x.add("Transpose", {x.reshaped(x.in(), dims)}, {{"perm", order}}));
}

}  // namespace

// TopK takes, of equal numbers, the one that comes first, ArgMax the one that comes last: so the
// axis is turned round before, and the indices after it.
void convert_arg_max(LayerExport& x) {
  const ArgMaxParameter& arg_max = x.param().argmax_param();
  const bool has_axis = arg_max.has_axis();
  const int axis = has_axis ? x.bottom().canonical(arg_max.axis()) : 1;
  const std::int64_t choices = has_axis ? x.bottom()[axis] : x.bottom().count(1);
  const std::string value = has_axis ? x.in() : x.reshaped(x.in(), {x.bottom_dims()[0], {choices}});
  const std::string turned = x.add("Slice", {value, x.integers({-1}), x.integers({-kToEnd}),
                                             x.integers({axis}), x.integers({-1})});
  const Names best = x.add_many("TopK", {turned, x.integers({std::int64_t{arg_max.top_k()}})}, 2,
                                {{"axis", std::int64_t{axis}}});
  if (has_axis && arg_max.out_max_val()) return x.give("Identity", {best[0]});
  const std::string indices =
      x.add("Cast", {x.add("Sub", {x.integer(choices - 1), best[1]})}, {{"to", kFloatType}});
  if (has_axis) return x.give("Identity", {indices});
  x.give_reshaped(arg_max.out_max_val()
                      ? x.add("Concat", {indices, best[0]}, {{"axis", std::int64_t{1}}})
                      : indices);
}

void convert_batch_reindex(LayerExport& x) {
  x.give("Gather", {x.in(0), x.add("Cast", {x.in(1)}, {{"to", kInt64Type}})});
}

void convert_concat(LayerExport& x) {
  const ConcatParameter& concat = x.param().concat_param();
  const int axis = concat.has_concat_dim() ? static_cast<int>(concat.concat_dim()) : concat.axis();
  Names values;
  for (int i = 0; i < x.bottoms(); ++i) values.push_back(x.in(i));
  x.give("Concat", values, {{"axis", canonical(axis, x.bottom())}});
}

void convert_crop(LayerExport& x) {
  const CropParameter& crop = x.param().crop_param();
  const int axes = x.bottom().axes(), first = x.bottom().canonical(crop.axis());
  Sizes starts, ends, cut;
  for (int i = first; i < axes; ++i) {
    const std::int64_t offset = crop.offset_size() == 0   ? 0
                                : crop.offset_size() == 1 ? crop.offset(0)
                                                          : crop.offset(i - first);
    const auto at = static_cast<std::size_t>(i);
    if (x.top_dims()[at] == x.bottom_dims()[at]) continue;
    if (x.top_dims()[at].kind != Dim::Kind::kFixed)
      x.refuse("it crops axis ", i, ", which follows the batch; give --batch=N");
    starts.push_back(offset);
    ends.push_back(offset + x.top()[i]);
    cut.push_back(i);
  }
  if (cut.empty()) return x.give("Identity", {x.in()});
  x.give("Slice", {x.in(), x.integers(starts), x.integers(ends), x.integers(cut)});
}

void convert_filter(LayerExport& x) {
  const int items = x.bottoms() - 1;
  const std::string selected =
      x.add("Cast", {x.reshaped(x.in(items), {{0, Dim::Kind::kUnknown}})}, {{"to", kBoolType}});
  for (int i = 0; i < items; ++i)
    x.give("Compress", {x.in(i), selected}, {{"axis", std::int64_t{0}}}, i);
}

void convert_parameter(LayerExport& x) { x.give("Identity", {x.weight(0)}); }

void convert_permute(LayerExport& x) {
  Sizes order(x.param().permute_param().order().begin(), x.param().permute_param().order().end());
  for (std::int64_t axis = 0; axis < x.bottom().axes(); ++axis)
    if (std::ranges::find(order, axis) == order.end()) order.push_back(axis);
  x.give("Transpose", {x.in()}, {{"perm", order}});
}

void convert_reorg(LayerExport& x) {
  const std::int64_t s = x.param().reorg_param().stride(), n = x.bottom()[0];
  const std::int64_t c = x.bottom()[1] / s / s, h = x.bottom()[2], w = x.bottom()[3];
  if (x.param().reorg_param().reverse())
    give_permuted(x, fixed({n, s, s, c, h, w}), {0, 3, 4, 1, 5, 2});
  else
    give_permuted(x, fixed({n, c, h, s, w, s}), {0, 3, 5, 1, 2, 4});
}

void convert_shape(LayerExport& x) { x.give_reshaped(x.in()); }

void convert_shuffle_channel(LayerExport& x) {
  const Shape& shape = x.bottom();
  const std::int64_t group = x.param().shuffle_channel_param().group();
  give_permuted(x, fixed({shape[0], group, shape[1] / group, shape.count(2)}), {0, 2, 1, 3});
}

void convert_silence(LayerExport&) {}

void convert_slice(LayerExport& x) {
  const SliceParameter& slice = x.param().slice_param();
  const int axis = x.bottom().canonical(slice.has_slice_dim() ? static_cast<int>(slice.slice_dim())
                                                              : slice.axis());
  if (x.tops() == 1) return x.give("Identity", {x.in()});
  if (x.bottom_dims()[static_cast<std::size_t>(axis)].kind != Dim::Kind::kFixed)
    x.refuse("it slices axis ", axis, ", which follows the batch; give --batch=N");
  Sizes sizes;
  for (int i = 0; i < x.tops(); ++i) sizes.push_back(x.top(i)[axis]);
  x.give_all("Split", {x.in(), x.integers(sizes)}, {{"axis", std::int64_t{axis}}});
}

void convert_tile(LayerExport& x) {
  const TileParameter& tile = x.param().tile_param();
  Sizes repeats(static_cast<std::size_t>(x.bottom().axes()), 1);
  repeats[static_cast<std::size_t>(x.bottom().canonical(tile.axis()))] = tile.tiles();
  x.give("Tile", {x.in(), x.integers(repeats)});
}

}  // namespace shoal::onnx
