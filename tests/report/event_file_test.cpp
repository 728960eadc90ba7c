// Event files: their records, what TensorBoard is told of a run, and what it is to forget.
#include "shoal/report/event_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "shoal/base/bytes.h"
#include "shoal/proto/tensorboard.pb.h"
#include "support/data_files.h"

namespace shoal::test::event_file_test {
namespace {

using tensorboard::Event;

std::uint32_t masked(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

// Returns the events of a folder's files, in the order of their names, and checks their sums.
std::vector<Event> events_in(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    paths.push_back(entry.path().string());
  std::ranges::sort(paths);
  std::vector<Event> events;
  for (const std::string& path : paths) {
    const std::string bytes = get_file(path);
    for (std::string_view rest = bytes; !rest.empty();) {
      EXPECT_GE(rest.size(), 16u) << path;
      const auto length = static_cast<std::size_t>(get_le<std::uint64_t>(rest));
      EXPECT_EQ(get_le<std::uint32_t>(rest.substr(8)), masked(rest.substr(0, 8)));
      const std::string_view content = rest.substr(12, length);
      EXPECT_EQ(get_le<std::uint32_t>(rest.substr(12 + length)), masked(content));
      EXPECT_TRUE(events.emplace_back().ParseFromString(std::string(content)));
      rest.remove_prefix(16 + length);
    }
  }
  return events;
}

// Returns the values of a curve by step.
std::map<std::int64_t, float> curve(const std::vector<Event>& events, const std::string& tag) {
  std::map<std::int64_t, float> values;
  for (const Event& event : events)
    for (const auto& value : event.summary().value())
      if (value.tag() == tag) values[event.step()] = value.simple_value();
  return values;
}

using Values = std::map<std::int64_t, float>;

std::unique_ptr<EventWriter> opened(const std::string& folder, std::int64_t first = 0) {
  auto writer = EventWriter::open(
      folder, {.name = "net", .scheme = "ssp 2", .worker = 1, .workers = 2}, first, 1e9);
  EXPECT_TRUE(writer.ok()) << writer.error().message;
  return std::move(writer).value();
}

TEST(EventFile, BeginsWithItsVersionAndTheStepFromWhichAReaderForgets) {
  const std::string folder = fresh_directory("events_begin") + "/new";
  opened(folder, 40);
  const std::vector<Event> events = events_in(folder);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  EXPECT_EQ(events[0].wall_time(), 1e9);
  EXPECT_EQ(events[1].step(), 40);
  EXPECT_EQ(events[1].session_log().status(), tensorboard::SessionLog::START);
  EXPECT_EQ(events[2].summary().value(0).tensor().string_val(0),
            "net net, scheme ssp 2, worker 1 of 2");
}

TEST(EventFile, DisplaysAndTestsAreCurves) {
  const std::string folder = fresh_directory("events_scores");
  auto writer = opened(folder);
  ASSERT_TRUE(writer
                  ->add(ScoreMetrics{.clock = 100,
                                     .time = 2,
                                     .loss = 0.5,
                                     .rate = 0.01,
                                     .outputs = {{"loss", 0.25}},
                                     .presence = {{.alive = 3, .taking_part = 2, .committed = 9}}})
                  .ok());
  ASSERT_TRUE(writer
                  ->add(ScoreMetrics{.kind = ScoreMetrics::Kind::kTest,
                                     .clock = 200,
                                     .time = 3,
                                     .net = 1,
                                     .loss = 0.75,
                                     .outputs = {{"accuracy", 0.875},
                                                 {"bad", std::numeric_limits<double>::infinity()}}})
                  .ok());
  const std::vector<Event> events = events_in(folder);
  EXPECT_EQ(curve(events, "train/total_loss"), (Values{{100, 0.5f}}));
  EXPECT_EQ(curve(events, "train/loss"), (Values{{100, 0.25f}}));
  EXPECT_EQ(curve(events, "rate/learning_rate"), (Values{{100, 0.01f}}));
  EXPECT_EQ(curve(events, "job/alive"), (Values{{100, 3.f}}));
  EXPECT_EQ(curve(events, "job/committed_steps"), (Values{{100, 9.f}}));
  EXPECT_EQ(curve(events, "test1/accuracy"), (Values{{200, 0.875f}}));
  EXPECT_EQ(curve(events, "test1/total_loss"), (Values{{200, 0.75f}}));
  EXPECT_TRUE(curve(events, "test1/bad").empty()) << "no point of a number that is not finite";
  EXPECT_EQ(events.back().wall_time(), 1e9 + 3);
}

TEST(EventFile, ClocksOfASecondAreOnePoint) {
  const std::string folder = fresh_directory("events_clocks");
  {
    auto writer = opened(folder);
    for (int clock = 0; clock < 10; ++clock)
      ASSERT_TRUE(writer
                      ->add(ClockMetrics{.clock = clock,
                                         .time = 0.25 * (clock + 1),
                                         .compute = 0.125 * (clock + 1),
                                         .bytes_sent = 100,
                                         .samples = 16,
                                         .local_steps = 2,
                                         .pushes = {0, 1, 1}})
                      .ok());
  }
  const std::vector<Event> events = events_in(folder);
  EXPECT_EQ(curve(events, "speed/samples_per_second"), (Values{{4, 64.f}, {8, 64.f}, {10, 64.f}}));
  EXPECT_EQ(curve(events, "speed/local_steps"), (Values{{4, 2.f}, {8, 2.f}, {10, 2.f}}));
  EXPECT_EQ(curve(events, "seconds/compute"), (Values{{4, 0.3125f}, {8, 0.8125f}, {10, 1.1875f}}));
  EXPECT_EQ(curve(events, "bytes/sent"), (Values{{4, 100.f}, {8, 100.f}, {10, 100.f}}));
  EXPECT_EQ(curve(events, "staleness/pushes"), (Values{{4, 1.5f}, {8, 1.5f}, {10, 1.5f}}));
}

TEST(EventFile, AHistogramHasTheCountsBetweenItsEnds) {
  const std::string folder = fresh_directory("events_histogram");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> numbers = {-2, 0.5, 0.5, 3, nan};
  auto writer = opened(folder);
  ASSERT_TRUE(writer->add_histogram("params/ip/0", 7, 1, numbers).ok());
  ASSERT_TRUE(writer->add_histogram("params/ip/1", 7, 1, std::span(&nan, 1)).ok());
  const Event event = events_in(folder).back();
  ASSERT_EQ(event.summary().value(0).tag(), "params/ip/0") << "all NaN: no histogram";
  const tensorboard::HistogramProto& histogram = event.summary().value(0).histo();
  EXPECT_EQ(histogram.num(), 4);
  EXPECT_EQ(histogram.min(), -2);
  EXPECT_EQ(histogram.max(), 3);
  EXPECT_EQ(histogram.sum(), 2);
  EXPECT_EQ(histogram.sum_squares(), 13.5);
  ASSERT_EQ(histogram.bucket_size(), histogram.bucket_limit_size());
  double counted = 0, halves = 0;
  for (int i = 0; i < histogram.bucket_size(); ++i) {
    counted += histogram.bucket(i);
    if (i > 0) {
      EXPECT_LT(histogram.bucket_limit(i - 1), histogram.bucket_limit(i));
      if (histogram.bucket_limit(i - 1) <= 0.5 && 0.5 < histogram.bucket_limit(i))
        halves = histogram.bucket(i);
    }
  }
  EXPECT_EQ(counted, 4);
  EXPECT_EQ(halves, 2);
  EXPECT_LT(histogram.bucket_limit(histogram.bucket_size() - 1), 3.4);
}

TEST(EventFile, ARunThatGoesOnHasAFileBehindTheFirst) {
  const std::string folder = fresh_directory("events_again");
  (void)opened(folder)->add(ScoreMetrics{.clock = 10, .loss = 1});
  (void)opened(folder, 5)->add(ScoreMetrics{.clock = 6, .loss = 2});
  const std::vector<Event> events = events_in(folder);
  ASSERT_EQ(events.size(), 8u);
  EXPECT_EQ(events[3].step(), 10);
  EXPECT_EQ(events[5].step(), 5) << "the start of the second, whatever its process is called";
  EXPECT_EQ(events[7].step(), 6);
}

TEST(EventFile, SaysWhereItCannotBeWritten) {
  const std::string file = fresh_directory("events_no_folder") + "/file";
  put_file(file, "");
  const auto writer = EventWriter::open(file, {}, 0, 0);
  ASSERT_FALSE(writer.ok());
  EXPECT_EQ(writer.error().code, Code::kUsage);
  EXPECT_NE(writer.error().message.find(file), std::string::npos) << writer.error().message;
}

TEST(EventFile, EachOfSeveralWorkersIsARun) {
  EXPECT_EQ(event_directory("dir", {.worker = 0, .workers = 1}), "dir");
  EXPECT_EQ(event_directory("dir", {.worker = 3, .workers = 4}), "dir/worker3");
}

}  // namespace
}  // namespace shoal::test::event_file_test
