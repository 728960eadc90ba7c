// The shards, the coordinator and the network of a simulated job, in virtual time. Not thread-safe:
// of workers' threads only the one that acts may use it (sim_thread.h).
#pragma once

#include <atomic>

#include "shoal/base/mutex.h"
#include "shoal/report/metrics.h"
#include "shoal/simulate/cluster.h"
#include "shoal/table/coordinator.h"
#include "shoal/table/link/simulated.h"
#include "shoal/table/shard.h"

namespace shoal::simulate {

using table::Clock;
using table::Message;
using table::Plan;
using table::RowId;

class SimulatedTable;

struct JobOptions {
  std::uint64_t seed = 1;
  bool dry = false;                           // rows have sizes and no values
  std::optional<table::SchemeSpec> scheme{};  // of the first phase; none: no pacer
  table::SchemeMaker maker = &table::SchemeSpec::make;
};

class SimulatedJob {
 public:
  SimulatedJob(const Cluster& cluster, const JobOptions& options)
      : cluster_(cluster),
        options_(options),
        coordinator_({.processes = static_cast<std::uint32_t>(cluster.processes.size()),
                      .seed = options.seed,
                      .scheme = options.scheme,
                      .maker = options.maker}) {
    join();
    connect();
  }

  table::VirtualTime& time() { return time_; }
  const table::RosterBody& roster() const { return *coordinator_.roster(); }
  int workers() const { return static_cast<int>(rank_of_worker_.size()); }
  int servers() const { return static_cast<int>(servers_.size()); }
  const JobOptions& options() const { return options_; }
  const Process& process_of(int worker) const {
    return cluster_.processes[rank_of_worker_[worker]];
  }
  const Cluster& cluster() const { return cluster_; }

  void attach(int worker, SimulatedTable& table) { tables_[worker] = &table; }
  // Returns the link between a worker, end 0, and a server. It is made at the first use: most pairs
  // of a tree never need one.
  table::SimulatedLink& link(int worker, int server);
  void ask(int worker, Message message) {
    to_coordinator_[rank_of_worker_[worker]]->send(0, std::move(message));
  }
  // Creates the rows on the servers. This takes no virtual time, which begins with training.
  void install_plan(const Plan& plan, const table::Table::Source& initial);

  // Returns the updates of the first row that learns, in all generations; where each worker updates
  // all params itself, the mean of the updates that they have made.
  std::int64_t updates() const;
  void task_ends() { ++tasks_; }  // a worker's

  int server_of(RowId row) const { return servers_[0].shard->plan()->rows[row].server; }
  table::Shard& shard(int server) { return *servers_[server].shard; }
  // Returns counts of a worker's pushes on all servers, and of the reads that the server in the
  // worker's process has answered.
  table::StalenessCounts staleness(int worker) const;
  table::Staleness version_staleness() const;  // of the pushes of all workers
  // Returns the sums over all shards: merges, contributions, dropped pushes and staleness.
  table::ShardCounters counters() const;
  table::Traffic traffic(int worker) const;  // of its process

  // Ends the job with an error, unless it has one, and wakes all workers.
  void fail(const Error& error);
  // Returns the error that has ended the job, if one has. Any thread.
  Status status() const {
    if (!failed_) return {};
    const MutexLock lock(mutex_);
    return status_;
  }
  std::vector<std::string> take_warnings() { return coordinator_.take_warnings(); }

 private:
  struct Server {
    std::unique_ptr<table::Shard> shard;
    std::uint32_t rank = 0;
    Instant busy{};  // when the server has handled everything that has arrived
  };
  struct Ports {
    table::SimulatedPort out, in;
    table::SimulatedPort local{};  // of both ways within the process, which take no time
  };

  void join();
  void connect();
  table::SimulatedLinkOptions between(std::uint32_t first, std::uint32_t second);
  void arrived(int server, int worker, Message&& message);
  void handle(int server, int worker, const Message& message);
  void coordinate(std::uint32_t rank, const Message& message);
  void hear(std::uint32_t rank, const Message& message);

  const Cluster cluster_;
  const JobOptions options_;
  table::VirtualTime time_;
  table::Coordinator coordinator_;
  std::vector<std::uint32_t> rank_of_worker_;
  std::vector<SimulatedTable*> tables_;  // by worker
  std::int64_t past_updates_ = 0;        // in the generations before
  std::int64_t tasks_ = 0;               // of all workers, in this generation
  std::vector<Server> servers_;
  std::vector<Ports> ports_;  // by rank
  // The links from each worker to each server, worker by worker; null: not used yet.
  std::vector<std::unique_ptr<table::SimulatedLink>> links_;
  std::vector<std::unique_ptr<table::SimulatedLink>> to_coordinator_;  // by rank
  mutable Mutex mutex_;
  Status status_ GUARDED_BY(mutex_);
  std::atomic<bool> failed_ = false;  // status_ is an error
};

}  // namespace shoal::simulate
