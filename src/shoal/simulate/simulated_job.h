// The shards, the coordinator and the network of a simulated job, in virtual time. Not thread-safe:
// of workers' threads only the one that acts may use it (sim_thread.h).
#pragma once

#include <atomic>
#include <deque>

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
using table::Rank;
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
                      .maker = options.maker,
                      .losses = {.goes_on = true}}) {
    join();
  }

  table::VirtualTime& time() { return time_; }
  const table::RosterBody& roster() const { return *coordinator_.roster(); }
  int workers() const { return static_cast<int>(rank_of_worker_.size()); }
  int servers() const { return static_cast<int>(serving_.size()); }
  const JobOptions& options() const { return options_; }
  const Process& process_of(Rank rank) const { return *members_[rank].process; }
  const Cluster& cluster() const { return cluster_; }

  // Returns the number of the worker in its generation; -1: it is none, or not yet.
  int number_of(Rank rank) const {
    return rank < roster().processes.size() ? roster().processes[rank].worker : -1;
  }
  Rank rank_of(int worker) const { return rank_of_worker_[worker]; }
  void attach(Rank rank, SimulatedTable& table) { members_[rank].table = &table; }
  // Returns the link between a worker's process, end 0, and a server. It is made at the first use:
  // most pairs of a tree never need one.
  table::SimulatedLink& link(Rank rank, int server);
  void ask(Rank rank, Message message) {
    members_[rank].to_coordinator->send(0, std::move(message));
  }
  // Returns how long a message to the coordinator takes, which is where process 0 is.
  Instant latency(Rank rank) const;
  // Creates the rows on the servers. This takes no virtual time, which begins with training.
  void install_plan(const Plan& plan, const table::Table::Source& initial);

  // Returns the updates of the first row that learns, in all generations; where each worker updates
  // all params itself, the mean of the updates that they have made.
  std::int64_t updates() const;
  void task_ends(Rank rank) { ++tasks_, ++members_[rank].tasks; }

  table::Shard& shard(int server) { return *serving_[server]->shard; }
  // Returns counts of a worker's pushes on all servers, and of the reads that the server in the
  // worker's process has answered.
  table::StalenessCounts staleness(Rank rank) const;
  // Returns how many tasks of the worker are in the params or were dropped: of its pushes, a row
  // that learns counting as its part of 1; where no server has such a row, all that it has ended.
  struct Pushed {
    double merged = 0, dropped = 0;
  };
  Pushed pushed(Rank rank) const;
  table::Staleness version_staleness() const;  // of the pushes of all workers
  // Returns the sums over all shards: merges, contributions, dropped pushes and staleness.
  table::ShardCounters counters() const;
  table::Traffic traffic(Rank rank) const;  // of the process

  // Loses a process: it does nothing more. The coordinator notes it after `delay`, and the others
  // hear of it from there. The coordinator itself is lost with no process.
  void lose(Rank rank, Instant delay);
  // Adds a worker's process, like the one of this rank. Returns its rank, with which its table asks
  // to join.
  Rank admit(Rank like);

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
    Rank rank = 0;
    std::size_t place = 0;  // in servers_
    Instant busy{};         // when the server has handled everything that has arrived
    // The pushes of each worker, by number, when the generation began.
    std::vector<table::PushCounts> before{};
    table::PushCounts since(int worker) const;  // since then
  };
  struct Ports {
    table::SimulatedPort out, in;
    table::SimulatedPort local{};  // of both ways within the process, which take no time
  };
  // A process that has joined the job, or asks to.
  struct Member {
    const Process* process = nullptr;
    Ports ports{};
    SimulatedTable* table = nullptr;  // of a worker
    bool is_lost = false;
    std::set<Rank> gone{};          // the processes that it knows to be lost
    table::StalenessCounts past{};  // of its pushes in the generations before
    Pushed pushed{};                // likewise
    std::int64_t tasks = 0;         // that it has ended in this generation
    // The links to each server, by its place; null: not used yet.
    std::vector<std::unique_ptr<table::SimulatedLink>> links{};
    std::unique_ptr<table::SimulatedLink> to_coordinator{};
  };

  void join();
  void open(const Process& process);
  Server& add_server(Rank rank);
  int number_of(const Server& server) const {
    const auto found = std::ranges::find(serving_, &server);
    return found == serving_.end() ? -1 : static_cast<int>(found - serving_.begin());
  }
  void connect(Rank rank);
  table::SimulatedLinkOptions between(Rank first, Rank second);
  std::uint64_t stream(Rank rank, std::optional<std::size_t> server) const;
  void arrived(Server& here, Rank rank, Message&& message);
  void handle(Server& here, Rank rank, const Message& message);
  void pass(Server& server, int worker, const Message& message);
  void dispatch(const Server& server, table::Outbox& out);
  void count_out(const Server& server, Rank lost);
  void coordinate(Rank rank, const Message& message);
  void hear(Rank rank, const Message& message);
  void end_generation();
  void begin_generation(const Plan& plan);
  const Plan* plan() const { return serving_[0]->shard->plan(); }
  double learning_rows() const;

  const Cluster cluster_;
  const JobOptions options_;
  table::VirtualTime time_;
  table::Coordinator coordinator_;
  std::vector<Rank> rank_of_worker_;  // by number, in this generation
  std::vector<int> worker_of_rank_;   // -1: the process is no worker in it
  std::int64_t past_updates_ = 0;     // in the generations before
  std::int64_t tasks_ = 0;            // of all workers, in this generation
  // All that there have been; those of this generation, by number.
  std::deque<Server> servers_;
  std::vector<Server*> serving_;
  std::deque<Member> members_;  // by rank; links and events hold places in it
  mutable Mutex mutex_;
  Status status_ GUARDED_BY(mutex_);
  std::atomic<bool> failed_ = false;  // status_ is an error
};

}  // namespace shoal::simulate
