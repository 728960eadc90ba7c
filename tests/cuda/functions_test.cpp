// The functions of one number, losses and update rules of a CUDA device beside the CPU's.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "cuda/both_devices.h"
#include "cuda/devices.h"
#include "shoal/ops/backend.h"

namespace shoal::test::cuda_functions_test {
namespace {

using Numbers = Start::Numbers;

class CudaFunctions : public OnCudaDevices {};
INSTANTIATE_TEST_SUITE_P(Devices, CudaFunctions, testing::ValuesIn(cuda_devices()),
                         cuda_device_name);

// ---- pointwise.h ----

TEST_P(CudaFunctions, MapsAreTheCpus) {
  using ops::MapKind;
  for (const ops::Map& map : {ops::Map{MapKind::kRelu},
                              {MapKind::kRelu, 0.1f},
                              {MapKind::kRelu, -0.1f},
                              {MapKind::kElu, 0.7f},
                              {MapKind::kElu, -0.7f},
                              {MapKind::kSigmoid},
                              {MapKind::kTanh},
                              {MapKind::kAbs},
                              {MapKind::kPower, 1, 2, 3},
                              {MapKind::kPower, 2, 0.5f, 3},
                              {MapKind::kPower, 0.5f, 1, 2},
                              {MapKind::kPower, 1.7f, 0.5f, 2},
                              {MapKind::kPower, 2, 0, 3},
                              {MapKind::kExp, 0.5f, 2},
                              {MapKind::kLog, 0.5f, 2, 3},
                              {MapKind::kSoftplus},
                              {MapKind::kThreshold, 0.25f},
                              {MapKind::kClip, -0.5f, 0.5f},
                              {MapKind::kSwish, 1.5f},
                              {MapKind::kCapped, 0, 0.5f},
                              {MapKind::kCapped, 0.1f, 0.5f}})
    for (const Start& x : {drawn({300}), ties({300}), odd({0})}) {
      const auto forward = [=](Context& ctx, Ts& t) {
        ops::map(ctx, map, t[0], t[1]);
        ops::map(ctx, map, t[2], t[2]);
      };
      const auto backward = [=](Context& ctx, Ts& t) {
        ops::map_backward(ctx, map, t[0], t[1], t[2]);
        ops::map_backward(ctx, map, t[0], t[1], t[1]);
      };
      const std::string name =
          str("kind ", static_cast<int>(map.kind), ", a ", map.a, ", b ", map.b, ", c ", map.c);
      expect_same({
          {name, {x, blank(x.shape), x}, forward, kRounding},
          {name + ", backward", {x, drawn(x.shape), blank(x.shape)}, backward, kRounding},
      });
    }
}

TEST_P(CudaFunctions, OpsOfEachNumberKeepChannelsLast) {
  for (const int channels : {5, 8}) {
    const Shape x{2, channels, 3, 4};
    const auto run = [=](Context& ctx, Ts& t) {
      for (Tensor& one : t) put_channels_last(ctx, one, channels, 12);
      const Tensor* const both[] = {&t[0], &t[1]};
      ops::map(ctx, {ops::MapKind::kTanh}, t[0], t[2]);
      ops::map_backward(ctx, {ops::MapKind::kTanh}, t[2], t[1], t[3]);
      ops::weighted_sum(ctx, both, {}, t[4]);
      ops::maximum(ctx, both, t[5], t[6]);
      ops::take_where(ctx, t[6], 1, t[0], t[7]);
      ops::copy(ctx, t[4], t[8]);
      ops::add(ctx, t[0], t[1], t[9]);
      ops::axpy(ctx, 2, t[0], t[9]);
      ops::scale(ctx, 0.5f, t[9]);
      ops::product(ctx, both, t[10]);
      ops::product_but_one(ctx, both, 0, t[3], t[11]);
      ops::fill(ctx, 0.75f, t[12]);
      const Tensor* const three[] = {&t[0], &t[1], &t[2]};
      ops::weighted_sum(ctx, three, {}, t[13]);
      const Tensor* const four[] = {&t[0], &t[1], &t[2], &t[3]};
      ops::weighted_sum(ctx, four, {}, t[14]);
      Tensor* const two[] = {&t[13], &t[14]};
      ops::scale_all(ctx, 0.5f, two);
      for (const Tensor& one : t) expect_channels_last(ctx, one, channels, 12);
    };
    expect_same_in_all_types({{"both last", std::vector<Start>(15, drawn(x)), run, kRounding}});
    const auto mixed = [=](Context& ctx, Ts& t) {
      put_channels_last(ctx, t[0], channels, 12);
      const Tensor* const both[] = {&t[0], &t[1]};
      ops::weighted_sum(ctx, both, {}, t[2]);
      ops::add(ctx, t[0], t[1], t[3]);
      put_channels_last(ctx, t[1], channels, 12);
      ops::axpy(ctx, 2, t[1], t[3]);
    };
    expect_same_in_all_types({{"one last", std::vector<Start>(4, drawn(x)), mixed, kRounding}});
  }
}

TEST_P(CudaFunctions, ANaNStaysANaN) {
  using ops::MapKind;
  for (const MapKind kind :
       {MapKind::kRelu, MapKind::kElu, MapKind::kSigmoid, MapKind::kTanh, MapKind::kAbs,
        MapKind::kExp, MapKind::kSoftplus, MapKind::kClip, MapKind::kCapped})
    expect_same({{str("kind ", static_cast<int>(kind)),
                  {odd({300}), blank({300})},
                  [=](Context& ctx, Ts& t) {
                    ops::map(ctx, {kind, 0.5f, 2}, t[0], t[1]);
                    ops::map(ctx, {kind, 0, 2}, t[0], t[0]);
                  },
                  kRounding}});
}

TEST_P(CudaFunctions, PReluIsTheCpus) {
  for (const auto& [outer, channels, inner] : {std::tuple{3, 4, 5}, {2, 1, 9000}, {4, 3, 1}}) {
    const Shape x{outer, channels, inner}, c{channels};
    const int per = inner;
    expect_same({
        {"prelu",
         {odd(x), drawn(c), blank(x)},
         [=](Context& ctx, Ts& t) {
           ops::prelu(ctx, t[0], t[1], per, t[2]);
           ops::prelu(ctx, t[0], t[1], per, t[0]);
         }},
        {"prelu_backward",
         {ties(x), drawn(c), drawn(x), blank(x)},
         [=](Context& ctx, Ts& t) {
           ops::prelu_backward(ctx, t[0], t[1], per, t[2], t[3]);
           ops::prelu_backward(ctx, t[0], t[1], per, t[2], t[2]);
         }},
        {"prelu_slope_backward",
         {ties(x), positive(x), drawn(c)},
         [=](Context& ctx, Ts& t) { ops::prelu_slope_backward(ctx, t[0], per, t[1], t[2]); },
         kRounding},
    });
  }
}

TEST_P(CudaFunctions, DropoutThrowsTheCpusCoins) {
  for (const std::uint64_t position : {0u, 1u, 2u, 3u, 1000003u})
    for (const std::int64_t n : {0, 1, 2, 3, 4, 5, 1000}) {
      const Random::State coins{12345678901234567, 987654321, position};
      expect_same(
          {{str(n, " from ", position), {positive({n}), blank({n})}, [=](Context& ctx, Ts& t) {
              ops::dropout(ctx, coins, 0.3f, t[0], t[1]);
              ops::dropout(ctx, coins, 0.8f, t[0], t[0]);
            }}});
    }
}

// ---- loss.h ----

std::vector<CudaCase> class_losses(const ops::ClassDesc& d) {
  const int classes = static_cast<int>(d.classes);
  const Shape x{d.outer, d.classes, d.inner};
  const Start labels{{d.outer, d.inner}, Numbers::kLabels, classes};
  const Start gains = positive({classes, classes});
  const float floor = 0.3f;  // above some of the probabilities
  return {
      {"check_labels",
       {labels, blank({2})},
       [=](Context& ctx, Ts& t) {
         const ops::LabelCheck check = ops::check_labels(ctx, d, t[0]);
         t[1].host_out()[0] = static_cast<float>(check.counted);
         t[1].host_mut()[1] = static_cast<float>(check.first_bad);
       }},
      {"log_loss",
       {positive(x), labels, blank({1})},
       [=](Context& ctx, Ts& t) { ops::log_loss(ctx, d, t[0], t[1], floor, 3, t[2]); },
       kRounding},
      {"log_loss_backward",
       {positive(x), labels, blank(x)},
       [=](Context& ctx, Ts& t) { ops::log_loss_backward(ctx, d, t[0], t[1], floor, 2, t[2]); },
       kRounding},
      {"softmax_log_loss_backward",
       {positive(x), labels, blank(x)},
       [=](Context& ctx, Ts& t) { ops::softmax_log_loss_backward(ctx, d, t[0], t[1], 2, t[2]); },
       kRounding},
      {"infogain_loss",
       {positive(x), labels, gains, blank({1})},
       [=](Context& ctx, Ts& t) { ops::infogain_loss(ctx, d, t[0], t[1], t[2], floor, 3, t[3]); },
       kRounding},
      {"softmax_infogain_loss_backward",
       {positive(x), labels, gains, blank(x)},
       [=](Context& ctx, Ts& t) {
         ops::softmax_infogain_loss_backward(ctx, d, t[0], t[1], t[2], 2, t[3]);
       },
       kRounding},
      {"hinge_loss",
       {ties(x), labels, blank({1}), blank({1})},
       [=](Context& ctx, Ts& t) {
         ops::hinge_loss(ctx, d, t[0], t[1], ops::HingeNorm::kL1, 3, t[2]);
         ops::hinge_loss(ctx, d, t[0], t[1], ops::HingeNorm::kL2, 3, t[3]);
       },
       kRounding},
      {"hinge_loss_backward",
       {ties(x), labels, blank(x), blank(x)},
       [=](Context& ctx, Ts& t) {
         ops::hinge_loss_backward(ctx, d, t[0], t[1], ops::HingeNorm::kL1, 3, t[2]);
         ops::hinge_loss_backward(ctx, d, t[0], t[1], ops::HingeNorm::kL2, 3, t[3]);
       },
       kRounding},
  };
}

TEST_P(CudaFunctions, ClassLossesAreTheCpus) {
  for (const ops::ClassDesc& desc :
       {ops::ClassDesc{40, 10, 1}, {3, 5, 7, -1}, {2, 4, 300, 2}, {70, 1, 1}, {2, 300, 1, 0}}) {
    SCOPED_TRACE(str(desc.outer, " x ", desc.classes, " x ", desc.inner));
    expect_same(class_losses(desc));
  }
}

TEST_P(CudaFunctions, LossesOfNumbersAreTheCpus) {
  for (const std::int64_t n : {1, 300, 10000})
    for (const std::optional<int> ignore : {std::optional<int>(), {0}, {1}})
      expect_same({
          {"sigmoid_cross_entropy",
           {drawn({n}), ties({n}), blank({1})},
           [=](Context& ctx, Ts& t) {
             ops::sigmoid_cross_entropy(ctx, t[0], t[1], ignore, 3, t[2]);
           },
           kRounding},
          {"sigmoid_cross_entropy_backward",
           {drawn({n}), ties({n}), blank({n})},
           [=](Context& ctx, Ts& t) {
             ops::sigmoid_cross_entropy_backward(ctx, t[0], t[1], ignore, 3, t[2]);
           },
           kRounding},
          {"count_targets",
           {ties({n}), blank({1})},
           [=](Context& ctx, Ts& t) {
             t[1].host_out()[0] = static_cast<float>(ops::count_targets(ctx, t[0], ignore));
           }},
          {"squared_distance",
           {drawn({n}), drawn({n}), blank({1})},
           [](Context& ctx, Ts& t) { ops::squared_distance(ctx, t[0], t[1], 7, t[2]); },
           kRounding},
          {"difference",
           {odd({n}), drawn({n}), blank({n})},
           [](Context& ctx, Ts& t) { ops::difference(ctx, 0.3f, t[0], t[1], t[2]); }},
      });
}

TEST_P(CudaFunctions, ContrastiveLossIsTheCpus) {
  for (const bool legacy : {false, true})
    for (const auto& [rows, columns] : {std::pair{1, 1}, {40, 3}, {7, 300}}) {
      const ops::ContrastiveDesc desc{rows, columns, 1.5f, legacy};
      const Start x = drawn({rows, columns}), similar = ties({rows});
      expect_same({
          {"contrastive_loss",
           {x, x, similar, blank({1})},
           [=](Context& ctx, Ts& t) {
             ops::contrastive_loss(ctx, desc, t[0], t[1], t[2], 7, t[3]);
           },
           kRounding},
          {"contrastive_loss_backward",
           {x, x, similar, blank({rows, columns})},
           [=](Context& ctx, Ts& t) {
             ops::contrastive_loss_backward(ctx, desc, t[0], t[1], t[2], 0.3f, t[3]);
           },
           kRounding},
      });
    }
}

// ---- update.h ----

TEST_P(CudaFunctions, UpdatesHaveTheCpusBits) {
  using optim::Rule, optim::Regularization;
  for (const Rule rule :
       {Rule::kSgd, Rule::kNesterov, Rule::kAdaGrad, Rule::kRmsProp, Rule::kAdaDelta, Rule::kAdam})
    for (const Regularization kind : {Regularization::kL2, Regularization::kL1})
      for (const bool clears : {false, true}) {
        const optim::Step step{rule, kind, 0.01f, 0.1f, 0.5f, 0.9f, 0.99f, 0.95f, 1e-3f};
        const auto run = [=](Context& ctx, Ts& t) {
          std::vector<ops::ParamUpdate> params;
          for (std::size_t p = 0; p < t.size(); p += 4) {
            params.push_back({step, &t[p], &t[p + 1], {&t[p + 2], &t[p + 3]}, clears});
            params.back().histories.resize(static_cast<std::size_t>(optim::histories(rule)));
            params.back().step.decay = p == 4 ? 0 : 0.1f;
          }
          for (int i = 0; i < 3; ++i) ops::update(ctx, params);
        };
        std::vector<Start> tensors;
        for (const std::int64_t n : {1000, 7, 40000})
          for (const Start& one : {ties({n}), drawn({n}), positive({n}), positive({n})})
            tensors.push_back(one);
        expect_same({{str(optim::name_of(rule), kind == Regularization::kL1 ? " L1" : " L2"),
                      tensors, run}});
      }
}

// The gradients are 3 and 4, whose norm is 5.
TEST_P(CudaFunctions, AVerdictClipsOrForbidsAnUpdate) {
  using Seen = std::vector<float>;
  for (const Device* device : {static_cast<const Device*>(nullptr), GetParam()}) {
    Context ctx({.device = device});
    Tensor w(Shape{2}), g(Shape{2}), h(Shape{2}), verdict(Shape{2});
    const ops::ParamUpdate step{{.rate = 1}, &w, &g, {&h}, true};
    const Tensor* const gradients[] = {&g};
    const auto updated = [&](float second, float clip) {
      std::ranges::copy(std::array{1.0f, 2.0f}, w.host_out().begin());
      std::ranges::copy(std::array{3.0f, second}, g.host_out().begin());
      ops::judge(ctx, gradients, clip, verdict);
      ops::update(ctx, {&step, 1}, &verdict);
      return Seen{w.host()[0], w.host()[1], g.host()[0], h.host()[0], verdict.host()[1]};
    };
    EXPECT_EQ(updated(4, -1), (Seen{-2, -2, 0, 3, 1}));
    EXPECT_EQ(updated(4, 2.5f), (Seen{-0.5f, 0, 0, 1.5f, 0.5f}));
    EXPECT_EQ(updated(4, 5), (Seen{-2, -2, 0, 3, 1}));
    ops::judge(ctx, {}, 2.5f, verdict);
    EXPECT_EQ(verdict.host()[1], 1) << "of no gradients";
    for (const float bad : {NAN, INFINITY})
      for (const float clip : {-1.0f, 5.0f}) {
        ops::fill(ctx, 0, verdict);
        const Seen refused = updated(bad, clip);
        EXPECT_EQ(refused[0], 1);
        EXPECT_EQ(refused[2], 3) << "the gradient stays";
        EXPECT_EQ(updated(4, clip)[0], 1) << "as all that follow";
      }
  }
}

}  // namespace
}  // namespace shoal::test::cuda_functions_test
