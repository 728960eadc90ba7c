// The CPU's kernels for images in blocks of channels against the plain ones: blocks of 8 and 16,
// whole and not, numbers of 32 and 16 bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "shoal/base/random.h"
#include "shoal/ops/backend.h"
#include "shoal/ops/blocked_channels.h"

namespace shoal::ops {
namespace {

// Draws numbers that 16 bits hold, so that ties are the same in all layouts.
Tensor drawn(const Shape& shape, std::uint64_t stream) {
  Tensor tensor(shape);
  Random random(11, stream);
  for (float& x : tensor.host_out()) x = value(number<Bfloat16>(random.uniform(-1, 1)));
  return tensor;
}

// Says how images lie in a trial.
struct Lie {
  int block;
  NumberType type;
  float tolerance;  // of the largest number
};
constexpr Lie kLies[] = {{8, NumberType::kFloat32, 1e-6f},
                         {16, NumberType::kFloat32, 1e-6f},
                         {8, NumberType::kBfloat16, 1e-2f},
                         {16, NumberType::kBfloat16, 1e-2f}};

LayoutPtr blocked(const Shape& shape, const Lie& lie) {
  return std::make_shared<BlockedChannels>(shape[1], shape.count(2), lie.block, lie.type);
}

// The channels that fill up the last block.
void expect_padding_of_zeros(const Tensor& tensor) {
  const LayoutPtr lies = tensor.layout();
  const BlockedChannels* const layout = as_blocked(lies);
  if (layout == nullptr || !layout->is_padded()) return;
  const std::int64_t size = size_of(layout->type), block = layout->block,
                     count = static_cast<std::int64_t>(layout->bytes(tensor.shape())) / size;
  const std::byte* const bytes = tensor.storage()->home_bytes();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t first = i / (layout->inner * block) % layout->blocks() * block;
    if (first + i % block < layout->channels) continue;
    for (std::int64_t b = 0; b < size; ++b) ASSERT_EQ(bytes[i * size + b], std::byte{}) << i;
  }
}

// Runs work(context, put) on plain tensors and again where put(tensor) lays a tensor in blocks;
// both must return the same numbers.
using Put = std::function<void(Tensor&)>;
using Work = std::function<std::vector<Tensor>(Context&, const Put&)>;
void expect_same(const Work& work) {
  for (int threads = 1; threads <= 3; ++threads) {
    Context context({.threads = threads});
    const std::vector<Tensor> want = work(context, [](Tensor&) {});
    for (const Lie& lie : kLies) {
      SCOPED_TRACE(str("blocks of ", lie.block, lie.type == NumberType::kFloat32 ? "" : ", 16 bits",
                       ", threads ", threads));
      const std::vector<Tensor> got = work(context, [&](Tensor& tensor) {
        const LayoutPtr layout = blocked(tensor.shape(), lie);
        tensor.mut(context, layout);
      });
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t t = 0; t < got.size(); ++t) {
        ASSERT_NO_FATAL_FAILURE(expect_padding_of_zeros(got[t])) << "tensor " << t;
        float most = 1e-3f;
        for (const float x : want[t].host()) most = std::max(most, std::fabs(x));
        for (std::size_t i = 0; i < want[t].host().size(); ++i)
          ASSERT_NEAR(got[t].host()[i], want[t].host()[i], lie.tolerance * 10 * most)
              << "tensor " << t << " number " << i;
      }
    }
  }
}

std::vector<Tensor> list(Tensor a) {
  std::vector<Tensor> all;
  all.push_back(std::move(a));
  return all;
}
std::vector<Tensor> list(Tensor a, Tensor b) {
  std::vector<Tensor> all = list(std::move(a));
  all.push_back(std::move(b));
  return all;
}

const Shape kShapes[] = {{2, 16, 5, 7}, {3, 20, 6, 6}, {1, 3, 9, 4}, {2, 33, 3, 3}, {5, 48, 4, 4}};

WindowAxis window(std::int64_t in, std::int64_t kernel, std::int64_t stride, std::int64_t pad) {
  WindowAxis axis{.in = in, .kernel = kernel, .stride = stride, .pad = pad};
  axis.out = (in + 2 * pad - kernel + stride - 1) / stride + 1;
  if (pad > 0 && (axis.out - 1) * stride >= in + pad) --axis.out;
  return axis;
}

TEST(BlockedOps, PoolsAsThePlainKernelDoes) {
  constexpr std::int64_t kWindows[][3] = {{2, 2, 0}, {3, 2, 0}, {3, 1, 1}, {3, 2, 1}, {2, 3, 1}};
  for (const Shape& shape : kShapes)
    for (const auto [kernel, stride, pad] : kWindows)
      for (const auto method : {PoolDesc::Method::kMax, PoolDesc::Method::kAverage}) {
        const PoolDesc desc{.method = method,
                            .planes = shape[0] * shape[1],
                            .height = window(shape[2], kernel, stride, pad),
                            .width = window(shape[3], kernel, stride, pad),
                            .keeps_winners = true};
        SCOPED_TRACE(str(shape.str(), " kernel ", kernel, " stride ", stride, " pad ", pad));
        expect_same([&](Context& ctx, const Put& put) {
          const auto pool = cpu_backend().pool.back()->make(desc, ctx);
          const Shape top{shape[0], shape[1], desc.height.out, desc.width.out};
          Tensor x = drawn(shape, 1), y(top), dy = drawn(top, 2), dx(shape);
          put(x);
          pool->forward(ctx, x, y, nullptr, {});
          put(dy);
          pool->backward(ctx, x, dy, dx);
          return list(std::move(y), std::move(dx));
        });
      }
}

TEST(BlockedOps, TheFirstOfEqualsWinsAndNansLose) {
  const Shape shape{1, 16, 2, 4};
  const PoolDesc desc{.planes = 16,
                      .height = window(2, 2, 2, 0),
                      .width = window(4, 2, 2, 0),
                      .keeps_winners = true};
  expect_same([&](Context& ctx, const Put& put) {
    const auto pool = cpu_backend().pool.back()->make(desc, ctx);
    const Shape top{1, 16, 1, 2};
    Tensor x(shape), y(top), dy = drawn(top, 2), dx(shape);
    std::ranges::fill(x.host_out(), 0.5f);
    for (std::int64_t c = 0; c < 16; ++c) x.host_mut()[c * 8] = std::nanf("");
    put(x);
    pool->forward(ctx, x, y, nullptr, {});
    pool->backward(ctx, x, dy, dx);
    return list(std::move(y), std::move(dx));
  });
}

TEST(BlockedOps, LrnIsThePlainKernels) {
  for (const Shape& shape : kShapes)
    for (const auto region : {LrnDesc::Region::kAcross, LrnDesc::Region::kWithin})
      for (const std::int64_t size : {3, 5, 9})
        for (const auto& [beta, k] : {std::pair{0.75f, 1.0f}, {0.6f, 1.0f}, {0.75f, 0.0f}}) {
          const LrnDesc desc{.region = region,
                             .images = shape[0],
                             .channels = shape[1],
                             .height = shape[2],
                             .width = shape[3],
                             .size = size,
                             .alpha = 2,
                             .beta = beta,
                             .k = k};
          SCOPED_TRACE(str(shape.str(), " size ", size, " beta ", beta, " k ", k));
          expect_same([&](Context& ctx, const Put& put) {
            const auto lrn = cpu_backend().lrn.back()->make(desc, ctx);
            Tensor x = drawn(shape, 1), y(shape), dy = drawn(shape, 2), dx(shape);
            put(x);
            lrn->forward(ctx, x, y);
            put(dy);
            lrn->backward(ctx, x, dy, dx);
            return list(std::move(y), std::move(dx));
          });
        }
}

TEST(BlockedOps, BatchNormalizationIsThePlainKernels) {
  for (const Shape& shape : kShapes)
    for (const bool batch : {true, false})
      for (const bool relu : {true, false}) {
        if (!batch && relu) continue;
        const BatchNormDesc desc{.images = shape[0], .channels = shape[1], .inner = shape.count(2)};
        SCOPED_TRACE(str(shape.str(), batch ? " batch" : " running", relu ? " ReLU" : ""));
        expect_same([&](Context& ctx, const Put& put) {
          const auto norm = cpu_backend().batch_norm.back()->make(desc, ctx);
          const Shape c{shape[1]};
          Tensor x = drawn(shape, 1), y(shape), dy = drawn(shape, 2), dx(shape), mean = drawn(c, 3),
                 variance(c), factor = drawn(c, 4), shift = drawn(c, 5), normalized(shape),
                 running_mean(c), running_variance(c), weight(Shape{1}), g_factor(c), g_shift(c);
          std::ranges::fill(variance.host_out(), 0.7f);
          const std::optional<float> slope = relu ? std::optional(0.0f) : std::nullopt;
          const AfterNorm after{&factor, &shift, slope, &normalized};
          put(x);
          if (batch)
            norm->forward_batch(ctx, x, mean, variance,
                                {&running_mean, &running_variance, &weight, 0.9f}, after, y);
          else
            norm->forward_global(ctx, x, mean, variance, after, y);
          const AfterNormBackward back{
              &factor, &shift, slope, {&g_factor, false}, {&g_shift, false}};
          const NormInput input{&normalized, true};
          if (batch)
            norm->backward_batch(ctx, input, mean, variance, dy, back, &dx);
          else
            norm->backward_global(ctx, input, mean, variance, dy, back, &dx);
          std::vector<Tensor> all = list(std::move(y), std::move(dx));
          for (Tensor* more : {&mean, &variance, &running_mean, &running_variance, &weight})
            all.push_back(std::move(*more));
          return all;
        });
      }
}

TEST(BlockedOps, TakeEachNumberAlone) {
  for (const Shape& shape : kShapes)
    expect_same([&](Context& ctx, const Put& put) {
      Tensor x = drawn(shape, 1), z = drawn(shape, 2), y(shape), sum(shape), added(shape),
             copied(shape), dx(shape), raised(shape);
      put(x);
      map(ctx, {MapKind::kRelu}, x, y);
      map_backward(ctx, {MapKind::kRelu}, y, z, dx);
      map(ctx, {MapKind::kExp, 1, 1}, x, raised);
      const Tensor* const terms[] = {&x, &z, &y};
      const float weights[] = {1, -2, 0.5f};
      weighted_sum(ctx, terms, weights, sum, 0.1f);
      add(ctx, x, z, added);
      copy(ctx, x, copied);
      std::vector<Tensor> all = list(std::move(y), std::move(dx));
      for (Tensor* more : {&sum, &added, &copied, &raised}) all.push_back(std::move(*more));
      return all;
    });
}

TEST(BlockedOps, DropTheSameNumbers) {
  for (const Shape& shape : kShapes)
    expect_same([&](Context& ctx, const Put& put) {
      Tensor x = drawn(shape, 1), y(shape);
      put(x);
      dropout(ctx, Random(5).state(), 0.4f, x, y);
      return list(std::move(y));
    });
}

TEST(BlockedOps, CutAndPasteChannels) {
  for (const std::int64_t at : {0, 16, 32, 5})
    for (const std::int64_t channels : {16, 32, 3})
      expect_same([&](Context& ctx, const Put& put) {
        const Shape whole{2, at + channels, 3, 5}, part{2, channels, 3, 5};
        Tensor x = drawn(whole, 1), y(part), z = drawn(part, 2), all = drawn(whole, 3);
        put(x);
        cut(ctx, x, along(whole, 1, at), y);
        put(z);
        paste(ctx, z, all, along(whole, 1, at));
        return list(std::move(y), std::move(all));
      });
}

TEST(BlockedOps, AddABiasAndSumItsGradient) {
  for (const Shape& shape : kShapes)
    expect_same([&](Context& ctx, const Put& put) {
      Tensor y = drawn(shape, 1), b = drawn(Shape{shape[1]}, 2), db = drawn(Shape{shape[1]}, 3);
      put(y);
      add_bias(ctx, shape[1], shape.count(2), b, y);
      add_bias_gradient(ctx, shape[1], shape.count(2), y, db);
      return list(std::move(y), std::move(db));
    });
}

// Returns the dims of a number a channel, a channel of each image, and one for all, and of others.
std::vector<BroadcastDims> dims_of(const Shape& shape) {
  const std::int64_t images = shape[0], channels = shape[1], places = shape.count(2);
  return {{images, channels, places},     {1, images * channels, places},
          {1, 1, shape.count()},          {images * channels, shape[2], shape[3]},
          {1, images, channels * places}, {images, channels * places, 1}};
}

TEST(BlockedOps, ScaleAndShift) {
  for (const Shape& shape : kShapes)
    for (const BroadcastDims& dims : dims_of(shape))
      for (const bool in_place : {false, true}) {
        SCOPED_TRACE(str(shape.str(), " as ", dims.outer, " x ", dims.dim, " x ", dims.inner));
        expect_same([&](Context& ctx, const Put& put) {
          const Shape d{dims.dim};
          Tensor x = drawn(shape, 1), factor = drawn(d, 2), add = drawn(d, 3), y(shape), z(shape),
                 u(shape), v = drawn(shape, 4);
          put(x);
          put(v);
          scale_and_shift(ctx, dims, x, factor, &add, y);
          scale_and_shift(ctx, dims, x, factor, nullptr, z);
          shift(ctx, dims, x, add, in_place ? x : u);
          if (in_place) scale_and_shift(ctx, dims, v, factor, &add, v);
          std::vector<Tensor> all = list(std::move(y), std::move(z));
          for (Tensor* more : {&x, &u, &v}) all.push_back(std::move(*more));
          return all;
        });
      }
}

TEST(BlockedOps, GradientsOfScaleAndShift) {
  for (const Shape& shape : kShapes)
    for (const BroadcastDims& dims : dims_of(shape))
      for (const bool in_place : {false, true}) {
        SCOPED_TRACE(str(shape.str(), " as ", dims.outer, " x ", dims.dim, " x ", dims.inner));
        expect_same([&](Context& ctx, const Put& put) {
          const Shape d{dims.dim};
          Tensor x = drawn(shape, 1), factor = drawn(d, 2), dy = drawn(shape, 3), dx(shape),
                 g_factor = drawn(d, 4), g_shift = drawn(d, 5), over = drawn(d, 6), sums(d);
          put(x);
          put(dy);
          shift_backward(ctx, dims, dy, {&g_shift, true});
          scale_backward(ctx, dims, dy, x, factor, nullptr, {&over, false}, {});
          scale_backward(ctx, dims, dy, x, factor, nullptr, {}, {&sums, false});
          scale_backward(ctx, dims, dy, x, factor, in_place ? &dy : &dx, {&g_factor, true},
                         {&g_shift, true});
          std::vector<Tensor> all = list(std::move(dx), std::move(dy));
          for (Tensor* more : {&g_factor, &g_shift, &over, &sums}) all.push_back(std::move(*more));
          Tensor alone = drawn(shape, 7);
          put(alone);
          scale_backward(ctx, dims, alone, x, factor, &alone, {}, {});
          all.push_back(std::move(alone));
          return all;
        });
      }
}

TEST(BlockedOps, PReluAndItsGradients) {
  for (const Shape& shape : kShapes)
    for (const bool shared : {false, true})
      for (const bool in_place : {false, true}) {
        SCOPED_TRACE(str(shape.str(), shared ? " shared" : ""));
        expect_same([&](Context& ctx, const Put& put) {
          const Shape c{shared ? 1 : shape[1]};
          const std::int64_t inner = shape.count(shared ? 1 : 2);
          Tensor x = drawn(shape, 1), slope = drawn(c, 2), dy = drawn(shape, 3), y(shape),
                 dx(shape), dslope = drawn(c, 4);
          // Sets a kink, and a number of which no product is to be taken.
          x.host_mut()[0] = 0;
          x.host_mut()[1] = 2e38f;
          put(x);
          put(dy);
          prelu(ctx, x, slope, inner, y);
          prelu_slope_backward(ctx, x, inner, dy, dslope);
          prelu_backward(ctx, x, slope, inner, dy, in_place ? dy : dx);
          // The largest number would hide the others.
          y.host_mut()[1] = 0;
          std::vector<Tensor> all = list(std::move(y), std::move(dx));
          for (Tensor* more : {&dy, &dslope}) all.push_back(std::move(*more));
          return all;
        });
      }
}

// As in plain order: infinity above zero adds nothing to a slope's gradient.
TEST(BlockedOps, PReluTakesNoProductOfZeroAndInfinity) {
  const Shape shape{1, 16, 1, 3};
  expect_same([&](Context& ctx, const Put& put) {
    Tensor x = drawn(shape, 1), dy = drawn(shape, 2), dslope(Shape{16});
    x.host_mut()[0] = INFINITY;
    x.host_mut()[4] = 1;
    dy.host_mut()[4] = INFINITY;
    put(x);
    put(dy);
    prelu_slope_backward(ctx, x, 3, dy, dslope);
    return list(std::move(dslope));
  });
}

TEST(BlockedOps, APackedTensorIsThePlainOne) {
  for (const Shape& shape : kShapes)
    for (const Lie& lie : kLies) {
      const BlockedChannels layout(shape[1], shape.count(2), lie.block, lie.type);
      const Tensor x = drawn(shape, 1);
      std::vector<std::byte> packed(layout.bytes(shape));
      std::vector<float> back(x.host().size());
      layout.pack(shape, x.in(), packed.data());
      layout.unpack(shape, packed.data(), back.data());
      for (std::size_t i = 0; i < back.size(); ++i)
        ASSERT_EQ(back[i], lie.type == NumberType::kFloat32 ? x.host()[i]
                                                            : value(number<Bfloat16>(x.host()[i])));
    }
}

TEST(BlockedOps, SixteenBitsAreRoundedToTheNearest) {
  EXPECT_EQ(value(number<Bfloat16>(1.00390625f)), 1.0f);       // a tie goes to the even one
  EXPECT_EQ(value(number<Bfloat16>(1.01171875f)), 1.015625f);  // likewise
  EXPECT_EQ(value(number<Bfloat16>(3.4e38f)), INFINITY);       // too large
  EXPECT_EQ(value(number<Bfloat16>(-1.0f / 3)), -0.333984375f);
  EXPECT_TRUE(std::isnan(value(number<Bfloat16>(std::nanf("")))));
}

}  // namespace
}  // namespace shoal::ops
