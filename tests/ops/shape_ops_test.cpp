// Ops that move boxes, spread vectors and sum rows, against loops too plain to be wrong; and one
// thread against two.
#include <gtest/gtest.h>

#include <cmath>

#include "shoal/base/random.h"
#include "shoal/ops/broadcast.h"
#include "shoal/ops/eltwise.h"
#include "shoal/ops/reduce.h"
#include "shoal/ops/slice.h"
#include "support/layer_rig.h"

namespace shoal::test::shape_ops_test {
namespace {

Tensor drawn(const Shape& shape, std::uint64_t stream) {
  Tensor tensor(shape);
  Random random(7, stream);
  for (float& x : tensor.host_out()) x = random.gaussian(0, 1);
  return tensor;
}

// Runs f with one thread and with two, expects the same bits, and returns them.
template <class F>
std::vector<Numbers> with_both(F f) {
  Context one({.device = {}, .threads = 1, .seed = 1}),
      two({.device = {}, .threads = 2, .seed = 1});
  const std::vector<Numbers> result = f(one);
  EXPECT_EQ(f(two), result) << "two threads give other bits";
  return result;
}

TEST(ShapeOps, BoxesAreCutAndPasted) {
  const Shape whole{3, 20, 7, 40}, box{2, 20, 5, 33};
  const std::vector<std::int64_t> at = {1, 0, 2, 4};
  const Tensor x = drawn(whole, 1), small = drawn(box, 2);
  const auto inside = [&](std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
    return static_cast<std::size_t>(
        (((a + at[0]) * whole[1] + b + at[1]) * whole[2] + c + at[2]) * whole[3] + d + at[3]);
  };
  const std::vector<Numbers> got = with_both([&](Context& ctx) {
    Tensor piece(box), sum(box), pasted(whole);
    put(values(small), sum), put(values(x), pasted);
    ops::cut(ctx, x, at, piece);
    ops::add_cut(ctx, x, at, sum);
    ops::paste(ctx, small, pasted, at);
    return std::vector<Numbers>{values(piece), values(sum), values(pasted)};
  });
  Numbers pasted = values(x);
  std::size_t i = 0;
  for (std::int64_t a = 0; a < box[0]; ++a)
    for (std::int64_t b = 0; b < box[1]; ++b)
      for (std::int64_t c = 0; c < box[2]; ++c)
        for (std::int64_t d = 0; d < box[3]; ++d, ++i) {
          ASSERT_EQ(got[0][i], x.host()[inside(a, b, c, d)]) << i;
          ASSERT_EQ(got[1][i], small.host()[i] + x.host()[inside(a, b, c, d)]) << i;
          pasted[inside(a, b, c, d)] = small.host()[i];
        }
  EXPECT_EQ(got[2], pasted);
}

TEST(ShapeOps, AScalarIsABox) {
  const std::vector<Numbers> got = with_both([](Context& ctx) {
    const Tensor x = drawn(Shape(), 1);
    Tensor y{Shape()};
    ops::cut(ctx, x, {}, y);
    return std::vector<Numbers>{values(y), values(x)};
  });
  EXPECT_EQ(got[0], got[1]);
}

TEST(ShapeOps, ABoxOutsideIsOurOwnFault) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // other tests have left worker threads behind
  Context ctx({.device = {}, .threads = 1, .seed = 1});
  const Tensor x = drawn({2, 3}, 1);
  Tensor y(Shape{2, 2});
  EXPECT_DEATH(ops::cut(ctx, x, ops::along(x.shape(), 1, 2), y), "box 2 2");
}

// All the gradients and values of one spread, in double.
struct BroadcastOracle {
  std::vector<double> y, gx, g_factor, g_shift;
  BroadcastOracle(const ops::BroadcastDims& s, const Tensor& x, const Tensor& factor,
                  const Tensor& shift, const Tensor& g)
      : y(x.host().size()),
        gx(x.host().size()),
        g_factor(factor.host().size()),
        g_shift(factor.host().size()) {
    for (std::size_t k = 0; k < y.size(); ++k) {
      const std::size_t d = k / static_cast<std::size_t>(s.inner) % static_cast<std::size_t>(s.dim);
      y[k] = double{x.host()[k]} * factor.host()[d] + shift.host()[d];
      gx[k] = double{g.host()[k]} * factor.host()[d];
      g_factor[d] += double{g.host()[k]} * x.host()[k];
      g_shift[d] += g.host()[k];
    }
  }
};

Numbers to_floats(const std::vector<double>& numbers) { return {numbers.begin(), numbers.end()}; }

TEST(ShapeOps, VectorsAreSpreadAndSummed) {
  for (const ops::BroadcastDims& s :
       {ops::BroadcastDims{3, 5, 5000}, ops::BroadcastDims{70, 300, 1},
        ops::BroadcastDims{1, 1, 70000}, ops::BroadcastDims{500, 1, 90},
        ops::BroadcastDims{9, 65, 3}, ops::BroadcastDims{1, 40000, 1}}) {
    SCOPED_TRACE(str(s.outer, " x ", s.dim, " x ", s.inner));
    const Shape shape{s.outer, s.dim, s.inner};
    const Tensor x = drawn(shape, 1), g = drawn(shape, 2), factor = drawn({s.dim}, 3),
                 shift = drawn({s.dim}, 4);
    const BroadcastOracle want(s, x, factor, shift, g);
    const std::vector<Numbers> got = with_both([&](Context& ctx) {
      Tensor y(shape), in_place(shape), shifted(shape), g_factor(Shape{s.dim}),
          g_shift(Shape{s.dim}), again(Shape{s.dim});
      put(values(g), in_place);
      ops::scale_and_shift(ctx, s, x, factor, &shift, y);
      ops::shift(ctx, s, x, shift, shifted);
      ops::scale_backward(ctx, s, in_place, x, factor, &in_place, {&g_factor, false},
                          {&g_shift, true});
      ops::shift_backward(ctx, s, g, {&again, false});
      return std::vector<Numbers>{values(y),        values(shifted), values(in_place),
                                  values(g_factor), values(g_shift), values(again)};
    });
    EXPECT_LE(relative_error(got[0], to_floats(want.y)), 1e-6);
    for (std::size_t k = 0; k < got[1].size(); ++k)
      ASSERT_EQ(got[1][k], x.host()[k] + shift.host()[k / static_cast<std::size_t>(s.inner) %
                                                      static_cast<std::size_t>(s.dim)]);
    EXPECT_LE(relative_error(got[2], to_floats(want.gx)), 1e-6);
    EXPECT_LE(relative_error(got[3], to_floats(want.g_factor)), 1e-5);
    EXPECT_LE(relative_error(got[4], to_floats(want.g_shift)), 1e-5);
    EXPECT_EQ(got[5], got[4]);
  }
}

TEST(ShapeOps, RowsAreReduced) {
  for (const Shape& shape : {Shape{1, 50000}, Shape{3, 20000}, Shape{9000, 5}}) {
    SCOPED_TRACE(shape.str());
    const Tensor x = drawn(shape, 1);
    const std::vector<Numbers> got = with_both([&](Context& ctx) {
      std::vector<Numbers> sums;
      for (const ops::Reduce kind :
           {ops::Reduce::kSum, ops::Reduce::kAbsSum, ops::Reduce::kSquareSum}) {
        Tensor y(Shape{shape[0]});
        ops::reduce_rows(ctx, kind, 0.5f, x, y);
        sums.push_back(values(y));
      }
      return sums;
    });
    std::vector<std::vector<double>> want(3,
                                          std::vector<double>(static_cast<std::size_t>(shape[0])));
    for (std::size_t k = 0; k < x.host().size(); ++k) {
      const double v = x.host()[k];
      const std::size_t row = k / static_cast<std::size_t>(shape[1]);
      want[0][row] += 0.5 * v, want[1][row] += 0.5 * std::fabs(v), want[2][row] += 0.5 * v * v;
    }
    for (std::size_t kind = 0; kind < 3; ++kind)
      EXPECT_LE(relative_error(got[kind], to_floats(want[kind])), 1e-6) << kind;
  }
}

TEST(ShapeOps, SumsOfTensorsMayGoIntoOneOfThem) {
  const Shape shape{50001};
  const Tensor a = drawn(shape, 1), b = drawn(shape, 2), c = drawn(shape, 3);
  const std::vector<Numbers> got = with_both([&](Context& ctx) {
    Tensor apart(shape), into(shape);
    put(values(b), into);
    const Tensor* three[] = {&a, &b, &c};
    const Tensor* overwritten[] = {&a, &into, &c};
    const float weights[] = {1, -2, 0.5f};
    ops::weighted_sum(ctx, three, weights, apart);
    ops::weighted_sum(ctx, overwritten, weights, into);
    Tensor positive(shape), leaky(shape);
    ops::weighted_sum(ctx, three, weights, positive, 0);
    ops::weighted_sum(ctx, std::span(three).first(2), std::span(weights).first(2), leaky, 0.5f);
    return std::vector<Numbers>{values(apart), values(into), values(positive), values(leaky)};
  });
  EXPECT_EQ(got[0], got[1]);
  for (std::size_t k = 0; k < got[0].size(); ++k) {
    EXPECT_EQ(got[2][k], got[0][k] > 0 ? got[0][k] : 0);
    const double two = a.host()[k] - 2.0 * b.host()[k];
    EXPECT_NEAR(got[3][k], two > 0 ? two : two / 2, 1e-5);
  }
  Numbers want(got[0].size());
  for (std::size_t k = 0; k < want.size(); ++k)
    want[k] = a.host()[k] - 2 * b.host()[k] + 0.5f * c.host()[k];
  EXPECT_LE(relative_error(got[0], want), 1e-6);
}

}  // namespace
}  // namespace shoal::test::shape_ops_test
