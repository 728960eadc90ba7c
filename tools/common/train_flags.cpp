#include "common/train_flags.h"

#include <gflags/gflags.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/data_flags.h"
#include "common/device_flags.h"
#include "common/hybrid_flags.h"
#include "common/job_flags.h"
#include "common/kernel_flags.h"
#include "common/machine.h"
#include "common/poseidon_flags.h"
#include "common/run_job.h"
#include "common/scheme_flags.h"
#include "common/signals.h"
#include "common/solver_flags.h"
#include "common/tool.h"
#include "common/watch_flags.h"
#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/ops/gpu.h"
#include "shoal/parallel/job/job_spec.h"
#include "shoal/proto/io.h"
#include "shoal/proto/layers.pb.h"

DEFINE_string(weights, "", "models to start from, separated by commas");
DEFINE_string(snapshot, "",
              "a .solverstate or .solverstate.h5 to go on from, or 'auto' for the newest complete "
              "one, if there is any");
DEFINE_string(sigint_effect, "stop",
              "what SIGINT does: stop, snapshot or none; a second one leaves at once");
DEFINE_string(sighup_effect, "snapshot", "what SIGHUP does: stop, snapshot or none");
DEFINE_int32(threads, 0, "threads for kernels; 0: OMP_NUM_THREADS or all cores");
DEFINE_string(net_outputs, "",
              "write the numbers of displays and tests to PREFIX.train.csv, PREFIX.test0.csv ... "
              "and PREFIX.netoutputs");
DEFINE_string(
    esync_log_dir, "",
    "write each worker's iterations as ESync does, to DIR/worker<k>/iter-1.txt, iter-2.txt ...");
DEFINE_string(groups_out, "",
              "write the groups that group_by: SPEED found, a group a line, as MXNet-G has them");
DEFINE_string(data_sharding_out, "",
              "with group_by: SPEED, write the workers' shares of the data, a line 'begin end' "
              "each, as MXNet-G has them");
DEFINE_string(
    placement, "",
    "how rows are placed on servers: bytes, or measured (by time, after all links are measured); "
    "default: by time if the machinefile gives bandwidth= for all servers, else bytes");
DEFINE_bool(explain_exchange, false,
            "print how each layer's gradients travel between workers, with the bytes and the time "
            "of each way");
DEFINE_double(seconds, 0,
              "end after so many seconds of training, if max_iter does not end it before; 0: no "
              "limit");
DEFINE_bool(profile_only, false,
            "with group_by: SPEED, end when the groups are found and their files are written");

namespace shoal {
namespace {

Action effect_named(const std::string& name, const char* flag) {
  if (name == "stop") return Action::kStop;
  if (name == "snapshot") return Action::kSnapshot;
  if (name == "none") return Action::kNone;
  throw ConfigError(Code::kUsage, "--", flag, "=", name, ": known are stop, snapshot and none");
}

void check_flags(const std::vector<std::string>& words) {
  if (!words.empty() && FLAGS_hybrid.empty())
    throw ConfigError(Code::kUsage, "'", words[0],
                      "' is not a flag; did you mean --solver=", words[0], "?");
  need_flag(FLAGS_solver, "solver");
  devices_of_flags({}, {});  // which are there, or this throws
  threads_to_use(FLAGS_threads);
  if (!(FLAGS_seconds >= 0) || std::isinf(FLAGS_seconds))
    throw ConfigError(Code::kUsage, "--seconds=", FLAGS_seconds, " is no time; it is 0 or more");
  if (FLAGS_placement != "" && FLAGS_placement != "bytes" && FLAGS_placement != "measured")
    throw ConfigError(Code::kUsage, "--placement=", FLAGS_placement,
                      ": known are bytes and measured");
  if (!FLAGS_snapshot.empty() && FLAGS_snapshot != "auto" && !FLAGS_weights.empty())
    throw ConfigError(Code::kUsage, "--snapshot=", FLAGS_snapshot, " and --weights=", FLAGS_weights,
                      " exclude each other: a snapshot has weights of its own");
}

// Checks that --pace_json has something to show.
void check_pace(const std::string& pace_json, const parallel::JobSpec& job,
                const parallel::Place& place) {
  if (pace_json.empty()) return;
  const auto decides = [](const auto& phase) { return phase.scheme.name == "esync"; };
  if (place.distributed() && std::ranges::any_of(job.phases, decides)) return;
  throw ConfigError(Code::kUsage, "--pace_json=", pace_json,
                    ": there is nothing to write in it, since ",
                    place.distributed() ? "no phase's scheme is esync, which alone decides on steps"
                                        : "one process alone has no rounds");
}

// Returns the GPUs that the machinefile gives this process.
std::vector<int> gpus_of(const parallel::Place& place) {
  return place.machines.empty() || place.role == parallel::Role::kServer
             ? std::vector<int>()
             : place.machines[static_cast<std::size_t>(place.rank)].gpus;
}

int workers_of(const parallel::Place& place) {
  if (place.machines.empty()) return place.processes;
  return static_cast<int>(std::ranges::count_if(
      place.machines, [](const auto& process) { return process.role != parallel::Role::kServer; }));
}

}  // namespace

int train_by_flags(const std::vector<std::string>& words, const TrainHooks& hooks) {
  const JobFlags flags = job_flags();
  const parallel::Place place = flags.join.empty() ? find_place(flags) : place_to_join(flags);
  if (place.scheduler) {
    LOG(INFO) << "DMLC_ROLE is scheduler: no such process is needed here, and this one ends. The "
                 "first worker or server that starts on "
              << place.master << " coordinates the job beside its work.";
    return 0;
  }
  // A process that waits for the others of its job ends as any program.
  if (place.distributed() && !hooks.action) release_signals();
  check_flags(words);
  const WatchOptions watch = watch_of_flags(flags);
  const SignalEffects effects{effect_named(FLAGS_sigint_effect, "sigint_effect"),
                              effect_named(FLAGS_sighup_effect, "sighup_effect")};
  if (FLAGS_v == 0) FLAGS_v = place.verbosity;
  SolverParameter param = solver_of_flags();
  if (!FLAGS_weights.empty()) {
    param.clear_weights();
    param.add_weights(FLAGS_weights);
  }
  if (!FLAGS_precision.empty()) param.set_precision(precision_of_flags());
  if (!FLAGS_convolution.empty()) param.set_convolution(convolution_of_flags());
  set_memory_limit(param);
  if (given("cuda_graphs")) param.set_cuda_graphs(FLAGS_cuda_graphs);
  const bool has_scheme = param.scheme_size() > 0;
  merge_flags(flags, param);
  if (!FLAGS_hybrid.empty()) {
    std::vector<std::string> phases = words;
    phases.insert(phases.begin(), FLAGS_hybrid);
    merge_hybrid(phases, flags.scheme, max_iter_is_given(), param);
  }
  if (FLAGS_hybrid.empty()) share_max_iter(workers_of(place), param);
  merge_groups(place, param);
  if (!has_scheme) check_scheme_of_flags(param);
  report_ignored_flags();
  log_cpu_kernels();
  VLOG(1) << "The solver as it is used:\n" << to_text(param);
  parallel::JobSpec job = parallel::read_job_spec(param, FLAGS_solver);
  merge_data_flags(job);
  check_pace(watch.pace_json, job, place);
  const Devices devices = devices_of_flags(param, gpus_of(place));
  if (devices.empty() && ops::gpu_count() > 0 && !param.has_solver_mode() && !given("gpu"))
    LOG(WARNING) << "this machine has " << ops::gpu_count()
                 << " GPUs, and the CPU computes, since solver_mode is not given; --gpu=0 or "
                    "solver_mode: GPU trains on one";
  const TrainRequest request{.job = std::move(job),
                             .snapshot = FLAGS_snapshot,
                             .net_outputs = FLAGS_net_outputs,
                             .devices = devices,
                             .threads = FLAGS_threads,
                             .effects = effects,
                             .watch = watch,
                             .esync_log_dir = FLAGS_esync_log_dir,
                             .groups_out = FLAGS_groups_out,
                             .data_sharding_out = FLAGS_data_sharding_out,
                             .seconds = FLAGS_seconds,
                             .profile_only = FLAGS_profile_only,
                             .explain_exchange = FLAGS_explain_exchange,
                             .placement = FLAGS_placement,
                             .tuning = tuning_of_flags(param.snapshot_prefix(), FLAGS_snapshot),
                             .hooks = hooks};
  return place.distributed() ? train_in_job(request, flags, place) : train_alone(request, flags);
}

int train_by_words(std::span<const std::string> args, const TrainHooks& hooks) {
  const gflags::FlagSaver before;
  return train_by_flags(read_flags(args), hooks);
}

}  // namespace shoal
