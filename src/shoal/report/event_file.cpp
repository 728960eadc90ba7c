#include "shoal/report/event_file.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>

#include "shoal/base/bytes.h"
#include "shoal/base/file.h"
#include "shoal/base/try.h"
#include "shoal/proto/tensorboard.pb.h"

namespace shoal {
namespace {

using tensorboard::Event;
using tensorboard::Summary;

// Returns the checksum of a record as its file has it: sums of what holds sums are weak.
std::uint32_t masked_crc32c(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

void put(Summary& summary, const std::string& tag, double value) {
  if (!std::isfinite(value)) return;  // TensorBoard draws no such points
  Summary::Value& one = *summary.add_value();
  one.set_tag(tag);
  one.set_simple_value(static_cast<float>(value));
}

// Returns the upper ends of the classes that TensorFlow uses: each a tenth wider than the last, on
// both sides of 0.
const std::vector<double>& class_limits() {
  static const std::vector<double> limits = [] {
    std::vector<double> positive;
    for (double limit = 1e-12; limit < 1e20; limit *= 1.1) positive.push_back(limit);
    std::vector<double> all;
    for (auto limit = positive.rbegin(); limit != positive.rend(); ++limit) all.push_back(-*limit);
    all.push_back(0);
    all.insert(all.end(), positive.begin(), positive.end());
    all.push_back(std::numeric_limits<double>::max());
    return all;
  }();
  return limits;
}

// Fills in the classes between the least and the greatest number; those outside are empty.
void count(std::span<const float> numbers, tensorboard::HistogramProto& histogram) {
  const std::vector<double>& limits = class_limits();
  std::vector<double> counts(limits.size());
  double least = INFINITY, most = -INFINITY, number = 0, sum = 0, squares = 0;
  for (const float one : numbers) {
    if (!std::isfinite(one)) continue;
    const auto value = static_cast<double>(one);
    ++counts[static_cast<std::size_t>(std::ranges::upper_bound(limits, value) - limits.begin())];
    least = std::min(least, value);
    most = std::max(most, value);
    number += 1;
    sum += value;
    squares += value * value;
  }
  if (number == 0) return;
  histogram.set_min(least);
  histogram.set_max(most);
  histogram.set_num(number);
  histogram.set_sum(sum);
  histogram.set_sum_squares(squares);
  const auto filled = [](double of_class) { return of_class > 0; };
  const auto first = std::ranges::find_if(counts, filled) - counts.begin();
  const auto last = counts.rend() - std::find_if(counts.rbegin(), counts.rend(), filled);
  for (auto i = static_cast<std::size_t>(first); i < static_cast<std::size_t>(last); ++i) {
    histogram.add_bucket_limit(limits[i]);
    histogram.add_bucket(counts[i]);
  }
}

// Returns a name that sorts behind those of files of before: a reader goes through them in order.
std::string file_name(const std::string& directory) {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host = {"unknown"};
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(
      std::chrono::system_clock::now().time_since_epoch());
  for (int number = 0;; ++number) {
    char name[400];
    std::snprintf(name, sizeof name, "%s/events.out.tfevents.%010lld.%s.%06d.%d", directory.c_str(),
                  static_cast<long long>(now.count()), host.data(), number,
                  static_cast<int>(getpid()));
    if (!file_exists(name)) return name;
  }
}

}  // namespace

std::string event_directory(const std::string& directory, const RunMetrics& run) {
  return run.workers > 1 ? str(directory, "/worker", run.worker) : directory;
}

Result<std::unique_ptr<EventWriter>> EventWriter::open(const std::string& directory,
                                                       const RunMetrics& run, std::int64_t first,
                                                       double began) {
  std::error_code ignored;  // what is wrong is found when the file is opened
  std::filesystem::create_directories(directory, ignored);
  auto made = std::make_unique<EventWriter>(Made{});
  made->path_ = file_name(directory);
  made->began_ = began;
  made->file_.open(made->path_, std::ios::binary);
  if (!made->file_)
    return Error{Code::kUsage, str(made->path_, ": ", why_not_created(made->path_, errno))};
  Event version;
  version.set_wall_time(began);
  version.set_file_version("brain.Event:2");
  TRY(made->write(version));
  Event start;
  start.set_wall_time(began);
  start.set_step(first);
  start.mutable_session_log()->set_status(tensorboard::SessionLog::START);
  TRY(made->write(start));
  TRY(made->add_text("run", first, 0,
                     str("net ", run.name, ", scheme ", run.scheme, ", worker ", run.worker, " of ",
                         run.workers, run.simulated ? ", simulated: times are virtual" : "")));
  return made;
}

EventWriter::~EventWriter() { (void)flush(); }

Status EventWriter::add(const MetricsRecord& record) {
  if (const auto* clock = std::get_if<ClockMetrics>(&record)) {
    const std::optional<ClockSums> sums = clocks_.add(*clock);
    return sums ? add_clocks(*sums) : Status{};
  }
  if (const auto* score = std::get_if<ScoreMetrics>(&record)) return add_score(*score);
  if (const auto* phase = std::get_if<PhaseMetrics>(&record))
    return add_text("scheme", phase->clock, phase->time, phase->scheme);
  if (const auto* fault = std::get_if<FaultMetrics>(&record)) {
    Summary summary;
    put(summary, "job/losses", fault->number);
    if (fault->stopped) put(summary, "job/seconds_stopped", *fault->stopped);
    TRY(write(fault->clock, fault->time, summary));
    return add_text("job/faults", fault->clock, fault->time,
                    str("rank ", fault->rank, " (host ", fault->host, "): ", fault->why));
  }
  const auto& useful = std::get<UsefulMetrics>(record);
  Summary summary;
  if (useful.computed > 0)
    put(summary, "job/useful_of_computed",
        static_cast<double>(useful.in_params) / static_cast<double>(useful.computed));
  if (useful.possible > 0)
    put(summary, "job/useful_of_possible", static_cast<double>(useful.in_params) / useful.possible);
  TRY(flush());
  return write(useful.clock, useful.time, summary);
}

Status EventWriter::flush() {
  const std::optional<ClockSums> rest = clocks_.take();
  return rest ? add_clocks(*rest) : Status{};
}

Status EventWriter::add_clocks(const ClockSums& clocks) {
  const ClockMetrics& sum = clocks.sum;
  Summary summary;
  put(summary, "speed/samples_per_second", sum.samples / clocks.seconds);
  put(summary, "speed/iterations_per_second", clocks.clocks / clocks.seconds);
  put(summary, "speed/local_steps", clocks.each(static_cast<double>(sum.local_steps)));
  put(summary, "seconds/compute", clocks.each(sum.compute));
  put(summary, "seconds/data_wait", clocks.each(sum.data_wait));
  put(summary, "seconds/row_wait", clocks.each(sum.row_wait));
  put(summary, "seconds/update", clocks.each(sum.update));
  put(summary, "seconds/other", clocks.each(sum.other));
  put(summary, "bytes/sent", clocks.each(static_cast<double>(sum.bytes_sent)));
  put(summary, "bytes/received", clocks.each(static_cast<double>(sum.bytes_received)));
  put(summary, "bytes/shared", clocks.each(static_cast<double>(sum.shared_bytes)));
  put(summary, "staleness/drops", clocks.each(static_cast<double>(sum.drops)));
  if (const auto mean = mean_of(sum.pushes)) put(summary, "staleness/pushes", *mean);
  if (const auto mean = mean_of(sum.reads)) put(summary, "staleness/reads", *mean);
  return write(sum.clock + 1, sum.time, summary);
}

Status EventWriter::add_score(const ScoreMetrics& score) {
  const bool is_test = score.kind == ScoreMetrics::Kind::kTest;
  const std::string group = is_test ? str("test", score.net, "/") : "train/";
  Summary summary;
  // A test net without a loss has none to draw.
  if (!is_test || score.loss != 0) put(summary, group + "total_loss", score.loss);
  for (const auto& [name, value] : score.outputs) put(summary, group + name, value);
  if (score.rate) put(summary, "rate/learning_rate", *score.rate);
  if (score.presence) {
    put(summary, "job/alive", score.presence->alive);
    put(summary, "job/taking_part", score.presence->taking_part);
    put(summary, "job/committed_steps", static_cast<double>(score.presence->committed));
  }
  return write(score.clock, score.time, summary);
}

Status EventWriter::add_text(const char* tag, std::int64_t step, double time,
                             const std::string& text) {
  Summary summary;
  Summary::Value& value = *summary.add_value();
  value.set_tag(tag);
  value.mutable_metadata()->mutable_plugin_data()->set_plugin_name("text");
  value.mutable_tensor()->set_dtype(tensorboard::TensorProto::DT_STRING);
  value.mutable_tensor()->mutable_tensor_shape()->add_dim()->set_size(1);
  value.mutable_tensor()->add_string_val(text);
  return write(step, time, summary);
}

Status EventWriter::add_histogram(const std::string& tag, std::int64_t step, double time,
                                  std::span<const float> numbers) {
  Summary summary;
  Summary::Value& value = *summary.add_value();
  value.set_tag(tag);
  count(numbers, *value.mutable_histo());
  return value.histo().num() > 0 ? write(step, time, summary) : Status{};
}

Status EventWriter::write(std::int64_t step, double time, const Summary& summary) {
  if (summary.value().empty()) return {};
  Event event;
  event.set_wall_time(began_ + time);
  event.set_step(step);
  *event.mutable_summary() = summary;
  return write(event);
}

// A record is its length and its checksum, then its bytes and theirs.
Status EventWriter::write(const Event& event) {
  const std::string bytes = event.SerializeAsString();
  std::string head, tail;
  put_le(head, static_cast<std::uint64_t>(bytes.size()));
  put_le(head, masked_crc32c(head));
  put_le(tail, masked_crc32c(bytes));
  file_ << head << bytes << tail << std::flush;
  if (file_) return {};
  return Error{Code::kSnapshot, str("cannot write ", path_, ": ", system_reason(errno))};
}

}  // namespace shoal
