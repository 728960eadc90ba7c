#include "common/run_job.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/epoch.h"
#include "common/first_here.h"
#include "common/machine.h"
#include "common/run_times.h"
#include "common/table_outputs.h"
#include "common/tool.h"
#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/base/random.h"
#include "shoal/base/text.h"
#include "shoal/net/graph.h"
#include "shoal/net/net.h"
#include "shoal/parallel/job/job_spec.h"
#include "shoal/parallel/recorder.h"
#include "shoal/parallel/run.h"
#include "shoal/parallel/scheme_words.h"
#include "shoal/parallel/worker.h"
#include "shoal/proto/net.pb.h"
#include "shoal/solver/emulate.h"
#include "shoal/solver/recipe.h"
#include "shoal/solver/snapshot.h"
#include "shoal/solver/solver.h"
#include "shoal/table/running_job.h"
#include "shoal/table/scheme.h"

namespace shoal {
namespace {

// Returns the solver state to go on from, or "".
std::string find_snapshot(const TrainRequest& request) {
  // Poseidon writes a state for each client and thread, and is told the name without them.
  const std::string of_first = request.snapshot + ".0.0";
  if (request.snapshot.ends_with(".solverstate") && !file_exists(request.snapshot) &&
      file_exists(of_first)) {
    LOG(WARNING) << request.snapshot << " does not exist; all workers start from " << of_first
                 << ", which Poseidon's client 0, thread 0 wrote";
    return of_first;
  }
  if (request.snapshot != "auto") return request.snapshot;
  const std::string found = newest_snapshot(request.job.solver.snapshot_prefix());
  if (found.empty())
    LOG(INFO) << "--snapshot=auto: no complete snapshot under "
              << request.job.solver.snapshot_prefix() << "; starting anew";
  else if (request.job.solver.weights_size() > 0)
    LOG(INFO) << "--snapshot=auto goes on from " << found
              << " and its weights; those of --weights or the solver are not used";
  return found;
}

Action asked_of(const TrainRequest& request) {
  return request.hooks.action ? request.hooks.action() : take_signal();
}

void watch_signals_of(const TrainRequest& request, const SignalEffects& effects) {
  if (!request.hooks.action) watch_signals(effects);
}

int exit_code(Ending ending) {
  return ending == Ending::kRequeue || ending == Ending::kLeft ? static_cast<int>(Code::kRequeue)
                                                               : 0;
}

// Cores are divided among the nets that compute at once on this machine, unless --threads says how
// many each is to have.
int threads_each(int asked, int nets) {
  return asked != 0 ? threads_to_use(asked) : std::max(1, threads_to_use(0) / nets);
}

table::SchemeSpec first_scheme(const parallel::JobSpec& job) {
  return job.phases.empty() ? table::SchemeSpec() : job.phases[0].scheme;
}

parallel::RecorderOptions recorder_options(const TrainRequest& request, table::Table* table,
                                           int worker, int workers, Watch& watch) {
  const bool alone = !table;
  const table::SchemeSpec scheme = first_scheme(request.job);
  parallel::RecorderOptions options;
  options.metrics = request.watch.metrics;
  options.metrics_limit = static_cast<std::uint64_t>(request.watch.metrics_limit_mb) << 20;
  options.tensorboard = request.watch.tensorboard;
  options.histograms_every = request.watch.histograms_every;
  options.sinks = watch.sinks(worker == 0);
  if (request.hooks.metrics) options.sinks.push_back(request.hooks.metrics);
  options.began = [&watch](const RunMetrics& run) { watch.begin(run); };
  if (table) options.tick = [&watch, table] { watch.see(table->roster(), table); };
  options.esync_logs = request.esync_log_dir;
  options.run = {.scheme = alone ? "local" : scheme.words(), .worker = worker, .workers = workers};
  if (const auto made = scheme.make(); made.ok() && !alone)
    options.local_steps = made.value()->contribution() != table::ContributionKind::kGradient;
  if (workers > 1 && !watch.shows_bar()) options.display = request.job.solver.display();
  return options;
}

// Returns what tells a worker's files from those of others: its number, or, where numbers may have
// been others' before, its rank, which no other process has.
int name_of_worker(const table::Table& table) {
  const table::RosterBody& roster = table.roster();
  if (roster.generation == 0) return table.worker();
  return static_cast<int>(
      std::ranges::find(roster.processes, table.worker(), &table::RosterBody::Process::worker)
          ->rank);
}

// Trains, and does what the flags ask of a run beside its training. Returns its exit code:
// kSnapshot if all went well but the writing of tables and measures, and the error if training
// failed.
Result<int> run(const TrainRequest& request, parallel::RunOptions options, table::Table* table,
                Watch& watch) {
  const int worker = table ? name_of_worker(*table) : 0,
            workers = table ? parallel::workers_of(table->roster()) : 1;
  TableOutputs outputs(request.net_outputs);
  parallel::RecorderOptions recorded = recorder_options(request, table, worker, workers, watch);
  const bool observed = !recorded.sinks.empty();
  parallel::Recorder recorder(recorded, table,
                              request.net_outputs.empty() || worker != 0 ? nullptr : &outputs);
  if (!request.devices.empty()) {
    options.device = request.devices[0];
    options.others.assign(request.devices.begin() + 1, request.devices.end());
  }
  const auto times = std::make_shared<TimesOfRun>();
  options.action = [&request, times] { return times->action(request.seconds, asked_of(request)); };
  if (request.hooks.wrap)
    options.wrap = [&request, inner = std::move(options.wrap)](
                       Net& net, std::unique_ptr<Updater> updater, const SolverParameter& solver) {
      return request.hooks.wrap(inner ? inner(net, std::move(updater), solver)
                                      : std::move(updater));
    };
  options.tuning = request.tuning;
  options.meter = &recorder;
  options.groups_out = request.groups_out;
  options.data_sharding_out = request.data_sharding_out;
  options.profile_only = request.profile_only;
  options.explain_exchange = request.explain_exchange;
  options.log_displays = !watch.shows_bar();
  if (observed || !request.net_outputs.empty() || !request.watch.metrics.empty() ||
      !request.watch.tensorboard.empty() || !request.esync_log_dir.empty())
    options.observer = &recorder;
  options.phase = [&](const std::string& words, std::int64_t iteration) {
    recorder.phase(words, iteration);
  };
  options.leads = [](bool leads) { say_only_warnings(!leads); };
  const auto opened = std::move(options.opened);
  options.opened = [&](Solver& solver) {
    if (opened) opened(solver);
    if (worker == 0 && !request.net_outputs.empty()) outputs.open(solver);
    recorder.open(solver);
    log_gpus(request.devices);
  };
  const Result<Ending> ending = parallel::run(request.job, options, table);
  const Status tables = outputs.close(), measures = recorder.close();
  if (!ending.ok()) return ending.error();
  if (workers > 1 && ending.value() == Ending::kDone)
    times->suggest_sharing(worker, first_scheme(request.job));
  const int code = exit_code(ending.value());
  if (code != 0 || (tables.ok() && measures.ok())) return code;
  for (const Status& status : {tables, measures})
    if (!status.ok())
      LOG(ERROR) << status.error().message
                 << "; training went on without these files, which lack what came after";
  return static_cast<int>(Code::kSnapshot);
}

parallel::RunOptions job_options(const TrainRequest& request, const JobFlags& flags,
                                 const parallel::Place& place) {
  parallel::RunOptions options;
  options.share.replicas = replicas_of(flags, request.devices.size());
  options.share.suffix = data_part(flags, place);
  options.threads = threads_each(request.threads, processes_here(place) * options.share.replicas);
  options.find_snapshot = [&request] { return find_snapshot(request); };
  if (flags.trials.emulate_step_ms > 0)
    options.wrap = [&request, seconds = flags.trials.emulate_step_ms / 1e3](
                       Net& net, std::unique_ptr<Updater> updater, const SolverParameter& solver) {
      const double work = contribution_weight(solver, request.job.name, net.context().share());
      return make_emulated(std::move(updater), net, solver.iter_size(), work * seconds);
    };
  options.weights = worker_weights(flags, place);
  options.before = [&request, weights = options.weights](Team& team, const Share& share) {
    compare_shares(share.replicas, weights, team);
    compare_parts(records_for(request.job, share), team);
  };
  options.measure_servers = request.placement == "measured";
  if (request.placement.empty()) options.bandwidths = parallel::server_bandwidths(place.machines);
  options.records = [&request](const Share& share) {
    return epoch_of_job(records_for(request.job, share), share);
  };
  return options;
}

// Checks that this process can do its part, before others count on it: its net, its solver and its
// data are there.
void check_nets(const TrainRequest& request, const JobFlags& flags, std::uint32_t rank) {
  Share share{.client = 1,
              .clients = 2,
              .replicas = 1,
              .suffix = flags.data_part.empty() ? std::to_string(rank) : flags.data_part};
  Context context({.threads = 1, .share = share});
  const Net train(train_net_of(request.job.solver, request.job.name, share), context);
  for (const NetParameter& test : test_nets_of(request.job.solver, request.job.name)) {
    Context another({.threads = 1, .share = share});
    const Net net(test, another);
  }
}

// Gives a process that joins the rank that the job has for it.
parallel::Place joined_place(const TrainRequest& request, const JobFlags& flags,
                             parallel::Place place, table::ServiceOptions& options) {
  options.others = split(flags.join, ',');
  options.others.erase(options.others.begin());
  const table::Enrolment enrolment = or_throw(table::enroll(options));
  options.coordinator = enrolment.coordinator;
  options.coordinator_rank = enrolment.coordinator_rank;
  place.rank = static_cast<int>(enrolment.rank);
  place.processes = place.rank + 1;
  check_nets(request, flags, static_cast<std::uint32_t>(place.rank));
  return place;
}

// Returns the machinefile, as it follows the configuration that the processes of a job compare.
std::string machines_text(const parallel::Place& place) {
  if (place.machines.empty()) return {};
  std::string text = "machinefile:\n";
  for (const parallel::Process& one : place.machines)
    text +=
        str(one.id, ' ', one.host, ' ', one.port, " role=", name_of(one.role), " group=", one.group,
            " data=", one.data, " weight=", one.weight, " bandwidth=", one.bandwidth, "\n");
  return text;
}

// Names the flags that were given and are of processes that train together.
void warn_of_job_flags() {
  constexpr std::string_view kFiles[] = {"job_flags", "scheme_flags", "trial_flags"},
                             kOfOne[] = {"client_id", "num_clients", "replicas",
                                         "num_table_threads", "batch_semantics"};
  std::vector<std::string> idle;
  for (const std::string& flag : given_of(kFiles))
    if (std::ranges::find(kOfOne, flag) == std::end(kOfOne)) idle.push_back(str("--", flag));
  for (const char* const flag : {"placement", "explain_exchange"})
    if (given(flag)) idle.push_back(str("--", flag));
  if (!idle.empty())
    LOG(WARNING) << join(idle) << (idle.size() == 1 ? " has" : " have")
                 << " no effect on a process that trains alone; --machinefile, --num_clients or a "
                    "launcher makes it one of a job (docs/training-on-a-cluster.md)";
}

Status serve(const TrainRequest& request, table::Service& service, Watch& watch) {
  return service.serve([&]() -> table::Wish {
    watch.see(service.roster(), nullptr);
    switch (asked_of(request)) {
      case Action::kStop: return {.want = table::Want::kStop};
      case Action::kSnapshot: return {.want = table::Want::kSnapshot};
      case Action::kRequeue: return {.want = table::Want::kRequeue};
      case Action::kLeave: return {.leaves = true};
      default: return {};
    }
  });
}

// Trains, or serves, as the process `place` of the job that the service connects.
int take_part(const TrainRequest& request, const JobFlags& flags, const parallel::Place& place,
              table::Service& service, Watch& watch) {
  table::Table* table = service.table();
  watch.set_rank(static_cast<std::uint32_t>(place.rank));
  if (!table) {
    say_only_warnings(place.rank != 0);
    if (Status status = serve(request, service, watch); !status.ok())
      throw ConfigError(status.error());
    return service.left() || service.requeued() ? static_cast<int>(Code::kRequeue) : 0;
  }
  say_only_warnings(table->worker() != 0);
  try {
    return or_throw(run(request, job_options(request, flags, place), table, watch));
  } catch (const ConfigError& error) {
    table->abort(error.error());
    throw;
  }
}

// Takes part in a job until that is over for this process. If it ends with an error since the job
// has removed this process, `again` gets the flags to join it anew.
int train_once(const TrainRequest& request, const JobFlags& given, const parallel::Place& found,
               Watch& watch, std::optional<JobFlags>& again) {
  JobFlags flags = given;
  const bool by_order = found.rank < 0;
  std::optional<FirstHere> first;  // as long as the job trains
  if (by_order) first.emplace(found.master);
  TrainRequest own = request;
  const auto key = std::make_shared<const SigningKey>();
  const parallel::Place at =
      by_order ? numbered_place(flags, own.job.solver, found, first->is_first(), key) : found;
  table::ServiceOptions options = service_options(flags, at, own.job.solver);
  options.key = key;
  options.ranks_by_order = by_order;
  const bool joins = !flags.join.empty();
  const parallel::Place place = joins ? joined_place(request, flags, at, options) : at;
  LOG(INFO) << "Process " << place.rank << " of " << place.processes << ", as "
            << parallel::name_of(place.role) << "; known from " << place.source;
  if (joins) {
    options.rank = static_cast<std::uint32_t>(place.rank),
    options.processes = static_cast<std::uint32_t>(place.processes), options.joins = true;
    if (flags.data_part.empty()) flags.data_part = std::to_string(place.rank);
  }
  options.on_round = [&watch](const std::string& json) { watch.see_pace(json); };
  // A worker that ends with the profile must not leave others that train.
  options.configuration = parallel::configuration_of(own.job) +
                          (own.profile_only ? "profile_only: true\n" : "") +
                          (own.tuning ? "tune: true\n" : "") + machines_text(place);
  options.scheme = first_scheme(own.job);
  options.seed = own.job.solver.random_seed() >= 0
                     ? static_cast<std::uint64_t>(own.job.solver.random_seed())
                     : random_seed() >> 1;
  SignalEffects effects = request.effects;
  effects.terminate = Action::kLeave;
  // A process that joins leaves in order: the job may count on it before it knows.
  if (joins) watch_signals_of(request, effects);
  const std::unique_ptr<table::Service> service = or_throw(table::Service::create(options));
  // A process that waits for the others to come has nothing to save, and ends as any program.
  if (!joins) watch_signals_of(request, effects);
  own.job.solver.set_random_seed(static_cast<std::int64_t>(service->roster().seed));
  try {
    return take_part(own, flags, place, *service, watch);
  } catch (const ConfigError&) {
    if (const std::vector<std::string> servers = service->where_to_rejoin(); !servers.empty())
      again = flags_to_rejoin(flags, place, options, service->port(), servers);
    throw;
  }
}

// Returns the flags with which a process joins its job, if that has begun before and goes on
// without it: it was lost, and is started again.
std::optional<JobFlags> flags_to_come_back(const TrainRequest& request, const JobFlags& flags,
                                           const parallel::Place& place) {
  if (place.rank < 0 || !flags.join.empty()) return std::nullopt;
  const table::ServiceOptions options = service_options(flags, place, request.job.solver);
  if (!options.losses.goes_on) return std::nullopt;
  const std::vector<std::string> servers =
      or_throw(table::find_running_job(options, where_it_may_go_on(place)));
  if (servers.empty()) return std::nullopt;
  LOG(WARNING) << "the job goes on without this process, rank " << place.rank << ", as the one at "
               << servers[0] << " says. It joins the job anew.";
  return flags_to_rejoin(flags, place, options, options.port, servers);
}

}  // namespace

void say_only_warnings(bool only) {
  FLAGS_minloglevel = only && FLAGS_v == 0 ? google::GLOG_WARNING : google::GLOG_INFO;
}

int train_alone(const TrainRequest& request, const JobFlags& flags) {
  warn_of_job_flags();
  watch_signals_of(request, request.effects);
  parallel::RunOptions options;
  options.share.replicas = replicas_of(flags, request.devices.size());
  options.threads = threads_each(request.threads, options.share.replicas);
  options.snapshot = find_snapshot(request);
  options.opened = [&](Solver& solver) {
    report_epoch(request.job.solver, request.job.name, solver);
  };
  Watch watch(request.watch, "", request.job.solver.max_iter());
  return or_throw(run(request, std::move(options), nullptr, watch));
}

int train_in_job(const TrainRequest& request, const JobFlags& given, const parallel::Place& found) {
  JobFlags flags = given;
  parallel::Place place = found;
  WatchOptions watched = request.watch;
  if (watched.status && watched.status->port > 0)
    watched.status->port = static_cast<std::uint16_t>(watched.status->port + place_here(place));
  Watch watch(watched, parallel::name_of(place.role), request.job.solver.max_iter());
  std::optional<JobFlags> again = flags_to_come_back(request, flags, place);
  for (;;) {
    if (again) {
      flags = *std::exchange(again, {});
      place = place_to_join(flags);
    }
    try {
      return train_once(request, flags, place, watch, again);
    } catch (const ConfigError& error) {
      if (!again) throw;
      LOG(WARNING) << error.what() << ". It joins the job anew.";
    }
    say_only_warnings(false);
  }
}

}  // namespace shoal
