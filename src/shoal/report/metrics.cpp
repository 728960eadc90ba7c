#include "shoal/report/metrics.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "shoal/base/file.h"
#include "shoal/base/try.h"
#include "shoal/report/json.h"

namespace shoal {
namespace {

// {"0":12,"3":1}: classes that are empty are left out.
std::string counts(const Histogram& histogram) {
  JsonObject object;
  for (std::size_t i = 0; i < histogram.size(); ++i)
    if (histogram[i] > 0) object.whole(std::to_string(i), static_cast<std::int64_t>(histogram[i]));
  return object.str();
}

// Returns the number after `"name":` in a line of ours.
std::optional<double> member(const std::string& line, const std::string& name) {
  const std::string key = "\"" + name + "\":";
  const std::size_t at = line.find(key);
  if (at == std::string::npos) return std::nullopt;
  const char* begin = line.c_str() + at + key.size();
  char* end = nullptr;
  const double value = std::strtod(begin, &end);
  return end == begin ? std::nullopt : std::optional(value);
}

// Whole lines of clocks before `first`; the latest time of them is put into `seconds`.
std::string kept_lines(const std::string& text, std::int64_t first, double& seconds) {
  std::string kept;
  std::size_t at = 0;
  for (std::size_t end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    const std::string line = text.substr(at, end - at);
    const std::optional<double> clock = member(line, "clock");
    if (clock && *clock >= static_cast<double>(first)) continue;
    kept += line + "\n";
    seconds = std::max(seconds, member(line, "time").value_or(0));
  }
  return kept;
}

// The files of workers from `worker` on.
void remove_files(const std::string& directory, int worker) {
  std::error_code ignored;  // what cannot be removed is not ours
  for (bool found = true; found; ++worker) {
    const std::string path = metrics_path(directory, worker);
    found = std::filesystem::remove(path, ignored);
    found |= std::filesystem::remove(earlier_metrics_path(path), ignored);
  }
}

}  // namespace

std::string metrics_path(const std::string& directory, int worker) {
  return str(directory, "/metrics.", worker, ".jsonl");
}
std::string earlier_metrics_path(const std::string& path) { return path + ".1"; }

std::string line_of(const RunMetrics& run) {
  return JsonObject()
      .text("kind", "run")
      .text("name", run.name)
      .text("scheme", run.scheme)
      .whole("worker", run.worker)
      .whole("workers", run.workers)
      .raw("simulated", run.simulated ? "true" : "false")
      .str();
}

std::string line_of(const ClockMetrics& c) {
  const std::string staleness =
      JsonObject().raw("reads", counts(c.reads)).raw("pushes", counts(c.pushes)).str();
  return JsonObject()
      .text("kind", "clock")
      .whole("worker", c.worker)
      .whole("clock", c.clock)
      .number("time", c.time)
      .number("compute", c.compute)
      .number("data_wait", c.data_wait)
      .number("row_wait", c.row_wait)
      .number("update", c.update)
      .number("other", c.other)
      .number("send", c.send)
      .number("receive", c.receive)
      .whole("bytes_sent", static_cast<std::int64_t>(c.bytes_sent))
      .whole("bytes_received", static_cast<std::int64_t>(c.bytes_received))
      .whole("shared_bytes", static_cast<std::int64_t>(c.shared_bytes))
      .number("samples", c.samples)
      .whole("local_steps", static_cast<std::int64_t>(c.local_steps))
      .whole("drops", static_cast<std::int64_t>(c.drops))
      .raw("staleness", staleness)
      .str();
}

std::string line_of(const ScoreMetrics& score) {
  JsonObject outputs;
  for (const auto& [name, value] : score.outputs) outputs.number(name, value);
  const bool is_test = score.kind == ScoreMetrics::Kind::kTest;
  JsonObject line;
  line.text("kind", is_test ? "test" : "display")
      .whole("clock", score.clock)
      .number("time", score.time);
  if (is_test) line.whole("net", score.net);
  if (const auto& here = score.presence)
    line.whole("alive", here->alive)
        .whole("taking_part", here->taking_part)
        .whole("committed", here->committed);
  line.number("loss", score.loss);
  if (score.rate) line.number("rate", *score.rate);
  return line.raw("outputs", outputs.str()).str();
}

std::string line_of(const PhaseMetrics& phase) {
  return JsonObject()
      .text("kind", "phase")
      .whole("clock", phase.clock)
      .number("time", phase.time)
      .text("scheme", phase.scheme)
      .str();
}

std::string line_of(const FaultMetrics& fault) {
  const auto seconds = [](const std::optional<double>& known) {
    return known ? json_number(*known) : "null";
  };
  return JsonObject()
      .text("kind", "fault")
      .whole("clock", fault.clock)
      .number("time", fault.time)
      .whole("number", fault.number)
      .whole("rank", fault.rank)
      .text("host", fault.host)
      .text("why", fault.why)
      .raw("stopped", seconds(fault.stopped))
      .raw("back", seconds(fault.back))
      .whole("steps", fault.steps)
      .str();
}

std::string line_of(const UsefulMetrics& useful) {
  return JsonObject()
      .text("kind", "useful")
      .whole("clock", useful.clock)
      .number("time", useful.time)
      .whole("in_params", useful.in_params)
      .whole("computed", useful.computed)
      .number("possible", useful.possible)
      .whole("losses", useful.losses)
      .str();
}

Result<MetricsWriter> MetricsWriter::open(const std::string& path, const RunMetrics& run,
                                          std::int64_t first, std::uint64_t limit) {
  std::error_code ignored;  // what is wrong is found when the file is opened
  const std::filesystem::path directory = std::filesystem::path(path).parent_path();
  std::filesystem::create_directories(directory, ignored);
  if (first == 0) remove_files(directory, run.workers);
  MetricsWriter made;
  made.path_ = path;
  made.run_ = run;
  made.limit_ = limit;
  for (const bool earlier : {true, false}) {
    const std::string part = earlier ? earlier_metrics_path(path) : path;
    std::string text;
    if (first > 0 && file_exists(part)) {
      const Result<std::string> before = read_file(part, Code::kUsage);
      if (!before.ok()) return before.error();
      text = kept_lines(before.value(), first, made.seconds_before_);
    }
    if (earlier && text.empty()) {
      std::filesystem::remove(part, ignored);
      continue;
    }
    if (text.empty()) text = line_of(run) + "\n";
    Result<AtomicFile> file = AtomicFile::create(part, Code::kUsage);
    TRY(file);
    TRY(file.value().write(text));
    TRY(file.value().flush());
    // The reader of a pipe must not see it close, and to open one without a reader would wait.
    if (file.value().temporary().empty()) made.file_.open(path, std::ios::binary | std::ios::app);
    TRY(file.value().commit());
    made.size_ = text.size();
  }
  if (!made.file_.is_open()) made.file_.open(path, std::ios::binary | std::ios::app);
  if (!made.file_) return Error{Code::kUsage, str(path, ": ", why_not_opened(path, errno))};
  return made;
}

Status MetricsWriter::begin_another() {
  file_.close();
  if (std::rename(path_.c_str(), earlier_metrics_path(path_).c_str()) != 0)
    return Error{Code::kSnapshot, str("cannot rename ", path_, ": ", system_reason(errno))};
  file_.open(path_, std::ios::binary | std::ios::app);
  size_ = 0;
  return write(line_of(run_));
}

Status MetricsWriter::write(const std::string& line) {
  const std::uint64_t bytes = line.size() + 1;
  if (limit_ > 0 && size_ > 0 && size_ + bytes > limit_ / 2)
    if (const Status status = begin_another(); !status.ok()) return status;
  file_ << line << '\n' << std::flush;
  size_ += bytes;
  if (file_) return {};
  return Error{Code::kSnapshot, str("cannot write ", path_, ": ", system_reason(errno))};
}

Status MetricsWriter::add(const MetricsRecord& record) {
  MetricsRecord later = record;
  const Status status = std::visit(
      [this](auto& one) {
        one.time += seconds_before_;
        return write(line_of(one));
      },
      later);
  if (const auto* phase = std::get_if<PhaseMetrics>(&record)) run_.scheme = phase->scheme;
  return status;
}

}  // namespace shoal
