// Tests the predicted time of an iteration: by hand, and against that of a simulated job.
#include <gtest/gtest.h>

#include "shoal/parallel/exchange/exchange_choice.h"
#include "support/exchange_job.h"
#include "support/schemes.h"

namespace shoal::test::exchange_forecast_test {
namespace {

using parallel::Forecast;
using parallel::kPredictedWays;
using parallel::Way;

TEST(ExchangeForecast, AnIterationWaitsForWhatItsBackwardPassesDoNotHide) {
  const ComputeSlices slices{0, {0.1, 0.2}, {0.3, 0.4}, {true, true}};
  const auto seconds = [&](double upper, double lower) {
    return Forecast{slices, {{{1}, {.link = upper}}, {{0}, {.link = lower}}}}.seconds(10);
  };
  EXPECT_DOUBLE_EQ(10, seconds(0, 0));
  EXPECT_DOUBLE_EQ(10, seconds(4, 3)) << "over with the backward passes";
  EXPECT_DOUBLE_EQ(12, seconds(4, 5)) << "the lower layer is needed first";
  EXPECT_DOUBLE_EQ(11, seconds(9, 0)) << "and the upper one before its forward pass";
  EXPECT_DOUBLE_EQ(12, seconds(6, 4)) << "the lower one comes between";
  EXPECT_DOUBLE_EQ(13, seconds(6, 5)) << "the upper one goes on behind it";
  EXPECT_DOUBLE_EQ(11, (Forecast{slices, {{{1, 0}, {.product = 1}}}}.seconds(10)));
  EXPECT_DOUBLE_EQ(10, (Forecast{slices, {{{1, 0}, {.product = 1}}}}.seconds_of_busy(10)));
}

TEST(ExchangeForecast, WithAClipAllWaitForTheLastSum) {
  const ComputeSlices slices{0, {0.1, 0.2}, {0.3, 0.4}, {true, true}};
  const auto seconds = [&](double upper, double lower, double answers, double latency = 0) {
    return Forecast{slices,
                    {{{1}, {.link = upper, .latency = latency}, answers * upper},
                     {{0}, {.link = lower, .latency = latency}, answers * lower}},
                    true}
        .seconds(10);
  };
  EXPECT_DOUBLE_EQ(10, seconds(4, 3, 0));
  EXPECT_DOUBLE_EQ(12, seconds(9, 0, 0)) << "the lower layer waits too";
  EXPECT_DOUBLE_EQ(13, seconds(9, 0, 0, 1)) << "a sum's latency is over before the norm is known";
  // All gradients are at the servers 8 s after the start of the backward passes; the lower layer's
  // answers are there 4 s later, and the upper one's 3 s behind those.
  EXPECT_DOUBLE_EQ(17, seconds(6, 8, 0.5));
}

// Returns four inner products, of which the upper ones are the largest.
SolverParameter four_layers(Way way, const char* more) {
  std::string layers =
      "layer { name: 'data' type: 'DummyData' top: 'data' dummy_data_param { shape { dim: 8 dim: "
      "500 } } } ";
  std::string bottom = "data";
  for (const auto& [name, outputs] :
       {std::pair("a", 500), std::pair("b", 700), std::pair("c", 1200), std::pair("d", 900)}) {
    layers += str("layer { name: '", name, "' type: 'InnerProduct' bottom: '", bottom, "' top: '",
                  name, "' inner_product_param { num_output: ", outputs, " } } ");
    bottom = name;
  }
  layers += "layer { name: 'loss' type: 'Reduction' bottom: 'd' top: 'loss' loss_weight: 1 }";
  SolverParameter solver = parse_solver(
      str("base_lr: 0.01 lr_policy: 'fixed' display: 0 snapshot_after_train: false ", more,
          " exchange { bandwidth: 1e8 latency_ms: 0.05 multiply_adds: 0 way: ", name_of(way), " }"),
      "job");
  *solver.mutable_net_param() = parse_net(layers, "job.prototxt");
  return solver;
}

// The sum of the uppermost layer begins first and is over last: a worker that is ahead of others
// must not keep their last sums from the link. Trees take less than predicted, since a round of one
// sum uses links that another's leaves idle.
TEST(ExchangeForecast, IsWhatASimulatedJobWithoutNumbersTakes) {
  constexpr int kWorkers = 8;
  const auto scheme = or_throw(table::make_scheme("bsp"));
  for (const char* clip : {"", "clip_gradients: 1"})
    for (const Way way : kPredictedWays) {
      SolverParameter solver = four_layers(way, clip);
      const auto seconds = [&](int iterations) {
        solver.set_max_iter(iterations);
        return simulated(solver, kWorkers, "1e8 latency_ms: 0.05", true).seconds;
      };
      Context context({});
      NetParameter param = solver.net_param();
      const Net net(param, context);
      const parallel::Rates rates = parallel::rates_of(solver);
      const parallel::JobSize job{kWorkers, kWorkers};
      const auto choices = parallel::choose_exchanges(net, solver, "job", *scheme, job, rates);
      EXPECT_EQ(way, choices.back().way);
      const Forecast forecast = parallel::forecast_of(net, choices, job, rates, 1,
                                                      parallel::clips_all(solver, "job", *scheme));
      EXPECT_NEAR(1, forecast.seconds(0.01) / ((seconds(8) - seconds(4)) / 4),
                  way == Way::kTree ? 0.2 : 0.12)
          << name_of(way) << ' ' << clip;
    }
}

}  // namespace
}  // namespace shoal::test::exchange_forecast_test
