#include "run_job.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "machine.h"
#include "records.h"
#include "shoal/base/log.h"
#include "shoal/base/random.h"
#include "shoal/base/text.h"
#include "shoal/data/parts.h"
#include "shoal/net/graph.h"
#include "shoal/parallel/recorder.h"
#include "shoal/parallel/replicas.h"
#include "shoal/parallel/row_map.h"
#include "shoal/parallel/worker.h"
#include "shoal/proto/net.pb.h"
#include "shoal/simulate/emulate.h"
#include "shoal/solver/recipe.h"
#include "shoal/solver/snapshot.h"
#include "shoal/solver/solver.h"
#include "shoal/table/placement.h"
#include "shoal/table/scheme.h"
#include "table_outputs.h"

namespace shoal {
namespace {

// The solver state to go on from, or "".
std::string find_snapshot(const TrainRequest& request) {
  if (request.snapshot != "auto") return request.snapshot;
  const std::string found = newest_snapshot(request.param.snapshot_prefix());
  if (found.empty()) LOG(INFO) << "--snapshot=auto: no complete snapshot under " << request.param.snapshot_prefix() << "; starting anew";
  return found;
}

int exit_code(Ending ending) { return ending == Ending::kRequeue ? static_cast<int>(Code::kRequeue) : 0; }

void report_epoch(const SolverParameter& param, const std::string& name, const Solver& solver) {
  const std::int64_t items = solver.items_per_update();
  const auto records = records_of(train_net_of(param, name), Counting::kCheap);
  if (!records || items == 0) return;
  const auto iterations = static_cast<double>(*records) / static_cast<double>(items);
  LOG(INFO) << "One epoch, " << *records << " records, is " << iterations << " iterations; max_iter " << param.max_iter() << " is "
            << param.max_iter() / iterations << " epochs";
}

struct Records {
  std::uint64_t own = 0;    // that this process reads in an epoch; 0 if that is not cheaply known
  bool parts = false;       // other processes have others
};

Records records_for(const TrainRequest& request, const Share& share) {
  NetParameter net = train_net_of(request.param, request.name);
  bool parts = false;
  const auto take_part = [&](auto& data) {
    if (data.shared_file_system() || share.clients == 1) return;
    parts = true;
    data.set_source(part_path(data.source(), share.suffix.empty() ? std::to_string(share.client) : share.suffix));
  };
  for (LayerParameter& layer : *net.mutable_layer()) {
    if (layer.type() == "Data") take_part(*layer.mutable_data_param());
    if (layer.type() == "ImageData") take_part(*layer.mutable_image_data_param());
  }
  return {records_of(net, Counting::kCheap).value_or(0), parts};
}

// Records of an epoch of the whole job, as far as this process can tell: all parts are taken to be as large as its own.
std::uint64_t epoch_of_job(const Records& records, const Share& share) {
  return records.own * (records.parts ? static_cast<std::uint64_t>(share.clients) : 1);
}

std::unique_ptr<Updater> with_replicas(const TrainRequest& request, Net& net, std::unique_ptr<Updater> updater) {
  if (net.context().share().replicas == 1) return updater;
  return parallel::make_replicas(request.param, request.name, net, std::move(updater));
}

// Cores are divided among the nets that compute at once on this machine, unless --threads says how many each is to have.
int threads_each(int asked, int nets) { return asked > 0 ? asked : std::max(1, threads_to_use(0) / nets); }

parallel::RecorderOptions recorder_options(const TrainRequest& request, const std::string& scheme, int worker, int workers) {
  parallel::RecorderOptions options;
  options.metrics = request.metrics;
  options.esync_logs = request.esync_log_dir;
  options.run = {.scheme = scheme, .worker = worker, .workers = workers};
  if (const auto made = table::make_scheme(scheme); made.ok()) options.local_steps = made.value()->payload() != table::Payload::kGradient;
  if (workers > 1) options.display = request.param.display();
  return options;
}

// Sees to it that `solver` is measured, and its displays and tests are heard.
void connect(const TrainRequest& request, parallel::Recorder& recorder, SolverOptions& solver) {
  solver.meter = &recorder;
  if (!request.net_outputs.empty() || !request.metrics.empty() || !request.esync_log_dir.empty()) solver.observer = &recorder;
}

// The worker of this process, from its nets to its last word.
class JobWorker {
 public:
  JobWorker(const TrainRequest& request, const JobFlags& flags, const parallel::Place& place, table::Table& table)
      : request_(request), place_(place), table_(table), team_(parallel::make_table_team(table)), outputs_(request.net_outputs) {
    scheme_ = scheme_of(request_.param, request_.name);
    share_.client = table.worker();
    share_.clients = parallel::workers_of(table.roster());
    share_.replicas = replicas_of(flags);
    step_seconds_ = flags.emulate_step_ms / 1e3;
    if (!place.machines.empty()) share_.suffix = place.machines[static_cast<std::size_t>(place.rank)].data;
    recorder_.emplace(recorder_options(request_, scheme_, share_.client, share_.clients), &table, request_.net_outputs.empty() ? nullptr : &outputs_);
  }

  Result<Ending> run() {
    records_ = records_for(request_, share_);
    if (records_.parts) compare_parts();
    const std::string snapshot = or_throw(team_->share(team_->chief() ? find_snapshot(request_) : ""));
    if (!snapshot.empty()) request_.param.clear_weights();
    Solver solver(request_.param, options());
    const Released released{table_};   // before the solver's params go
    if (team_->chief()) report(solver);
    if (!snapshot.empty()) solver.restore(snapshot);
    if (team_->chief() && !request_.net_outputs.empty()) outputs_.open(solver);
    recorder_->open(solver);
    LOG(INFO) << "Starting Optimization";
    const std::int64_t first = solver.iteration();
    Result<Ending> ending = solver.solve();
    outputs_.close();
    recorder_->close();
    if (!ending.ok()) {
      table_.abort(ending.error());
      return ending;
    }
    if (Status status = table_.finish(solver.iteration()); !status.ok()) return status.error();
    report_traffic(solver.iteration() - first);
    return ending;
  }

 private:
  struct Released {
    table::Table& table;
    ~Released() { table.release(); }
  };

  // Parts may differ in size: who has read all of its own begins it anew. The chief says so, if it is cheap to know.
  void compare_parts() const {
    const std::vector<std::string> sizes = or_throw(team_->gather(std::to_string(records_.own)));
    const bool equal = std::ranges::adjacent_find(sizes, std::ranges::not_equal_to()) == sizes.end();   // on all but the chief there are none
    if (equal || std::ranges::count(sizes, "0") > 0) return;
    LOG(WARNING) << "The workers' parts of the data have " << join(sizes) << " records: who has the fewest reads each of them more often than others theirs";
  }

  SolverOptions options() {
    SolverOptions options;
    options.threads = threads_each(request_.threads, processes_here(place_) * share_.replicas);
    options.name = request_.name;
    options.action = take_signal;
    options.share = share_;
    options.team = team_.get();
    connect(request_, *recorder_, options);
    options.epoch = epoch_of_job(records_, share_);
    if (!or_throw(table::make_scheme(scheme_))->lockstep()) options.averaging = "each worker's mean gradient is an update of its own";
    options.make_updater = [this](Net& net) {
      parallel::WorkerOptions worker;
      worker.name = request_.name;
      worker.scheme = scheme_;
      worker.weight = contribution_weight(request_.param, request_.name, share_);
      return emulated(net, with_replicas(request_, net, parallel::make_table_updater(request_.param, net, table_, worker)));
    };
    return options;
  }

  std::unique_ptr<Updater> emulated(const Net& net, std::unique_ptr<Updater> updater) const {
    if (step_seconds_ <= 0) return updater;
    return simulate::make_emulated(std::move(updater), net, request_.param.iter_size(), step_seconds_);
  }

  void report(Solver& solver) const {
    const int servers = parallel::servers_of(table_.roster());
    const parallel::RowMap map(solver.net(), servers);
    std::string bytes;
    for (const std::size_t each : table::bytes_per_server(map.rows(), servers)) bytes += str(bytes.empty() ? "" : ", ", each);
    LOG(INFO) << "Scheme " << scheme_ << "; " << map.rows().size() << " rows of params on " << servers << (servers == 1 ? " server" : " servers")
              << ", with " << bytes << " bytes";
    const std::string caution = or_throw(table::make_scheme(scheme_))->caution(share_.clients);
    if (!caution.empty()) LOG(WARNING) << "Scheme " << scheme_ << ": " << caution;
  }

  // Of this process, as worker and as server, with all that is not params: tests, snapshots, heartbeats.
  void report_traffic(std::int64_t iterations) const {
    const table::Traffic all = table_.traffic();
    const auto each = [&](std::uint64_t bytes) { return static_cast<double>(bytes) / static_cast<double>(std::max<std::int64_t>(1, iterations)); };
    LOG(INFO) << "Traffic: " << each(all.bytes_sent) << " bytes sent and " << each(all.bytes_received) << " received an iteration, "
              << each(all.local_bytes) << " within this process";
  }

  TrainRequest request_;
  const parallel::Place& place_;
  table::Table& table_;
  const std::unique_ptr<Team> team_;
  TableOutputs outputs_;
  std::optional<parallel::Recorder> recorder_;
  std::string scheme_;
  Share share_;
  double step_seconds_ = 0;                     // emulated; 0: as they are
  Records records_;
};

Status serve(table::Service& service) {
  return service.serve([] {
    const Action action = take_signal();
    return action == Action::kStop || action == Action::kRequeue;
  });
}

}  // namespace

void say_only_warnings(bool only) { FLAGS_minloglevel = only && FLAGS_v == 0 ? google::GLOG_WARNING : google::GLOG_INFO; }

int train_alone(const TrainRequest& request, const JobFlags& flags) {
  watch_signals(request.effects);
  TrainRequest own = request;
  scheme_of(own.param, own.name);   // so that what would be wrong among many is wrong here
  const std::string snapshot = find_snapshot(own);
  if (!snapshot.empty()) own.param.clear_weights();
  SolverOptions options;
  options.share.replicas = replicas_of(flags);
  options.threads = threads_each(own.threads, options.share.replicas);
  options.name = own.name;
  options.action = take_signal;
  TableOutputs outputs(own.net_outputs);
  parallel::Recorder recorder(recorder_options(own, "local", 0, 1), nullptr, own.net_outputs.empty() ? nullptr : &outputs);
  connect(own, recorder, options);
  options.make_updater = [&](Net& net) { return with_replicas(own, net, make_local_updater(own.param, own.name, net)); };
  Solver solver(own.param, options);
  report_epoch(own.param, own.name, solver);
  if (!snapshot.empty()) solver.restore(snapshot);
  if (!own.net_outputs.empty()) outputs.open(solver);
  recorder.open(solver);
  LOG(INFO) << "Starting Optimization";
  const Result<Ending> ending = solver.solve();
  outputs.close();
  recorder.close();
  return exit_code(or_throw(ending));
}

int train_in_job(const TrainRequest& request, const JobFlags& flags, const parallel::Place& place) {
  LOG(INFO) << "Process " << place.rank << " of " << place.processes << ", as " << parallel::name_of(place.role) << "; known from " << place.source;
  TrainRequest own = request;
  table::ServiceOptions options = service_options(flags, place);
  options.configuration = configuration_of(own.param, own.name);
  options.scheme = scheme_of(own.param, own.name);
  options.seed = own.param.random_seed() >= 0 ? static_cast<std::uint64_t>(own.param.random_seed()) : random_seed() >> 1;
  const std::unique_ptr<table::Service> service = or_throw(table::Service::create(options));
  watch_signals(request.effects);   // not before: who waits for others has nothing to save, and is ended as any program
  table::Table* table = service->table();
  if (!table) {
    if (Status status = serve(*service); !status.ok()) throw ConfigError(status.error());
    return 0;
  }
  say_only_warnings(table->worker() != 0);
  own.param.set_random_seed(static_cast<std::int64_t>(service->roster().seed));
  try {
    return exit_code(or_throw(JobWorker(own, flags, place, *table).run()));
  } catch (const ConfigError& error) {
    table->abort(error.error());
    throw;
  }
}

}  // namespace shoal
