// Training, alone or as one process of a job.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/job.h"
#include "common/signals.h"
#include "common/watch.h"
#include "shoal/ops/tuning.h"
#include "shoal/parallel/job/job_spec.h"
#include "shoal/report/metrics.h"
#include "shoal/solver/exchange.h"

namespace shoal {

// The wishes of a program that trains within itself. All calls come on the thread that trains.
struct TrainHooks {
  // Asked after every iteration, and by a server about twice a second. If set, signals are left
  // alone.
  std::function<Action()> action{};
  MetricsSink* metrics = nullptr;  // receives the records that --metrics writes
  // Wraps each updater that is made.
  std::function<std::unique_ptr<Updater>(std::unique_ptr<Updater>)> wrap{};
};

struct TrainRequest {
  parallel::JobSpec job;
  std::string snapshot;                  // to go on from: a .solverstate, "auto", or ""
  std::string net_outputs;               // a prefix, or ""
  std::vector<const Device*> devices{};  // of its replicas; empty: the CPU
  int threads = 0;                       // asked for
  SignalEffects effects;
  WatchOptions watch{};
  std::string esync_log_dir;                  // a folder, or ""
  std::string groups_out, data_sharding_out;  // files, or ""
  double seconds = 0;                         // of training, after which the run ends; 0: no limit
  bool profile_only = false;
  bool explain_exchange = false;
  std::string placement;                      // "bytes", "measured", or ""
  std::shared_ptr<ops::ConvTuning> tuning{};  // of kernels; null: by rule
  TrainHooks hooks{};
};

// Others than the chief say what is wrong and nothing else, unless details were asked for (--v).
void say_only_warnings(bool only);
// Returns the exit code: 0, or kRequeue. Throws ConfigError. With one process no port is opened.
int train_alone(const TrainRequest& request, const JobFlags& flags);
// Runs one process of several: worker, server or both. An error here ends the job for all.
int train_in_job(const TrainRequest& request, const JobFlags& flags, const parallel::Place& place);

}  // namespace shoal
