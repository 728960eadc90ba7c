#include <cmath>

#include "shoal/base/text.h"
#include "shoal/base/version.h"
#include "shoal/report/json.h"
#include "shoal/status/pages.h"

namespace shoal {
namespace {

template <class List, class Text>
std::string json_list(const List& list, Text text_of) {
  std::vector<std::string> words;
  for (const auto& one : list) words.push_back(text_of(one));
  return "[" + join(words, ",") + "]";
}

std::string state_of(const RunStatus& status) {
  switch (status.state) {
    case RunStatus::State::kStarting: return "starting";
    case RunStatus::State::kTraining: return "training";
    case RunStatus::State::kEnded: break;
  }
  return "ended";
}

std::string run_json(const RunMetrics& run) {
  return JsonObject()
      .text("name", run.name)
      .text("scheme", run.scheme)
      .whole("worker", run.worker)
      .whole("workers", run.workers)
      .str();
}

// Returns the seconds of a worker's clocks by what they went into, and what it read and sent.
std::string sums_json(const ClockSums& sums) {
  const ClockMetrics& sum = sums.sum;
  JsonObject object;
  object.number("seconds", sums.seconds).number("clocks", sums.clocks);
  object.number("compute", sum.compute).number("data_wait", sum.data_wait);
  object.number("row_wait", sum.row_wait).number("update", sum.update).number("other", sum.other);
  object.number("samples", sum.samples);
  object.whole("local_steps", static_cast<std::int64_t>(sum.local_steps));
  object.whole("bytes_sent", static_cast<std::int64_t>(sum.bytes_sent));
  object.whole("bytes_received", static_cast<std::int64_t>(sum.bytes_received));
  object.whole("shared_bytes", static_cast<std::int64_t>(sum.shared_bytes));
  object.whole("drops", static_cast<std::int64_t>(sum.drops));
  object.number("push_staleness", mean_of(sum.pushes).value_or(NAN));
  object.number("read_staleness", mean_of(sum.reads).value_or(NAN));
  return object.str();
}

std::string job_json(const RunStatus& status) {
  if (!status.job) return "null";
  JsonObject object;
  object.whole("rank", status.job->rank);
  object.whole("generation", static_cast<std::int64_t>(status.job->generation));
  if (status.presence)
    object.whole("alive", status.presence->alive)
        .whole("taking_part", status.presence->taking_part)
        .whole("committed", status.presence->committed);
  object.whole("losses", status.losses);
  object.raw("processes", json_list(status.job->processes, [&](const JobStatus::Process& one) {
               return JsonObject()
                   .whole("rank", one.rank)
                   .text("host", one.host)
                   .whole("worker", one.worker)
                   .whole("server", one.server)
                   .raw("alive", one.alive ? "true" : "false")
                   .raw("this", one.rank == status.job->rank ? "true" : "false")
                   .str();
             }));
  object.whole("bytes_sent", static_cast<std::int64_t>(status.job->bytes_sent));
  object.whole("bytes_received", static_cast<std::int64_t>(status.job->bytes_received));
  return object.str();
}

std::string curve_json(const std::pair<std::string, Curve>& named) {
  const auto& points = named.second.points();
  const auto whole = [](const auto& one) { return std::to_string(one.iteration); };
  const auto time = [](const auto& one) { return json_number(one.time); };
  const auto value = [](const auto& one) { return json_number(one.value); };
  return JsonObject()
      .text("name", named.first)
      .raw("iterations", json_list(points, whole))
      .raw("seconds", json_list(points, time))
      .raw("values", json_list(points, value))
      .str();
}

std::string fault_json(const FaultMetrics& fault) { return line_of(fault); }
std::string phase_json(const PhaseMetrics& phase) { return line_of(phase); }

}  // namespace

std::string status_json(const RunStatus& status) {
  JsonObject object;
  object.text("version", kVersion).text("state", state_of(status));
  object.text("role", status.role);
  object.raw("run", run_json(status.run));
  object.whole("iteration", status.iteration).whole("max_iter", status.max_iter);
  object.number("seconds", status.seconds).number("silent", status.silent);
  object.raw("total", sums_json(status.total)).raw("recent", sums_json(status.recent));
  object.raw("job", job_json(status));
  object.raw("curves", json_list(status.curves, curve_json));
  object.raw("faults", json_list(status.faults, fault_json));
  object.raw("phases", json_list(status.phases, phase_json));
  object.raw("pace", status.pace.empty() ? "null" : status.pace);
  return object.str();
}

}  // namespace shoal
