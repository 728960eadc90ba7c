// oneDNN's convolutions: sums of direct products, Winograd's algorithm and images of 16 bits
// against sums in double.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "support/ops.h"

namespace shoal::ops::onednn_test {
namespace {

const ConvImpl* onednn() {
  for (const ConvImpl* impl : cpu_backend().conv)
    if (std::string_view(impl->name) == "onednn") return impl;
  return nullptr;
}

ConvDesc square(std::int64_t images, std::int64_t channels, std::int64_t outputs, std::int64_t size,
                std::int64_t kernel, std::int64_t stride, std::int64_t pad, std::int64_t groups = 1,
                std::int64_t dilation = 1) {
  WindowAxis axis{.in = size, .kernel = kernel, .stride = stride, .pad = pad, .dilation = dilation};
  axis.out = (size + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1;
  return {images, channels, outputs, groups, {axis, axis}};
}

// The three results of a convolution, in double.
struct Sums {
  Numbers y, dx, dw, db;
};
Sums sums_of(const ConvDesc& d, const Numbers& x, const Numbers& w, const Numbers& b,
             const Numbers& dy) {
  const WindowAxis &h = d.axes[0], &v = d.axes[1];
  const std::int64_t ins = d.channels / d.groups, outs = d.outputs / d.groups;
  Sums sums{zeros(size_of(dy)), zeros(size_of(x)), zeros(size_of(w)), zeros(d.outputs)};
  for (std::int64_t n = 0; n < d.images; ++n)
    for (std::int64_t k = 0; k < d.outputs; ++k)
      for (std::int64_t i = 0; i < h.out; ++i)
        for (std::int64_t j = 0; j < v.out; ++j) {
          const auto o = static_cast<std::size_t>(((n * d.outputs + k) * h.out + i) * v.out + j);
          sums.y[o] = b[static_cast<std::size_t>(k)];
          sums.db[static_cast<std::size_t>(k)] += dy[o];
          for (std::int64_t c = 0; c < ins; ++c)
            for (std::int64_t s = 0; s < h.kernel; ++s)
              for (std::int64_t t = 0; t < v.kernel; ++t) {
                const std::int64_t row = i * h.stride - h.pad + s * h.dilation,
                                   column = j * v.stride - v.pad + t * v.dilation;
                if (row < 0 || row >= h.in || column < 0 || column >= v.in) continue;
                const auto at = static_cast<std::size_t>(
                    ((n * d.channels + k / outs * ins + c) * h.in + row) * v.in + column);
                const auto weight =
                    static_cast<std::size_t>(((k * ins + c) * h.kernel + s) * v.kernel + t);
                sums.y[o] += x[at] * w[weight];
                sums.dx[at] += dy[o] * w[weight];
                sums.dw[weight] += dy[o] * x[at];
              }
        }
  return sums;
}

// The root of the mean square of the error, of that of what is wanted.
double error_of(const Tensor& got, const Numbers& want) {
  double error = 0, all = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    error += std::pow(got.host()[i] - want[i], 2);
    all += want[i] * want[i];
  }
  return std::sqrt(error / all);
}

Tensor tensor_of(const Numbers& numbers) {
  Tensor tensor(Shape{size_of(numbers)});
  std::copy(numbers.begin(), numbers.end(), tensor.host_out().begin());
  return tensor;
}

struct Choice {
  const char* name;
  Context::Options options;
  double tolerance;  // of the error's root mean square
};
const Choice kChoices[] = {
    {"DIRECT", {.direct_convolution = true}, 2e-6},
    {"AUTO", {}, 1e-5},
    {"BFLOAT16", {.precision = Precision::kBfloat16}, 1e-2},
    {"BFLOAT16, DIRECT", {.precision = Precision::kBfloat16, .direct_convolution = true}, 1e-2},
};

const ConvDesc kConvs[] = {square(2, 64, 64, 14, 3, 1, 1),        // Winograd's
                           square(1, 32, 48, 9, 3, 1, 1),         // odd sizes
                           square(3, 16, 16, 7, 3, 1, 0),         // no padding
                           square(2, 3, 32, 12, 5, 1, 2),         // few channels, as they come
                           square(2, 1, 16, 11, 3, 2, 1),         // one channel
                           square(2, 24, 32, 8, 1, 1, 0),         // blocks that are not whole
                           square(2, 32, 32, 9, 1, 2, 0),         // 1 x 1 with a stride
                           square(2, 64, 32, 8, 3, 1, 1, 2),      // groups
                           square(2, 32, 32, 9, 3, 1, 1, 32),     // depthwise
                           square(1, 16, 32, 13, 3, 1, 2, 1, 2),  // dilated
                           square(2, 16, 32, 5, 7, 1, 3),         // a kernel larger than the image
                           square(2, 32, 16, 15, 4, 3, 1)};

TEST(Onednn, ConvolvesWithinItsTolerance) {
  const ConvImpl* const impl = onednn();
  if (impl == nullptr) GTEST_SKIP() << "no oneDNN in this build";
  int served = 0;
  for (const ConvDesc& desc : kConvs)
    for (const Choice& choice : kChoices)
      for (const int threads : {1, 2}) {
        Context::Options options = choice.options;
        options.threads = threads;
        Context ctx(options);
        SCOPED_TRACE(str(choice.name, ", channels ", desc.channels, ", outputs ", desc.outputs,
                         ", kernel ", desc.axes[0].kernel, ", threads ", threads));
        if (!impl->supports(desc, ctx).empty()) continue;
        ++served;
        const std::int64_t weights = desc.outputs * desc.channels / desc.groups * desc.taps();
        const Numbers x = rounded(draw(desc.images * desc.channels * desc.in_count(), 1)),
                      w = rounded(draw(weights, 2)), b = rounded(draw(desc.outputs, 3)),
                      dy = rounded(draw(desc.images * desc.outputs * desc.out_count(), 4));
        const Sums want = sums_of(desc, x, w, b, dy);
        const auto conv = impl->make(desc, ctx);
        Tensor tx = tensor_of(x), tw = tensor_of(w), tb = tensor_of(b), tdy = tensor_of(dy),
               y(tdy.shape()), dx(tx.shape()), dw(tw.shape()), db(tb.shape());
        conv->forward(ctx, tx, tw, &tb, y);
        conv->backward(ctx, tx, tw, tdy, &dx, &dw, &db);
        EXPECT_LE(error_of(y, want.y), choice.tolerance);
        EXPECT_LE(error_of(dx, want.dx), choice.tolerance);
        EXPECT_LE(error_of(dw, want.dw), choice.tolerance);
        EXPECT_LE(error_of(db, want.db), choice.tolerance);
        // Gradients add up, and the weights are packed anew when they change.
        conv->backward(ctx, tx, tw, tdy, nullptr, &dw, &db);
        for (float& weight : tw.host_mut()) weight *= 2;
        conv->forward(ctx, tx, tw, nullptr, y);
        Numbers twice = want.dw, other = want.y;
        for (double& sum : twice) sum *= 2;
        for (std::size_t i = 0; i < other.size(); ++i) {
          const auto k = static_cast<std::int64_t>(i) / desc.out_count() % desc.outputs;
          other[i] = 2 * (other[i] - b[static_cast<std::size_t>(k)]);
        }
        EXPECT_LE(error_of(dw, twice), choice.tolerance);
        EXPECT_LE(error_of(y, other), choice.tolerance);
      }
  EXPECT_GE(served, 30);  // of 96; without AVX-512 those of 16 bits alone
}

TEST(Onednn, SameChoiceSameBits) {
  const ConvImpl* const impl = onednn();
  if (impl == nullptr) GTEST_SKIP() << "no oneDNN in this build";
  const ConvDesc desc = square(2, 64, 64, 14, 3, 1, 1);
  for (const Choice& choice : kChoices) {
    Context::Options options = choice.options;
    options.threads = 2;
    if (!impl->supports(desc, Context(options)).empty()) continue;
    std::vector<std::vector<float>> seen;
    for (int run = 0; run < 2; ++run) {
      Context ctx(options);
      const auto conv = impl->make(desc, ctx);
      Tensor x = tensor_of(draw(desc.images * desc.channels * desc.in_count(), 1)),
             w = tensor_of(draw(desc.outputs * desc.channels * desc.taps(), 2)), y(x.shape()),
             dx(x.shape()), dw(w.shape());
      conv->forward(ctx, x, w, nullptr, y);
      conv->backward(ctx, x, w, y, &dx, &dw, nullptr);
      for (const Tensor* tensor : {&y, &dx, &dw})
        seen.emplace_back(tensor->host().begin(), tensor->host().end());
    }
    for (std::size_t t = 0; t < 3; ++t) EXPECT_EQ(seen[t], seen[t + 3]) << choice.name;
  }
}

TEST(Onednn, AReluKeepsANan) {
  const ConvImpl* const impl = onednn();
  if (impl == nullptr) GTEST_SKIP() << "no oneDNN in this build";
  ConvDesc desc = square(1, 16, 16, 8, 3, 1, 1);
  desc.relu = 0;
  Context ctx({.precision = Precision::kBfloat16});
  const auto conv = impl->make(desc, ctx);
  Tensor x(Shape{16 * 64}), w(Shape{16 * 16 * 9}), y(Shape{16 * 64});
  x.host_out()[0] = std::nanf("");
  conv->forward(ctx, x, w, nullptr, y);
  EXPECT_TRUE(std::isnan(y.host()[0]));
}

}  // namespace
}  // namespace shoal::ops::onednn_test
