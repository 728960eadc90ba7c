#include "shoal/report/esync_log.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "shoal/base/file.h"
#include "shoal/report/json.h"

namespace shoal {
namespace {

std::string path_of(const std::string& directory, std::int64_t round) {
  return str(directory, "/iter-", round, ".txt");
}

std::string mean_staleness(const Histogram& counts) {
  double sum = 0, number = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    sum += static_cast<double>(i) * static_cast<double>(counts[i]);
    number += static_cast<double>(counts[i]);
  }
  return json_number(number > 0 ? sum / number : 0, "%.4f");
}

JsonObject& seconds(JsonObject& object, const char* phase, double value) {
  return object.number(phase, value, "%.4f");
}

}  // namespace

std::string esync_round(const ClockMetrics& clock, bool local,
                        const std::optional<Evaluation>& evaluation) {
  JsonObject time;
  int index = 0;
  JsonObject exchange;
  for (const StepMetrics& step : clock.steps) {
    JsonObject phases;
    if (local) seconds(phases, "check ready", 0);
    seconds(seconds(phases, "get_batch", step.data_wait), "forward and backward", step.compute);
    if (local)
      time.raw(std::to_string(index++), seconds(phases, "local update", step.update).str());
    else
      exchange = phases;  // one step: the exchange is in its entry
  }
  if (local) seconds(exchange, "check ready", 0);
  double handed_over = 0;
  if (!local)
    for (const StepMetrics& step : clock.steps) handed_over += step.update;
  seconds(exchange, local ? "global update" : "global aggregate", clock.row_wait + handed_over);
  if (evaluation) seconds(exchange, "evaluation", evaluation->seconds);
  time.raw(std::to_string(index), exchange.str());
  JsonObject round;
  round.whole("num_iters", clock.clock + 1)
      .raw("time", time.str())
      .number("num_samples", clock.samples)
      .number("total_time", evaluation ? evaluation->time : clock.time, "%.4f");
  if (evaluation && evaluation->accuracy) round.number("accuracy", *evaluation->accuracy);
  return round.whole("rank", clock.worker)
      .whole("bytes_sent", static_cast<std::int64_t>(clock.bytes_sent))
      .whole("bytes_received", static_cast<std::int64_t>(clock.bytes_received))
      .raw("staleness", mean_staleness(clock.pushes))
      .str();
}

Result<EsyncLog> EsyncLog::open(const std::string& directory, bool local, std::int64_t first) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return Error{Code::kUsage, str(directory, ": ", error.message())};
  if (const Status writable = check_writable(path_of(directory, 1), Code::kUsage); !writable.ok())
    return writable.error();
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("iter-") && name.ends_with(".txt") && std::atoll(name.c_str() + 5) > first)
      std::filesystem::remove(entry.path(), error);
  }
  EsyncLog made;
  made.directory_ = directory;
  made.local_ = local;
  return made;
}

// Whole or not at all, for who reads meanwhile; not forced to the disk, for a round may be short.
Status EsyncLog::add(const ClockMetrics& clock, const std::optional<Evaluation>& evaluation) const {
  const std::string path = path_of(directory_, clock.clock + 1), temporary = path + ".new";
  {
    std::ofstream file(temporary, std::ios::binary);
    file << esync_round(clock, local_, evaluation) << '\n' << std::flush;
    if (!file)
      return Error{Code::kSnapshot, str("cannot write ", temporary, ": ", system_reason(errno))};
  }
  std::error_code error;
  std::filesystem::rename(temporary, path, error);
  return error ? Status(Error{Code::kSnapshot, str("cannot write ", path, ": ", error.message())})
               : Status();
}

}  // namespace shoal
