#include <cmath>

#include "shoal/base/version.h"
#include "shoal/status/pages.h"
#ifdef SHOAL_PROMETHEUS
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#endif

namespace shoal {

#ifdef SHOAL_PROMETHEUS
namespace {

using prometheus::ClientMetric;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

class Families {
 public:
  // Adds a number that may fall as well as grow.
  void gauge(const char* name, const char* help, double value, Labels labels = {}) {
    add(name, help, MetricType::Gauge, std::move(labels)).gauge.value = value;
  }
  // Adds a sum since the worker began.
  void counter(const char* name, const char* help, double value, Labels labels = {}) {
    add(name, help, MetricType::Counter, std::move(labels)).counter.value = value;
  }
  std::string text() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  ClientMetric& add(const char* name, const char* help, MetricType type, Labels labels) {
    if (families_.empty() || families_.back().name != name)
      families_.push_back({.name = name, .help = help, .type = type, .metric = {}});
    ClientMetric& metric = families_.back().metric.emplace_back();
    metric.label = std::move(labels);
    return metric;
  }
  std::vector<prometheus::MetricFamily> families_;
};

void add_worker(const RunStatus& status, Families& families) {
  const ClockMetrics& sum = status.total.sum;
  families.counter("shoal_samples_total", "Samples that this worker's nets read.", sum.samples);
  families.counter("shoal_steps_total", "Steps of this worker's solver.",
                   static_cast<double>(sum.local_steps));
  const char* const kSeconds = "shoal_seconds_total";
  const char* const kHelp = "Seconds of this worker by what they went into.";
  families.counter(kSeconds, kHelp, sum.compute, {{"part", "compute"}});
  families.counter(kSeconds, kHelp, sum.data_wait, {{"part", "data_wait"}});
  families.counter(kSeconds, kHelp, sum.row_wait, {{"part", "row_wait"}});
  families.counter(kSeconds, kHelp, sum.update, {{"part", "update"}});
  families.counter(kSeconds, kHelp, sum.other, {{"part", "other"}});
  families.counter("shoal_dropped_pushes_total", "Pushes of rows that were not merged.",
                   static_cast<double>(sum.drops));
  if (const auto mean = mean_of(status.recent.sum.pushes))
    families.gauge("shoal_push_staleness",
                   "Mean staleness of this worker's pushes in the last half minute.", *mean);
  if (status.recent.seconds > 0)
    families.gauge("shoal_samples_per_second", "Mean of the last half minute.",
                   status.recent.sum.samples / status.recent.seconds);
}

void add_job(const RunStatus& status, Families& families) {
  if (status.job) {
    families.gauge("shoal_generation", "Generation of the job.",
                   static_cast<double>(status.job->generation));
    families.counter("shoal_bytes_sent_total", "Bytes that this process sent.",
                     static_cast<double>(status.job->bytes_sent));
    families.counter("shoal_bytes_received_total", "Bytes that this process received.",
                     static_cast<double>(status.job->bytes_received));
    for (const JobStatus::Process& one : status.job->processes)
      families.gauge("shoal_process_alive",
                     "1 if this process does not know the one of this rank to be gone.",
                     one.alive ? 1 : 0, {{"host", one.host}, {"rank", std::to_string(one.rank)}});
  }
  if (status.presence) {
    families.gauge("shoal_processes_alive", "Processes that are neither lost nor have left.",
                   status.presence->alive);
    families.gauge("shoal_workers_taking_part", "Workers of the present generation.",
                   status.presence->taking_part);
    families.counter("shoal_committed_steps_total", "Steps of all workers that are in the params.",
                     static_cast<double>(status.presence->committed));
  }
  families.counter("shoal_losses_total", "Processes that the job lost.", status.losses);
}

}  // namespace

Result<std::string> prometheus_text(const RunStatus& status) {
  Families families;
  families.gauge("shoal_info", "What trains.", 1,
                 {{"net", status.run.name},
                  {"scheme", status.run.scheme},
                  {"version", std::string(kVersion)},
                  {"worker", std::to_string(status.run.worker)}});
  families.gauge("shoal_iteration", "Iterations that this worker has done.",
                 static_cast<double>(status.iteration));
  families.gauge("shoal_max_iter", "Iterations of the run.", static_cast<double>(status.max_iter));
  add_worker(status, families);
  add_job(status, families);
  for (const auto& [name, curve] : status.curves)
    if (!curve.points().empty())
      families.gauge("shoal_value", "Last value of a curve of the page.",
                     curve.points().back().value, {{"name", name}});
  return families.text();
}
#else
Result<std::string> prometheus_text(const RunStatus&) {
  return Error{Code::kUsage,
               "this build has no prometheus-cpp: install prometheus-cpp-dev and build again"};
}
#endif

}  // namespace shoal
