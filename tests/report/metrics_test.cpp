// Lines of metrics.jsonl: what is written, and that others can read it.
#include "shoal/report/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "shoal/base/file.h"
#include "shoal/report/esync_log.h"
#include "support/data_files.h"

namespace shoal::test::metrics_test {
namespace {

using nlohmann::json;

ClockMetrics sample(std::int64_t clock, double time) {
  return {.worker = 2,
          .clock = clock,
          .time = time,
          .compute = 0.5,
          .data_wait = 0.125,
          .row_wait = 0.25,
          .update = 0.0625,
          .other = 1,
          .send = 0.75,
          .receive = 0.375,
          .bytes_sent = 1ull << 40,
          .bytes_received = 7,
          .shared_bytes = 5,
          .samples = 64,
          .local_steps = 3,
          .drops = 1,
          .reads = {5, 0, 2},
          .pushes = {0, 4}};
}

std::vector<json> lines_in(const std::string& path) {
  std::vector<json> lines;
  std::istringstream text(get_file(path));
  for (std::string line; std::getline(text, line);) lines.push_back(json::parse(line));
  return lines;
}

TEST(Metrics, AClockIsOneLineWithAllItsNumbers) {
  const std::string line = line_of(sample(9, 12.5));
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_EQ(
      json::parse(line),
      json::parse(
          R"({"kind":"clock","worker":2,"clock":9,"time":12.5,"compute":0.5,"data_wait":0.125,"row_wait":0.25,
      "update":0.0625,"other":1,"send":0.75,"receive":0.375,"bytes_sent":1099511627776,"bytes_received":7,"shared_bytes":5,"samples":64,"local_steps":3,"drops":1,
      "staleness":{"reads":{"0":5,"2":2},"pushes":{"1":4}}})"));
}

TEST(Metrics, NumbersThatAreNotFiniteAreNull) {
  ScoreMetrics score{.kind = ScoreMetrics::Kind::kTest,
                     .clock = 3,
                     .time = 1,
                     .net = 1,
                     .loss = std::numeric_limits<double>::quiet_NaN()};
  score.outputs = {{"accuracy", 0.1f}, {"quote\"\\\n", -std::numeric_limits<double>::infinity()}};
  const json read = json::parse(line_of(score));
  EXPECT_TRUE(read["loss"].is_null());
  EXPECT_EQ(static_cast<float>(read["outputs"]["accuracy"].get<double>()), 0.1f);
  EXPECT_TRUE(read["outputs"]["quote\"\\\n"].is_null());
  EXPECT_EQ(read["kind"], "test");
  EXPECT_EQ(read["net"], 1);
  score.kind = ScoreMetrics::Kind::kDisplay;
  EXPECT_FALSE(json::parse(line_of(score)).contains("net"));
}

TEST(Metrics, ALossAndWhatWasUsefulAreLines) {
  ScoreMetrics score{.clock = 3, .time = 1, .loss = 2};
  EXPECT_FALSE(json::parse(line_of(score)).contains("alive")) << "alone";
  score.presence = {.alive = 4, .taking_part = 3, .committed = 1ll << 40};
  const json read = json::parse(line_of(score));
  EXPECT_EQ(read["alive"], 4);
  EXPECT_EQ(read["taking_part"], 3);
  EXPECT_EQ(read["committed"], 1ll << 40);
  FaultMetrics fault{.clock = 9,
                     .time = 2.5,
                     .number = 2,
                     .rank = 7,
                     .host = "b",
                     .why = "killed",
                     .stopped = 0.5,
                     .steps = 3};
  EXPECT_EQ(json::parse(line_of(fault)),
            json::parse(R"({"kind":"fault","clock":9,"time":2.5,"number":2,"rank":7,"host":"b",
      "why":"killed","stopped":0.5,"back":null,"steps":3})"));
  fault.stopped.reset();
  EXPECT_TRUE(json::parse(line_of(fault))["stopped"].is_null());
  const UsefulMetrics useful{
      .clock = 9, .time = 3, .in_params = 98, .computed = 99, .possible = 120.5, .losses = 1};
  EXPECT_EQ(json::parse(line_of(useful)),
            json::parse(R"({"kind":"useful","clock":9,"time":3,"in_params":98,"computed":99,
      "possible":120.5,"losses":1})"));
}

TEST(Metrics, AChangeOfSchemeIsALine) {
  EXPECT_EQ(json::parse(line_of(PhaseMetrics{.clock = 4, .time = 2.5, .scheme = "ssp 2"})),
            json::parse(R"({"kind":"phase","clock":4,"time":2.5,"scheme":"ssp 2"})"));
}

TEST(Metrics, EveryLineIsInTheFileAtOnce) {
  const std::string path = metrics_path(fresh_directory("metrics_lines") + "/new/folder", 2);
  Result<MetricsWriter> writer = MetricsWriter::open(
      path, {.name = "net", .scheme = "ssp 2", .worker = 2, .workers = 4, .simulated = true}, 0);
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  EXPECT_EQ(
      lines_in(path),
      std::vector<json>{json::parse(
          R"({"kind":"run","name":"net","scheme":"ssp 2","worker":2,"workers":4,"simulated":true})")});
  for (std::int64_t clock = 0; clock < 3; ++clock) {
    ASSERT_TRUE(writer.value().add(sample(clock, 0.5 * static_cast<double>(clock))).ok());
    EXPECT_EQ(lines_in(path).size(), static_cast<std::size_t>(clock) + 2);
  }
}

TEST(Metrics, ARunThatGoesOnKeepsWhatWasBefore) {
  const std::string path = metrics_path(fresh_directory("metrics_resumed"), 0);
  {
    Result<MetricsWriter> writer = MetricsWriter::open(path, {}, 0);
    for (std::int64_t clock = 0; clock < 5; ++clock)
      ASSERT_TRUE(writer.value().add(sample(clock, static_cast<double>(clock + 1))).ok());
  }
  put_file(path, get_file(path) + "{\"kind\":\"clo");  // what a crash left
  Result<MetricsWriter> writer = MetricsWriter::open(path, {}, 3);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer.value().add(sample(3, 0.25)).ok());
  const std::vector<json> lines = lines_in(path);
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[0]["kind"], "run");
  EXPECT_EQ(lines[3]["clock"], 2);
  EXPECT_EQ(lines[4]["clock"], 3);
  EXPECT_EQ(lines[4]["time"], 3.25) << "three seconds were before";
  ASSERT_TRUE(MetricsWriter::open(path, {}, 0).ok());
  EXPECT_EQ(lines_in(path).size(), 1u) << "a run from 0 starts anew";
}

TEST(Metrics, ARunFromTheStartRemovesTheFilesOfMoreWorkersThanItHas) {
  const std::string folder = fresh_directory("metrics_fewer");
  const auto there = [&] {
    std::string names;
    for (int worker = 0; worker < 6; ++worker)
      for (const std::string& path :
           {metrics_path(folder, worker), earlier_metrics_path(metrics_path(folder, worker))})
        if (file_exists(path)) names += path.substr(folder.size() + 1) + " ";
    return names;
  };
  for (const char* name : {"metrics.1.jsonl", "metrics.2.jsonl", "metrics.2.jsonl.1",
                           "metrics.3.jsonl.1", "metrics.4.jsonl"})
    put_file(folder + "/" + name, "{}\n");
  ASSERT_TRUE(MetricsWriter::open(metrics_path(folder, 0), {.workers = 3}, 7).ok());
  EXPECT_EQ(there(),
            "metrics.0.jsonl metrics.1.jsonl metrics.2.jsonl metrics.2.jsonl.1 metrics.3.jsonl.1 "
            "metrics.4.jsonl ")
      << "one that goes on";
  ASSERT_TRUE(MetricsWriter::open(metrics_path(folder, 0), {.workers = 3}, 0).ok());
  EXPECT_EQ(there(), "metrics.0.jsonl metrics.1.jsonl metrics.2.jsonl metrics.2.jsonl.1 ");
}

TEST(Metrics, FilesStayWithinTheirLimit) {
  const std::string path = metrics_path(fresh_directory("metrics_limit"), 0),
                    earlier = earlier_metrics_path(path);
  constexpr std::uint64_t kLimit = 8000;
  {
    Result<MetricsWriter> writer = MetricsWriter::open(path, {.scheme = "bsp"}, 0, kLimit);
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer.value().add(PhaseMetrics{.clock = 0, .scheme = "async"}).ok());
    for (std::int64_t clock = 0; clock < 100; ++clock) {
      ASSERT_TRUE(writer.value().add(sample(clock, static_cast<double>(clock + 1))).ok());
      ASSERT_LE(get_file(path).size(), kLimit / 2);
    }
  }
  const auto clocks_in = [](const std::string& file, std::vector<std::int64_t> clocks = {}) {
    for (const json& line : lines_in(file))
      if (line["kind"] == "clock") clocks.push_back(line["clock"]);
    return clocks;
  };
  EXPECT_GT(get_file(earlier).size(), kLimit / 4);
  EXPECT_LE(get_file(earlier).size(), kLimit / 2);
  EXPECT_EQ(lines_in(path)[0]["kind"], "run");
  EXPECT_EQ(lines_in(path)[0]["scheme"], "async") << "of the phase that the part begins in";
  const std::vector<std::int64_t> clocks = clocks_in(path, clocks_in(earlier));
  ASSERT_GT(clocks.size(), 10u);
  for (std::size_t i = 0; i < clocks.size(); ++i)
    ASSERT_EQ(clocks[i], static_cast<std::int64_t>(100 - clocks.size() + i)) << "the last ones";
  const std::int64_t first = clocks_in(earlier)[3];
  Result<MetricsWriter> writer = MetricsWriter::open(path, {}, first, kLimit);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer.value().add(sample(first, 0.5)).ok());
  EXPECT_EQ(clocks_in(earlier).back(), first - 1) << "a run that goes on";
  EXPECT_EQ(clocks_in(path), std::vector<std::int64_t>{first});
  EXPECT_EQ(lines_in(path)[1]["time"], static_cast<double>(first) + 0.5);
  ASSERT_TRUE(MetricsWriter::open(path, {}, 0, kLimit).ok());
  EXPECT_FALSE(file_exists(earlier)) << "a run from 0 starts anew";
}

TEST(Metrics, AFolderThatCannotBeMadeIsSaid) {
  const std::string file = fresh_directory("metrics_blocked") + "/file";
  put_file(file, "x");
  const Result<MetricsWriter> writer = MetricsWriter::open(metrics_path(file, 0), {}, 0);
  ASSERT_FALSE(writer.ok());
  EXPECT_EQ(writer.error().code, Code::kUsage);
  EXPECT_NE(writer.error().message.find(file), std::string::npos) << writer.error().message;
}

// ESync's own fields and phases, and ours after them.
TEST(Metrics, ARoundOfLocalStepsIsAsESyncWritesIt) {
  ClockMetrics clock = sample(6, 20.00004);
  clock.steps = {{.data_wait = 0.1, .compute = 0.25, .update = 0.01},
                 {.data_wait = 0.2, .compute = 0.5, .update = 0.02}};
  EXPECT_EQ(json::parse(esync_round(clock, true,
                                    Evaluation{.seconds = 1.5, .time = 21.5, .accuracy = 0.875})),
            json::parse(R"({"num_iters":7,"time":{
      "0":{"check ready":0,"get_batch":0.1,"forward and backward":0.25,"local update":0.01},
      "1":{"check ready":0,"get_batch":0.2,"forward and backward":0.5,"local update":0.02},
      "2":{"check ready":0,"global update":0.25,"evaluation":1.5}},"num_samples":64,"total_time":21.5,"accuracy":0.875,
      "rank":2,"bytes_sent":1099511627776,"bytes_received":7,"staleness":1})"));
}

TEST(Metrics, ARoundOfOneStepHasItsExchangeInItsEntry) {
  ClockMetrics clock = sample(0, 2.5);
  clock.steps = {{.data_wait = 0.12345678, .compute = 0.25, .update = 0.5}};
  const std::string text = esync_round(clock, false, std::nullopt);
  EXPECT_EQ(
      json::parse(text)["time"],
      json::parse(
          R"({"0":{"get_batch":0.1235,"forward and backward":0.25,"global aggregate":0.75}})"));
  EXPECT_FALSE(json::parse(text).contains("accuracy"));
  EXPECT_NE(text.find("0.1235"), std::string::npos) << "four decimals";
}

TEST(Metrics, ESyncsLogsOfEarlierRoundsStayWhereARunGoesOn) {
  const std::string folder = fresh_directory("esync_log") + "/worker0";
  Result<EsyncLog> log = EsyncLog::open(folder, false, 0);
  ASSERT_TRUE(log.ok());
  for (std::int64_t clock = 0; clock < 12; ++clock)
    ASSERT_TRUE(log.value().add(sample(clock, 1), std::nullopt).ok());
  EXPECT_EQ(entries(folder).size(), 12u);
  ASSERT_TRUE(EsyncLog::open(folder, false, 2).ok());
  EXPECT_EQ(entries(folder), (std::vector<std::string>{"iter-1.txt", "iter-2.txt"}));
}

}  // namespace
}  // namespace shoal::test::metrics_test
