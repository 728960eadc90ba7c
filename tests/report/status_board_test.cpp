// The board on which a process shows its run while it trains.
#include "shoal/report/status_board.h"

#include <gtest/gtest.h>

#include <cmath>

namespace shoal::test::status_board_test {
namespace {

ClockMetrics clock_at(std::int64_t clock) {
  return {.clock = clock,
          .time = static_cast<double>(clock + 1),
          .compute = 0.75,
          .row_wait = 0.25,
          .bytes_sent = 10,
          .samples = 8,
          .pushes = {1, 1}};
}

TEST(StatusBoard, ACurveKeepsItsShapeAndStaysSmall) {
  Curve curve;
  for (std::int64_t i = 0; i < 100'000; ++i) curve.add({i, 0, static_cast<double>(i)});
  const auto& points = curve.points();
  ASSERT_GE(points.size(), 256u);
  ASSERT_LE(points.size(), 512u);
  EXPECT_EQ(points[0].iteration, 0);
  const std::int64_t step = points[1].iteration;
  for (std::size_t i = 0; i < points.size(); ++i)
    ASSERT_EQ(points[i].iteration, step * static_cast<std::int64_t>(i));
  EXPECT_GT(points.back().iteration, 100'000 - 2 * step);
}

TEST(StatusBoard, AddsUpTheClocks) {
  StatusBoard board("both", 100);
  board.begin({.name = "net", .scheme = "bsp", .worker = 1, .workers = 2});
  for (int clock = 0; clock < 40; ++clock) ASSERT_TRUE(board.add(clock_at(clock)).ok());
  const RunStatus status = board.look();
  EXPECT_EQ(status.state, RunStatus::State::kTraining);
  EXPECT_EQ(status.run.name, "net");
  EXPECT_EQ(status.role, "both");
  EXPECT_EQ(status.iteration, 40);
  EXPECT_EQ(status.max_iter, 100);
  EXPECT_EQ(status.seconds, 40);
  EXPECT_EQ(status.total.clocks, 40);
  EXPECT_EQ(status.total.sum.samples, 320);
  EXPECT_EQ(status.total.sum.bytes_sent, 400u);
  EXPECT_EQ(status.total.sum.local_steps, 40u);
  EXPECT_EQ(status.total.sum.pushes, (Histogram{40, 40}));
  EXPECT_EQ(status.recent.clocks, 30) << "of the last half minute";
  EXPECT_EQ(status.recent.seconds, 30);
  EXPECT_EQ(status.recent.sum.compute, 22.5);
  ASSERT_FALSE(status.curves.empty());
  EXPECT_EQ(status.curves[0].first, "speed/samples_per_second");
  EXPECT_EQ(status.last("speed/samples_per_second"), 8);
  EXPECT_EQ(status.last("staleness/pushes"), 0.5);
  EXPECT_TRUE(std::isnan(status.last("staleness/reads")));
}

TEST(StatusBoard, KeepsScoresFaultsAndPhases) {
  StatusBoard board("worker", 10);
  (void)board.add(ScoreMetrics{
      .clock = 5, .time = 1, .loss = 0.5, .rate = 0.1, .outputs = {{"loss", 0.25}, {"x", NAN}}});
  (void)board.add(ScoreMetrics{.kind = ScoreMetrics::Kind::kTest,
                               .clock = 6,
                               .time = 2,
                               .net = 1,
                               .outputs = {{"accuracy", 0.75}}});
  (void)board.add(FaultMetrics{.time = 3, .number = 1, .rank = 2, .stopped = 0.5});
  (void)board.add(FaultMetrics{.time = 4, .number = 2, .rank = 3});
  (void)board.add(FaultMetrics{.time = 3, .number = 1, .rank = 2, .stopped = 0.5, .back = 2});
  (void)board.add(PhaseMetrics{.clock = 6, .time = 2, .scheme = "ssp 2"});
  board.end();
  const RunStatus status = board.look();
  EXPECT_EQ(status.state, RunStatus::State::kEnded);
  EXPECT_EQ(status.last("train/total_loss"), 0.5);
  EXPECT_EQ(status.last("train/loss"), 0.25);
  EXPECT_EQ(status.last("rate/learning_rate"), 0.1);
  EXPECT_EQ(status.last("test1/accuracy"), 0.75);
  EXPECT_TRUE(std::isnan(status.last("test1/total_loss"))) << "a test without a loss has no curve";
  EXPECT_TRUE(std::isnan(status.last("train/x")));
  ASSERT_EQ(status.faults.size(), 2u) << "one that comes again takes the place of the first";
  EXPECT_EQ(status.faults[0].back, 2);
  EXPECT_EQ(status.losses, 2u);
  ASSERT_EQ(status.phases.size(), 1u);
  EXPECT_EQ(status.run.scheme, "ssp 2");
}

TEST(StatusBoard, HasABoundOnCurvesFaultsAndPhases) {
  StatusBoard board("", 10);
  for (std::uint32_t i = 1; i <= 200; ++i) {
    (void)board.add(ScoreMetrics{.clock = i, .loss = 1, .outputs = {{str("out", i), i}}});
    (void)board.add(FaultMetrics{.number = i});
    (void)board.add(PhaseMetrics{.clock = i});
  }
  const RunStatus status = board.look();
  EXPECT_LE(status.curves.size(), 64u);
  EXPECT_LE(status.faults.size(), 64u);
  EXPECT_EQ(status.faults.back().number, 200u);
  EXPECT_EQ(status.losses, 200u);
  EXPECT_LE(status.phases.size(), 64u);
}

}  // namespace
}  // namespace shoal::test::status_board_test
