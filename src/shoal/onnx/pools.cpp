// Converts pooling. Caffe's number of windows and their ends are written out as padding, so that no
// rounding mode counts; a mean counts fewer places at the ends than ONNX does, which a map of
// factors mends.
#include <algorithm>
#include <array>
#include <limits>

#include "shoal/onnx/converters.h"

namespace shoal::onnx {
namespace {

// The windows along one axis.
struct PoolAxis {
  std::int64_t in = 0, out = 0, kernel = 0, stride = 1, pad = 0;
  // Padding behind the plane that lets exactly `out` windows fit.
  std::int64_t pad_end() const {
    return std::max<std::int64_t>(0, (out - 1) * stride + kernel - in - pad);
  }
  // Returns how many places the mean of window `o` counts, those of the first padding included.
  std::int64_t counted(std::int64_t o) const {
    const std::int64_t begin = o * stride - pad;
    return std::max<std::int64_t>(0, std::min(begin + kernel, in + pad) - begin);
  }
  // Returns whether window `o` sees any place of the plane.
  bool sees(std::int64_t o) const { return o * stride - pad < in && o * stride - pad + kernel > 0; }
};
using PoolAxes = std::array<PoolAxis, 2>;
enum class Method { kMax, kAverage, kExpected };

PoolAxis pool_axis(const LayerExport& x, int axis, bool has_own, std::uint32_t kernel,
                   std::uint32_t stride, std::uint32_t pad) {
  const PoolingParameter& pool = x.param().pooling_param();
  PoolAxis result{x.bottom()[axis], x.top()[axis]};
  result.kernel = pool.global_pooling() ? result.in : has_own ? kernel : pool.kernel_size();
  result.stride = axis == 2 ? (pool.has_stride_h() ? stride : pool.stride())
                            : (pool.has_stride_w() ? stride : pool.stride());
  result.pad =
      axis == 2 ? (pool.has_pad_h() ? pad : pool.pad()) : (pool.has_pad_w() ? pad : pool.pad());
  return result;
}

// One pooling: its windows, what it makes of each, and the value that it reads.
class Pool {
 public:
  Pool(LayerExport& x, const PoolAxes& axes) : x_(x), axes_(axes) {}

  // A window that sees nothing of the plane gives 0.
  std::string largest() {
    if (pads_itself()) return x_.add("MaxPool", {x_.in()}, attributes());
    const std::string value =
        x_.add("MaxPool", {padded(x_.in(), std::numeric_limits<float>::lowest())}, attributes());
    return times(
        value, [](const PoolAxis& axis, std::int64_t o) { return axis.sees(o) ? 1 : 0; }, 1);
  }
  Names largest_and_places() {
    if (!pads_itself()) x_.refuse("a mask with a window that begins behind the plane");
    return x_.add_many("MaxPool", {x_.in()}, 2, attributes());
  }
  // The mean over a whole window.
  std::string mean_of_all(std::string value) {
    if (!pads_itself()) value = padded(value, 0);
    Attributes with_pad = attributes();
    with_pad.emplace_back("count_include_pad", std::int64_t{1});
    return x_.add("AveragePool", {value}, with_pad);
  }
  std::string mean() {
    return times(
        mean_of_all(x_.in()), [](const PoolAxis& axis, std::int64_t o) { return axis.counted(o); },
        axes_[0].kernel * axes_[1].kernel);
  }
  // The sum of squares over the sum: the mean of numbers drawn in proportion to themselves.
  std::string expected() {
    const std::string squares = mean_of_all(x_.add("Mul", {x_.in(), x_.in()}));
    const std::string sums = x_.add("Add", {mean_of_all(x_.in()), x_.number(kLeast)});
    return x_.add("Div", {squares, sums});
  }

 private:
  // So that a window without a number above 0 gives 0.
  static constexpr float kLeast = std::numeric_limits<float>::min();
  // Returns whether no window lies in the padding alone, which the operators do not take.
  bool pads_itself() const {
    return std::ranges::all_of(axes_, [](const PoolAxis& axis) {
      return std::max(axis.pad, axis.pad_end()) < axis.kernel;
    });
  }
  // Returns the value times a number for each window: `all` over what both axes count, and 0 where
  // that is nothing.
  template <class Count>
  std::string times(const std::string& value, Count count, std::int64_t all) {
    std::vector<float> factors;
    for (std::int64_t h = 0; h < axes_[0].out; ++h)
      for (std::int64_t w = 0; w < axes_[1].out; ++w) {
        const std::int64_t counted = count(axes_[0], h) * count(axes_[1], w);
        factors.push_back(counted > 0 ? static_cast<float>(all) / static_cast<float>(counted) : 0);
      }
    if (std::ranges::all_of(factors, [](float factor) { return factor == 1; })) return value;
    return x_.add("Mul", {value, x_.numbers(factors, {1, 1, axes_[0].out, axes_[1].out})});
  }
  Sizes pads() const {
    return {axes_[0].pad, axes_[1].pad, axes_[0].pad_end(), axes_[1].pad_end()};
  }
  std::string padded(const std::string& value, float with) {
    const Sizes all = pads();
    return x_.add(
        "Pad", {value, x_.integers({0, 0, all[0], all[1], 0, 0, all[2], all[3]}), x_.number(with)});
  }
  Attributes attributes() const {
    return {{"kernel_shape", Sizes{axes_[0].kernel, axes_[1].kernel}},
            {"strides", Sizes{axes_[0].stride, axes_[1].stride}},
            {"pads", pads_itself() ? pads() : Sizes{0, 0, 0, 0}}};
  }
  LayerExport& x_;
  PoolAxes axes_;
};

// `method` is PoolingParameter's or SPPParameter's.
Method method_of(int method) {
  if (method == PoolingParameter::AVE) return Method::kAverage;
  return method == PoolingParameter::STOCHASTIC ? Method::kExpected : Method::kMax;
}

std::string pooled(LayerExport& x, Method method, const PoolAxes& axes) {
  Pool pool(x, axes);
  if (method == Method::kMax) return pool.largest();
  return method == Method::kAverage ? pool.mean() : pool.expected();
}

}  // namespace

void convert_pooling(LayerExport& x) {
  const PoolingParameter& pool = x.param().pooling_param();
  const Method method = method_of(pool.pool());
  if (pool.global_pooling() && x.tops() == 1 && method != Method::kExpected)
    return x.give(method == Method::kMax ? "GlobalMaxPool" : "GlobalAveragePool", {x.in()});
  const PoolAxes axes{
      pool_axis(x, 2, pool.has_kernel_h(), pool.kernel_h(), pool.stride_h(), pool.pad_h()),
      pool_axis(x, 3, pool.has_kernel_w(), pool.kernel_w(), pool.stride_w(), pool.pad_w())};
  if (x.tops() == 1) return x.give("Identity", {pooled(x, method, axes)});
  // ONNX counts places over all planes.
  const Names both = Pool(x, axes).largest_and_places();
  x.give("Identity", {both[0]}, {}, 0);
  x.give("Cast", {x.add("Mod", {both[1], x.integer(x.bottom().count(2))})}, {{"to", kFloatType}},
         1);
}

void convert_spp(LayerExport& x) {
  const SPPParameter& spp = x.param().spp_param();
  Names levels;
  for (std::int64_t level = 0, bins = 1; level < spp.pyramid_height(); ++level, bins *= 2) {
    PoolAxes axes;
    for (int i = 0; i < 2; ++i) {
      const std::int64_t in = x.bottom()[2 + i], kernel = (in + bins - 1) / bins;
      axes[static_cast<std::size_t>(i)] = {in, bins, kernel, kernel, (kernel * bins - in + 1) / 2};
    }
    const Dims flat{x.bottom_dims()[0], {x.bottom()[1] * bins * bins}};
    levels.push_back(x.reshaped(pooled(x, method_of(spp.pool()), axes), flat));
  }
  if (levels.size() == 1) return x.give_reshaped(levels[0]);
  x.give("Concat", levels, {{"axis", std::int64_t{1}}});
}

}  // namespace shoal::onnx
