// The processes of a job without their threads: shards, the coordinator and all that lies between
// them and the workers, in virtual time. All of it is touched by who has the turn.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shoal/report/metrics.h"
#include "shoal/simulate/cluster.h"
#include "shoal/table/coordinator.h"
#include "shoal/table/link/simulated.h"
#include "shoal/table/shard.h"
#include "shoal/table/table.h"

namespace shoal::simulate {

// A worker as the network sees it.
class WorkerEnd {
 public:
  virtual ~WorkerEnd() = default;
  virtual void received(int server, const table::Message& message) = 0;
  virtual std::optional<table::Message> next(int server) = 0;  // as Client::next
  virtual void heard(const table::Message& message) = 0;       // of the coordinator
  virtual void failed() {}                                     // the job has
};

struct JobOptions {
  std::uint64_t seed = 1;
  // numbers are not computed: only how many there are counts
  bool dry = false;
  std::string scheme;  // as make_scheme reads it
};

class SimulatedJob {
 public:
  SimulatedJob(const Cluster& cluster, const JobOptions& options);
  SimulatedJob(const SimulatedJob&) = delete;

  table::VirtualTime& time() { return time_; }
  const table::RosterBody& roster() const { return *coordinator_.roster(); }
  int workers() const { return static_cast<int>(rank_of_worker_.size()); }
  int servers() const { return static_cast<int>(servers_.size()); }
  bool dry() const { return options_.dry; }
  const Process& process_of(int worker) const {
    return cluster_.processes[rank_of_worker_[static_cast<std::size_t>(worker)]];
  }
  const Cluster& cluster() const { return cluster_; }

  void attach(int worker, WorkerEnd& end) { ends_[static_cast<std::size_t>(worker)] = &end; }
  // A worker has something for the server: what its next() gives, or this.
  void wake(int worker, int server) { link(worker, server).wake(0); }
  void send(int worker, int server, const table::Message& message) {
    link(worker, server).send(0, message);
  }
  void ask(int worker, const table::Message& message);
  // The plan and first numbers, which take no time to come: virtual time begins with training.
  void plant(const table::Plan& plan, const table::Table::Source& initial);

  table::Shard& shard(int server) { return *servers_[static_cast<std::size_t>(server)].shard; }
  // Of one worker's pushes, counted where they were merged or dropped; and of the reads that the
  // server in its process answered.
  table::StalenessCounts staleness(int worker) const;
  Histogram version_staleness() const;       // of all workers' pushes
  table::ShardCounters counters() const;     // of all shards together
  table::Traffic traffic(int worker) const;  // of its process
  // over wires, each byte counted where it was sent and where it came
  table::Traffic all_traffic() const;

  // The job's first error; whoever waits hears of it.
  void fail(const Error& error);
  const std::optional<Error>& error() const { return error_; }
  std::vector<std::string> take_warnings() { return coordinator_.take_warnings(); }

 private:
  struct Server {
    std::unique_ptr<table::Shard> shard;
    std::uint32_t rank = 0;
    Instant busy{};  // until then
    // by worker, by priority
    std::vector<std::map<std::uint32_t, std::deque<table::Message>>> out;
  };
  struct Ports {
    table::SimulatedPort out, in;
  };

  void join();
  void connect();
  table::SimulatedLinkOptions between(std::uint32_t first, std::uint32_t second);
  table::SimulatedLink& link(int worker, int server) {
    return *links_[static_cast<std::size_t>(worker) * servers_.size() +
                   static_cast<std::size_t>(server)];
  }
  const table::SimulatedLink& link(int worker, int server) const {
    return const_cast<SimulatedJob*>(this)->link(worker, server);
  }
  void arrived(int server, int worker, const table::Message& message);
  void handle(int server, int worker, const table::Message& message);
  void dispatch(int server, table::Outbox& out);
  void coordinate(std::uint32_t rank, const table::Message& message);
  void hear(std::uint32_t rank, const table::Message& message);

  const Cluster cluster_;
  const JobOptions options_;
  table::VirtualTime time_;
  table::Coordinator coordinator_;
  std::vector<std::uint32_t> rank_of_worker_;
  std::vector<WorkerEnd*> ends_;  // by worker
  std::vector<Server> servers_;
  std::vector<Ports> ports_;  // by rank
  // a worker's to each server, one worker after the other
  std::vector<std::unique_ptr<table::SimulatedLink>> links_;
  std::vector<std::unique_ptr<table::SimulatedLink>> to_coordinator_;  // by rank
  std::optional<Error> error_;
};

}  // namespace shoal::simulate
