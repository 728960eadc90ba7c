// Metrics of a run that were written before, as event files for TensorBoard.
#include <gflags/gflags.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>

#include "common/conversion.h"
#include "common/machine.h"
#include "common/tool.h"
#include "shoal/base/file.h"
#include "shoal/report/event_file.h"

DEFINE_string(metrics, "", "the folder that train --metrics or simulate --out wrote");
DEFINE_string(out, "", "the folder for event files; in a job of several workers DIR/worker<k>");

namespace shoal {
namespace {

using nlohmann::json;

// Returns a member that may be missing, or null where a number was not finite.
double number(const json& line, const char* name, double without = 0) {
  const auto found = line.find(name);
  if (found == line.end()) return without;
  return found->is_number() ? found->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

std::uint64_t count(const json& line, const char* name) {
  return static_cast<std::uint64_t>(number(line, name));
}

std::optional<double> known(const json& line, const char* name) {
  const double value = number(line, name, NAN);
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

Histogram histogram(const json& line, const char* name) {
  Histogram counts;
  for (const auto& [index, entry] : line.at("staleness").at(name).items()) {
    const auto at = static_cast<std::size_t>(std::stoul(index));
    if (at > 1'000'000) throw std::out_of_range("a staleness of more than a million");
    counts.resize(std::max(counts.size(), at + 1));
    counts[at] = entry.get<std::uint64_t>();
  }
  return counts;
}

ClockMetrics clock_in(const json& line) {
  return {.worker = line.at("worker").get<int>(),
          .clock = line.at("clock").get<std::int64_t>(),
          .time = line.at("time").get<double>(),
          .compute = number(line, "compute"),
          .data_wait = number(line, "data_wait"),
          .row_wait = number(line, "row_wait"),
          .update = number(line, "update"),
          .other = number(line, "other"),
          .send = number(line, "send"),
          .receive = number(line, "receive"),
          .bytes_sent = count(line, "bytes_sent"),
          .bytes_received = count(line, "bytes_received"),
          .shared_bytes = count(line, "shared_bytes"),
          .samples = number(line, "samples"),
          .local_steps = count(line, "local_steps"),
          .drops = count(line, "drops"),
          .reads = histogram(line, "reads"),
          .pushes = histogram(line, "pushes")};
}

ScoreMetrics score_in(const json& line, ScoreMetrics::Kind kind) {
  ScoreMetrics score{.kind = kind,
                     .clock = line.at("clock").get<std::int64_t>(),
                     .time = line.at("time").get<double>(),
                     .net = static_cast<int>(number(line, "net")),
                     .loss = number(line, "loss"),
                     .rate = known(line, "rate")};
  for (const auto& [name, value] : line.at("outputs").items())
    score.outputs.emplace_back(name, value.is_number() ? value.get<double>() : NAN);
  if (line.contains("alive"))
    score.presence = {.alive = static_cast<std::uint32_t>(count(line, "alive")),
                      .taking_part = static_cast<std::uint32_t>(count(line, "taking_part")),
                      .committed = line.at("committed").get<std::int64_t>()};
  return score;
}

FaultMetrics fault_in(const json& line) {
  return {.clock = line.at("clock").get<std::int64_t>(),
          .time = line.at("time").get<double>(),
          .number = static_cast<std::uint32_t>(count(line, "number")),
          .rank = static_cast<std::uint32_t>(count(line, "rank")),
          .host = line.at("host").get<std::string>(),
          .why = line.at("why").get<std::string>(),
          .stopped = known(line, "stopped"),
          .back = known(line, "back"),
          .steps = line.at("steps").get<std::int64_t>()};
}

// Returns the record in a line; nothing for a description of the run, or a kind of a newer version.
std::optional<MetricsRecord> record_in(const json& line) {
  const auto kind = line.at("kind").get<std::string>();
  if (kind == "clock") return clock_in(line);
  if (kind == "display") return score_in(line, ScoreMetrics::Kind::kDisplay);
  if (kind == "test") return score_in(line, ScoreMetrics::Kind::kTest);
  if (kind == "fault") return fault_in(line);
  if (kind == "phase")
    return PhaseMetrics{line.at("clock").get<std::int64_t>(), line.at("time").get<double>(),
                        line.at("scheme").get<std::string>()};
  if (kind == "useful")
    return UsefulMetrics{.clock = line.at("clock").get<std::int64_t>(),
                         .time = line.at("time").get<double>(),
                         .in_params = line.at("in_params").get<std::int64_t>(),
                         .computed = line.at("computed").get<std::int64_t>(),
                         .possible = number(line, "possible"),
                         .losses = static_cast<std::uint32_t>(count(line, "losses"))};
  return std::nullopt;
}

struct Metrics {
  RunMetrics run;
  std::vector<MetricsRecord> records;
};

// Adds the lines of one file. A last line without an end is one that is being written.
void read_lines(const std::string& path, Metrics& metrics) {
  const std::string text = or_throw(read_file(path, Code::kData));
  int number = 1;
  std::size_t at = 0;
  for (std::size_t end; (end = text.find('\n', at)) != std::string::npos; at = end + 1, ++number) {
    try {
      const json line = json::parse(text.substr(at, end - at));
      if (line.at("kind") == "run")
        metrics.run = {.name = line.at("name").get<std::string>(),
                       .scheme = line.at("scheme").get<std::string>(),
                       .worker = line.at("worker").get<int>(),
                       .workers = line.at("workers").get<int>(),
                       .simulated = line.value("simulated", false)};
      else if (std::optional<MetricsRecord> record = record_in(line))
        metrics.records.push_back(*std::move(record));
    } catch (const std::exception& error) {  // nlohmann's, and those of numbers
      throw ConfigError(Code::kData, path, ":", number,
                        ": this is no line of metrics (docs/reference/metrics.md): ", error.what());
    }
  }
}

// Returns when the run's time was 0, in seconds since 1970: its last line is as old as the file.
double beginning(const std::string& path, const Metrics& metrics) {
  double last = 0;
  for (const MetricsRecord& record : metrics.records)
    std::visit([&](const auto& one) { last = std::max(last, one.time); }, record);
  const auto written = std::chrono::file_clock::to_sys(std::filesystem::last_write_time(path));
  return std::chrono::duration<double>(written.time_since_epoch()).count() - last;
}

// Returns the files of all workers, sorted.
std::vector<std::string> files_in(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("metrics.") && name.ends_with(".jsonl"))
      files.push_back(entry.path().string());
  }
  if (error) throw ConfigError(Code::kData, folder, ": ", error.message());
  if (files.empty())
    throw ConfigError(Code::kData, folder, ": there is no metrics.<worker>.jsonl in this folder");
  std::ranges::sort(files);
  return files;
}

int body(const std::vector<std::string>& words) {
  check_words(words.size(), 0, 0, "export_tensorboard --metrics=DIR --out=DIR");
  need_flag(FLAGS_metrics, "metrics");
  need_flag(FLAGS_out, "out");
  const std::vector<std::string> files = files_in(FLAGS_metrics);
  for (const std::string& path : files) {
    Metrics metrics;
    if (const std::string earlier = earlier_metrics_path(path); file_exists(earlier))
      read_lines(earlier, metrics);
    read_lines(path, metrics);
    const std::unique_ptr<EventWriter> writer = or_throw(EventWriter::open(
        event_directory(FLAGS_out, metrics.run), metrics.run, 0, beginning(path, metrics)));
    for (const MetricsRecord& record : metrics.records) or_throw(writer->add(record));
    or_throw(writer->flush());
  }
  std::cout << "Wrote " << files.size() << (files.size() == 1 ? " run" : " runs") << " to "
            << FLAGS_out << "; tensorboard --logdir=" << FLAGS_out << " shows them\n";
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  return shoal::run_tool(argc, argv,
                         "export_tensorboard --metrics=DIR --out=DIR\n\n"
                         "Writes the metrics of a run as event files, which TensorBoard reads. "
                         "train --tensorboard=DIR writes them\nwhile it trains.",
                         shoal::body);
}
