// The elementary ops of a CUDA device beside the CPU's.
#include <gtest/gtest.h>

#include <array>

#include "cuda/both_devices.h"
#include "cuda/devices.h"
#include "shoal/ops/backend.h"

namespace shoal::test::cuda_ops_test {
namespace {

using Numbers = Start::Numbers;

class CudaOps : public OnCudaDevices {};
INSTANTIATE_TEST_SUITE_P(Devices, CudaOps, testing::ValuesIn(cuda_devices()), cuda_device_name);

std::vector<Tensor*> pointers(Ts& t) {
  std::vector<Tensor*> all;
  for (Tensor& one : t) all.push_back(&one);
  return all;
}

std::vector<const Tensor*> first(const Ts& t, std::size_t count) {
  std::vector<const Tensor*> pointers;
  for (std::size_t i = 0; i < count; ++i) pointers.push_back(&t[i]);
  return pointers;
}

// The results must not be trusted to be compared by luck.
TEST(BothDevices, AWrongNumberIsFound) {
  const Ts want = start({drawn({7}), odd({50})});
  const auto found = [&](auto spoil) {
    Ts got = start({drawn({7}), odd({50})});
    spoil(got);
    return difference(got, want, kRounding);
  };
  EXPECT_EQ(found([](Ts&) {}), "");
  EXPECT_NE(found([](Ts& t) { t[0].host_mut()[3] *= -1; }), "");
  EXPECT_NE(found([](Ts& t) { t[0].host_mut()[6] += 1e-5f; }), "");
  EXPECT_NE(found([](Ts& t) { t[0].host_mut()[0] = std::nanf(""); }), "");
  EXPECT_NE(found([](Ts& t) {
              for (float& x : t[1].host_mut()) x = std::isnan(x) ? 0 : x;
            }),
            "");
  EXPECT_NE(found([](Ts& t) {
              for (float& x : t[1].host_mut()) x = std::isinf(x) ? -x : x;
            }),
            "");
}

// ---- vector.h ----

TEST_P(CudaOps, VectorsAreTheCpus) {
  for (const std::int64_t n : {0, 1, 255, 1000})
    expect_same({
        {"fill", {blank({n})}, [](Context& ctx, Ts& t) { ops::fill(ctx, 2.5f, t[0]); }},
        {"copy", {odd({n}), blank({n})}, [](Context& ctx, Ts& t) { ops::copy(ctx, t[0], t[1]); }},
        {"scale", {odd({n})}, [](Context& ctx, Ts& t) { ops::scale(ctx, -3, t[0]); }},
        {"axpy",
         {odd({n}), drawn({n})},
         [](Context& ctx, Ts& t) { ops::axpy(ctx, 0.3f, t[0], t[1]); },
         kRounding},
        {"add",
         {odd({n}), drawn({n}), blank({n})},
         [](Context& ctx, Ts& t) { ops::add(ctx, t[0], t[1], t[2]); }},
        {"add in place",
         {drawn({n}), drawn({n})},
         [](Context& ctx, Ts& t) { ops::add(ctx, t[0], t[1], t[1]); }},
    });
}

TEST_P(CudaOps, SumsOverTensorsAreTheCpus) {
  const auto results = [](std::size_t count) {
    return [count](Context& ctx, Ts& t) {
      const auto x = first(t, count);
      const double sums[] = {ops::asum(ctx, x), ops::sum_of_squares(ctx, x),
                             ops::all_finite(ctx, x) ? 1.0 : 0.0};
      for (std::size_t i = 0; i < 3; ++i) t.back().host_out()[i] = static_cast<float>(sums[i]);
    };
  };
  const auto last = [](std::vector<Start> tensors) {
    tensors.push_back({Shape{3}, Numbers::kNaN});
    return tensors;
  };
  expect_same({
      {"none", last({}), results(0)},
      {"three", last({drawn({7, 3}), drawn({70000}), drawn({0})}), results(3), kRounding},
      {"many", last(std::vector<Start>(1100, drawn({3}))), results(1100), kRounding},
      {"not finite", last({drawn({5}), odd({100})}), results(2)},
  });
}

TEST_P(CudaOps, ManyTensorsAtOnceAreTheCpus) {
  const auto fill = [](Context& ctx, Ts& t) { ops::fill_all(ctx, 2.5f, pointers(t)); };
  const auto scale = [](Context& ctx, Ts& t) { ops::scale_all(ctx, -3, pointers(t)); };
  for (const auto& tensors :
       {std::vector<Start>{}, std::vector<Start>{odd({7, 3}), drawn({70000}), drawn({0})},
        std::vector<Start>(1100, drawn({3}))})
    expect_same({{"fill_all", tensors, fill}, {"scale_all", tensors, scale}});
}

TEST_P(CudaOps, OneInfinityAmongMany) {
  Context ctx({.device = GetParam()});
  Tensor x(Shape{70000});
  EXPECT_TRUE(ops::all_finite(ctx, first(start({drawn({70000})}), 1)));
  const Tensor* const all[] = {&x};
  for (const std::int64_t at : {0, 65535, 65536, 69999}) {
    std::ranges::fill(x.host_out(), 1.0f);
    x.host_mut()[static_cast<std::size_t>(at)] = -std::numeric_limits<float>::infinity();
    EXPECT_FALSE(ops::all_finite(ctx, all)) << at;
  }
}

// ---- gemm.h, broadcast.h ----

TEST_P(CudaOps, BiasesAndBroadcastsAreTheCpus) {
  for (const ops::BroadcastDims d : {ops::BroadcastDims{3, 5, 7},
                                     {4, 6, 1},
                                     {1, 1, 300},
                                     {2, 1, 9001},
                                     {700, 3, 1},
                                     {2, 1500, 1},
                                     {5, 3, 4001}}) {
    const std::int64_t n = d.outer * d.dim * d.inner, dim = d.dim;
    SCOPED_TRACE(str(d.outer, " x ", d.dim, " x ", d.inner));
    expect_same({
        {"add_bias",
         {drawn({dim}), drawn({n})},
         [=](Context& ctx, Ts& t) { ops::add_bias(ctx, dim, d.inner, t[0], t[1]); }},
        {"add_bias_gradient",
         {positive({n}), drawn({dim})},
         [=](Context& ctx, Ts& t) { ops::add_bias_gradient(ctx, dim, d.inner, t[0], t[1]); },
         kRounding},
        {"relu_and_bias_gradient",
         {drawn({n}), drawn({n}), drawn({dim}), drawn({n})},
         [=](Context& ctx, Ts& t) {
           if (!ops::relu_and_bias_gradient(ctx, 0, dim, d.inner, t[0], t[1], &t[2]))
             ops::add_bias_gradient(ctx, dim, d.inner, t[1], t[2]);
           ops::relu_and_bias_gradient(ctx, 0.25f, dim, d.inner, t[0], t[3], nullptr);
         },
         kRounding},
        {"scale_and_shift",
         {drawn({n}), drawn({dim}), drawn({dim}), blank({n}), drawn({n})},
         [=](Context& ctx, Ts& t) {
           ops::scale_and_shift(ctx, d, t[0], t[1], &t[2], t[3]);
           ops::scale_and_shift(ctx, d, t[4], t[1], nullptr, t[4]);
         },
         kRounding},
        {"shift",
         {drawn({n}), drawn({dim}), blank({n})},
         [=](Context& ctx, Ts& t) { ops::shift(ctx, d, t[0], t[1], t[2]); }},
        {"scale_backward",
         {positive({n}), positive({n}), drawn({dim}), blank({n}), drawn({dim}), blank({dim})},
         [=](Context& ctx, Ts& t) {
           ops::scale_backward(ctx, d, t[0], t[1], t[2], &t[3], {&t[4], true}, {&t[5], false});
         },
         kRounding},
        {"scale_backward in place",
         {positive({n}), positive({n}), drawn({dim}), blank({dim}), drawn({dim})},
         [=](Context& ctx, Ts& t) {
           ops::scale_backward(ctx, d, t[0], t[1], t[2], &t[0], {&t[3], false}, {&t[4], true});
         },
         kRounding},
        {"parts of scale_backward",
         {positive({n}), positive({n}), drawn({dim}), blank({dim}), drawn({dim}), blank({n})},
         [=](Context& ctx, Ts& t) {
           ops::scale_backward(ctx, d, t[0], t[1], t[2], nullptr, {&t[3], false}, {});
           ops::scale_backward(ctx, d, t[0], t[1], t[2], nullptr, {}, {&t[4], true});
           ops::scale_backward(ctx, d, t[0], t[1], t[2], &t[5], {}, {});
         },
         kRounding},
        {"shift_backward",
         {positive({n}), blank({dim})},
         [=](Context& ctx, Ts& t) {
           ops::shift_backward(ctx, d, t[0], {&t[1], false});
         },
         kRounding},
    });
  }
}

// ---- recurrent.h ----

TEST_P(CudaOps, StepsOfAMemoryAreTheCpus) {
  constexpr std::int64_t kSequences = 5, kUnits = 7;
  const Start cont{{kSequences}, Numbers::kWhole, 2}, of = drawn({kSequences, kUnits}),
                                                      gates = drawn({kSequences, 4 * kUnits}),
                                                      result = blank({kSequences, kUnits});
  const auto backward = [](bool is_last) {
    return [is_last](Context& ctx, Ts& t) {
      ops::lstm_step_backward(ctx, t[0], t[1], t[2], t[3], is_last ? nullptr : &t[6], t[4], t[5],
                              t[6]);
    };
  };
  const std::vector<Start> inputs{cont, gates, of, of, of, blank({kSequences, 4 * kUnits})};
  const auto with = [&inputs](const Start& last) {
    std::vector<Start> all = inputs;
    all.push_back(last);
    return all;
  };
  expect_same({
      {"lstm_step",
       {cont, gates, of, result, result},
       [](Context& ctx, Ts& t) { ops::lstm_step(ctx, t[0], t[1], t[2], t[3], t[4]); },
       kRounding},
      {"lstm_step_backward", with(of), backward(false), kRounding},
      {"lstm_step_backward, last", with(result), backward(true), kRounding},
  });
}

// ---- rows.h, slice.h ----

TEST_P(CudaOps, RowsAreTheCpus) {
  const Start index{{40}, Numbers::kWhole, 9};
  expect_same({
      {"take_rows",
       {drawn({9, 5}), index, blank({40, 5})},
       [](Context& ctx, Ts& t) { ops::take_rows(ctx, t[0], t[1], t[2]); }},
      {"add_rows",
       {drawn({40, 5}), index, drawn({9, 5})},
       [](Context& ctx, Ts& t) { ops::add_rows(ctx, t[0], t[1], t[2]); }},
      {"first_bad_row",
       {index, blank({2})},
       [](Context& ctx, Ts& t) {
         const auto bad = [&](int rows) { return ops::first_bad_row(ctx, t[0], rows); };
         const std::int64_t found[] = {bad(9), bad(7)};
         for (std::size_t i = 0; i < 2; ++i) t[1].host_out()[i] = static_cast<float>(found[i]);
       }},
  });
}

TEST_P(CudaOps, BoxesAreTheCpus) {
  struct Box {
    Shape box, whole;
    std::vector<std::int64_t> at;
  };
  for (const Box& b : {Box{{2, 3, 4}, {2, 3, 4}, {0, 0, 0}},
                       {{2, 3, 4}, {5, 3, 4}, {3, 0, 0}},
                       {{2, 2, 4}, {2, 5, 4}, {0, 1, 0}},
                       {{2, 2, 3, 4}, {3, 4, 5, 6}, {1, 2, 1, 1}},
                       {{1, 3, 1}, {4, 3, 5}, {2, 0, 4}},
                       {{2, 1, 3, 2, 2}, {2, 6, 3, 2, 4}, {0, 5, 0, 0, 1}},
                       {{7}, {9}, {1}},
                       {{0, 3}, {4, 3}, {2, 0}},
                       {{}, {}, {}}})
    expect_same({
        {str("cut ", b.box.str(), " of ", b.whole.str()),
         {drawn(b.whole), blank(b.box)},
         [&](Context& ctx, Ts& t) { ops::cut(ctx, t[0], b.at, t[1]); }},
        {str("add_cut ", b.box.str(), " of ", b.whole.str()),
         {drawn(b.whole), drawn(b.box)},
         [&](Context& ctx, Ts& t) { ops::add_cut(ctx, t[0], b.at, t[1]); }},
        {str("paste ", b.box.str(), " into ", b.whole.str()),
         {drawn(b.box), drawn(b.whole)},
         [&](Context& ctx, Ts& t) { ops::paste(ctx, t[0], t[1], b.at); }},
    });
}

// Some channels of images are cut out and pasted without turning the images.
TEST_P(CudaOps, BoxesOfChannelsKeepChannelsLast) {
  for (const auto& [channels, all, first] : {std::tuple{3, 7, 2}, {1, 7, 2}, {16, 40, 8}}) {
    const Shape box{2, channels, 3, 4}, whole{2, all, 3, 4};
    const std::vector<std::int64_t> at{0, first, 0, 0};
    const int in_box = channels, in_whole = all;
    for (const bool of_box : {true, false}) {
      const auto with = [=](auto&& op) {
        return [=](Context& ctx, Ts& t) {
          put_channels_last(ctx, t[0], of_box ? in_box : 1, of_box ? 12 : 1);
          put_channels_last(ctx, t[1], of_box ? 1 : in_whole, of_box ? 1 : 12);
          op(ctx, t[0], t[1]);
          if (of_box && in_box == 1) return;  // which are in plain order, too
          expect_channels_last(ctx, t[0], in_box, 12);
          expect_channels_last(ctx, t[1], in_whole, 12);
        };
      };
      const std::vector<Start> both{drawn(box), drawn(whole)};
      expect_same_in_all_types({
          {"cut", both, with([=](Context& ctx, Tensor& b, Tensor& w) { ops::cut(ctx, w, at, b); })},
          {"add_cut", both,
           with([=](Context& ctx, Tensor& b, Tensor& w) { ops::add_cut(ctx, w, at, b); })},
          {"paste", both,
           with([=](Context& ctx, Tensor& b, Tensor& w) { ops::paste(ctx, b, w, at); })},
      });
    }
  }
  // A box of other places is cut in plain order.
  expect_same_in_all_types(
      {{"places", {drawn({2, 3, 2, 4}), drawn({2, 7, 3, 4})}, [](Context& ctx, Ts& t) {
          put_channels_last(ctx, t[1], 7, 12);
          ops::paste(ctx, t[0], t[1], std::vector<std::int64_t>{0, 2, 1, 0});
        }}});
}

// ---- reduce.h ----

TEST_P(CudaOps, ReductionsAreTheCpus) {
  using ops::Reduce;
  for (const auto& [rows, length] : {std::pair{1, 1}, {3, 7}, {5, 300}, {1, 9001}, {0, 4}, {4, 0}})
    for (const Reduce kind : {Reduce::kSum, Reduce::kAbsSum, Reduce::kSquareSum}) {
      SCOPED_TRACE(str(rows, " x ", length, ", kind ", static_cast<int>(kind)));
      expect_same({
          {"reduce_rows",
           {positive({rows, length}), blank({rows})},
           [=](Context& ctx, Ts& t) { ops::reduce_rows(ctx, kind, -0.7f, t[0], t[1]); },
           kRounding},
          {"reduce_rows_backward",
           {drawn({rows}), ties({rows, length}), blank({rows, length})},
           [=](Context& ctx, Ts& t) {
             ops::reduce_rows_backward(ctx, kind, 0.7f, t[0], t[1], t[2]);
           }},
          {"reduce_rows_backward in place",
           {drawn({rows}), drawn({rows, length})},
           [=](Context& ctx, Ts& t) {
             ops::reduce_rows_backward(ctx, kind, 0.7f, t[0], t[1], t[1]);
           }},
      });
    }
}

TEST_P(CudaOps, StandardRowsAreTheCpus) {
  for (const auto& [rows, length] : {std::pair{1, 2}, {3, 7}, {5, 300}})
    for (const bool divided : {false, true}) {
      SCOPED_TRACE(str(rows, " x ", length, divided ? ", divided" : ""));
      const std::int64_t divisors = divided ? rows : 0;
      expect_same({
          {"standardize_rows",
           {positive({rows, length}), blank({rows, length}), blank({divisors})},
           [=](Context& ctx, Ts& t) {
             ops::standardize_rows(ctx, rows, 1e-3f, t[0], t[1], t[2]);
             ops::standardize_rows(ctx, rows, 1e-3f, t[0], t[0], t[2]);
           },
           kRounding},
          {"standardize_rows_backward",
           {drawn({rows, length}), drawn({rows, length}), positive({divisors}),
            blank({rows, length})},
           [=](Context& ctx, Ts& t) {
             ops::standardize_rows_backward(ctx, rows, t[0], t[1], t[2], t[3]);
             ops::standardize_rows_backward(ctx, rows, t[0], t[1], t[2], t[0]);
           },
           kRounding},
      });
    }
}

// ---- eltwise.h ----

TEST_P(CudaOps, ElementsOfSeveralTensorsAreTheCpus) {
  for (const std::size_t count : {1, 2, 3, 5}) {
    std::vector<Start> inputs(count, odd({300}));
    inputs.push_back(drawn({300}));
    inputs.push_back(blank({300}));
    std::vector<Start> equals(count, ties({300}));
    equals.push_back(blank({300}));
    equals.push_back(blank({300}));
    const std::vector<float> weights{0.5f, -1, 2, 0.25f, -3};
    const std::span<const float> some(weights.data(), count);
    expect_same({
        {"sum", inputs,
         [=](Context& ctx, Ts& t) { ops::weighted_sum(ctx, first(t, count), {}, t.back()); }},
        {"weighted sum", inputs,
         [=](Context& ctx, Ts& t) {
           ops::weighted_sum(ctx, first(t, count), some, t.back());
           ops::weighted_sum(ctx, first(t, count), some, t[count - 1]);
         },
         kRounding},
        {"ReLU of the sum", inputs,
         [=](Context& ctx, Ts& t) {
           ops::weighted_sum(ctx, first(t, count), {}, t.back(), 0);
           ops::weighted_sum(ctx, first(t, count), {}, t[count - 1], 0.25f);
         }},
        {"product", inputs,
         [=](Context& ctx, Ts& t) { ops::product(ctx, first(t, count), t.back()); }},
        {"product_but_one", inputs,
         [=](Context& ctx, Ts& t) {
           ops::product_but_one(ctx, first(t, count), 0, t[count], t.back());
           ops::product_but_one(ctx, first(t, count), -1, t[count], t[count]);
         }},
        {"product_over", inputs,
         [=](Context& ctx, Ts& t) { ops::product_over(ctx, t[0], t[count], t[0], t.back()); }},
    });
    if (count < 2) continue;
    const auto run = [=](Context& ctx, Ts& t) {
      ops::maximum(ctx, first(t, count), t[count], t[count + 1]);
      ops::take_where(ctx, t[count + 1], 1, t[0], t[1]);
    };
    expect_same({{"maximum", inputs, run}, {"maximum of equals", equals, run}});
  }
}

}  // namespace
}  // namespace shoal::test::cuda_ops_test
