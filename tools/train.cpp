// Trains a net, as `caffe train` does.
#include <gflags/gflags.h>

#include "common/machine.h"
#include "common/records.h"
#include "common/signals.h"
#include "common/tool.h"
#include "shoal/base/log.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/recipe.h"
#include "shoal/solver/snapshot.h"
#include "shoal/solver/solver.h"

DEFINE_string(solver, "", "the solver, a prototxt");
DEFINE_string(weights, "", "a list with commas of models to start from");
DEFINE_string(snapshot, "", "a .solverstate to go on from, or 'auto' for the newest complete one, if there is any");
DEFINE_string(sigint_effect, "stop", "what SIGINT does: stop, snapshot or none; a second one leaves at once");
DEFINE_string(sighup_effect, "snapshot", "what SIGHUP does: stop, snapshot or none");
DEFINE_int32(level, 0, "the net's level, for include and exclude rules");
DEFINE_string(stage, "", "a list with commas of the net's stages, for include and exclude rules");
DEFINE_int32(threads, 0, "threads for kernels; 0: OMP_NUM_THREADS or all cores");
DEFINE_string(gpu, "", "refused: this build has no device code");

namespace shoal {
namespace {

constexpr const char* kUsage =
    "train --solver=FILE [--weights=FILE,...] [--snapshot=FILE.solverstate|auto] [--threads=N]\n\n"
    "Trains a net. SIGTERM and SIGUSR1 write a snapshot and end with 75, for a scheduler to start again with --snapshot=auto.";

Action effect_named(const std::string& name, const char* flag) {
  if (name == "stop") return Action::kStop;
  if (name == "snapshot") return Action::kSnapshot;
  if (name == "none") return Action::kNone;
  throw ConfigError(Code::kUsage, "--", flag, "=", name, ": known are stop, snapshot and none");
}

void check_flags(const std::vector<std::string>& words) {
  if (!words.empty()) throw ConfigError(Code::kUsage, "'", words[0], "' is not a flag; did you mean --solver=", words[0], "?");
  need_flag(FLAGS_solver, "solver");
  refuse_gpu(FLAGS_gpu);
  if (!FLAGS_snapshot.empty() && FLAGS_snapshot != "auto" && !FLAGS_weights.empty())
    throw ConfigError(Code::kUsage, "--snapshot=", FLAGS_snapshot, " and --weights=", FLAGS_weights,
                      " exclude each other: a snapshot has weights of its own");
}

// The solver state to go on from, or "".
std::string find_snapshot(const SolverParameter& param) {
  if (FLAGS_snapshot != "auto") return FLAGS_snapshot;
  const std::string found = newest_snapshot(param.snapshot_prefix());
  if (found.empty()) LOG(INFO) << "--snapshot=auto: no complete snapshot under " << param.snapshot_prefix() << "; starting anew";
  return found;
}

void report_epoch(const SolverParameter& param, const Solver& solver) {
  const std::int64_t items = solver.items_per_update();
  const auto records = records_of(train_net_of(param, FLAGS_solver), Counting::kCheap);
  if (!records || items == 0) return;
  const auto iterations = static_cast<double>(*records) / static_cast<double>(items);
  LOG(INFO) << "One epoch, " << *records << " records, is " << iterations << " iterations; max_iter " << param.max_iter() << " is "
            << param.max_iter() / iterations << " epochs";
}

int train(const std::vector<std::string>& words) {
  check_flags(words);
  watch_signals({effect_named(FLAGS_sigint_effect, "sigint_effect"), effect_named(FLAGS_sighup_effect, "sighup_effect")});
  SolverParameter param = read_solver(FLAGS_solver);
  NetState state;
  set_state("", FLAGS_level, FLAGS_stage, state);
  param.mutable_train_state()->MergeFrom(state);
  const std::string snapshot = find_snapshot(param);
  if (!FLAGS_weights.empty() || !snapshot.empty()) param.clear_weights();
  if (!FLAGS_weights.empty() && snapshot.empty()) param.add_weights(FLAGS_weights);
  VLOG(1) << "The solver as it is used:\n" << to_text(param);

  SolverOptions options;
  options.threads = threads_to_use(FLAGS_threads);
  options.name = FLAGS_solver;
  options.action = take_signal;
  Solver solver(param, options);
  report_epoch(param, solver);
  if (!snapshot.empty()) solver.restore(snapshot);
  LOG(INFO) << "Starting Optimization";
  return or_throw(solver.solve()) == Ending::kRequeue ? static_cast<int>(Code::kRequeue) : 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) { return shoal::run_tool(argc, argv, shoal::kUsage, shoal::train); }
