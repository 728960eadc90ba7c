// Runs a job in this process: functions of a test, or solvers, as its workers, each with its table,
// on a simulated network or over TCP.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/table/shard.h"
#include "shoal/table/table.h"
#include "support/faulty_link.h"
#include "support/ports.h"
#include "support/schemes.h"

namespace shoal {
class Solver;
class SolverParameter;
class Team;
namespace ops {
class ConvTuning;
}
}  // namespace shoal

namespace shoal::test {

// ---- on a simulated network ----

// Functions of a test as the workers of a job on a simulated network without delays. One worker
// acts at a time, so a test sees the same order every time.
class Job {
 public:
  // Process r is worker r and server r, as far as there are so many.
  explicit Job(int workers, int servers = 1, table::SchemeMaker maker = &table::SchemeSpec::make);
  ~Job();
  Job(const Job&) = delete;

  // Calls body(worker, its table) for each worker, on a thread of its own. An error that one
  // returns ends the job. Returns what each body returned. May be called once.
  std::vector<Status> run(const std::function<Status(int worker, table::Table& table)>& body);
  // Returns the number of updates that were applied to rows, on all servers.
  std::uint64_t merges() const;
  // Returns the number of pushes in them.
  std::uint64_t contributions() const;
  std::size_t learning_rows() const;
  // Returns the values of the learning rows, as they are on the servers.
  std::vector<std::vector<float>> rows() const;
  // Returns the coordinator's lines for the log since the last call.
  std::vector<std::string> warnings();
  // Called by a worker: lets virtual time pass, in which the others act.
  static void pass(table::Instant time);

 private:
  struct State;
  struct Worker;
  std::unique_ptr<State> state_;
};

// Runs body(team) for each of `size` workers of a job. One that throws ends the job. Returns the
// text that each threw, or "".
std::vector<std::string> run_team(int size, const std::function<void(Team&)>& body);

// A number that rises, for which workers of a Job can wait.
class Gate {
 public:
  void reach(int at);
  // Returns whether the number is `at` or more: false if it was not for a virtual second.
  bool wait(int at);

 private:
  int at_ = 0;
};

// ---- over TCP ----

// The work of a worker of JobOverTcp, with gradients that are made and not computed.
struct Training {
  std::string scheme = "ssp 0";
  int iterations = 12;
  std::vector<std::uint32_t> lengths{1, 700, 4096, 33, 20'000};
  optim::RuleOptions rule{};
  float clip = -1;
  float rate = 1;
  // Gradients are whole numbers times the number of workers, and not drawn.
  bool whole = true;
  // Called before each iteration with the answer of start().
  std::function<void(table::Table&, table::Clock, table::Want)> at = [](table::Table&, table::Clock,
                                                                        table::Want) {};
};
table::Plan plan_of(const Training& training, const table::RosterBody& roster);
// Returns the gradient of an element in a worker's iteration.
float gradient_of(const Training& training, int workers, int worker, table::Clock clock,
                  table::RowId row, std::size_t i);
float first_weight(table::RowId row, std::size_t i);
// Runs a worker from create() to finish(). Returns the weights at the end, with the updates of all
// workers.
using RowValues = std::vector<std::vector<float>>;
Result<RowValues> train(table::Table& table, const Training& training);

// The processes of a job as table services over TCP, each on a thread. `roles` has one letter for
// each process, by rank: b both, w worker, s server.
class JobOverTcp {
 public:
  // With `through_proxies`, connections to a process pass its FaultyLink.
  explicit JobOverTcp(const std::string& roles, bool through_proxies = false);
  ~JobOverTcp();

  std::size_t size() const { return options.size(); }
  // By rank. A test may change them before start().
  std::vector<table::ServiceOptions> options;
  FaultyLink& proxy(std::size_t rank) { return *proxies_[rank]; }

  // Creates all services at once, each on a thread. Returns the results by rank.
  std::vector<Status> start();
  std::vector<std::unique_ptr<table::Service>> services;  // null where creation failed
  // Calls start(), then `life` for each service on a thread of its own. Returns how each ended.
  using Life = std::function<Status(std::size_t rank, table::Service& service)>;
  std::vector<Status> run(const Life& life);
  // Trains with the workers, and serves with the servers.
  std::vector<Status> train_all(const Training& training);
  std::vector<RowValues> weights;  // of train_all, by rank

 private:
  const ReservedPorts ports_;
  std::vector<std::unique_ptr<FaultyLink>> proxies_;
};

// Runs `life` as each worker of a JobOverTcp in which process r is worker r and server r, as far as
// there are so many. Returns what each worker's life returned.
std::vector<Status> run_workers(int workers, int servers,
                                const std::function<Status(int worker, table::Table& table)>& life);

void expect_all_ok(const std::vector<Status>& results);

// ---- training ----

struct JobShape {
  int workers = 0;  // 0: no table
  int servers = 1;
  int replicas = 1;
  bool over_tcp = false;  // services on threads, and not a simulated job
  std::string scheme = "bsp";
  table::SchemeMaker maker = &table::SchemeSpec::make;
  std::vector<int> stops = {50};  // iterations after which the params are kept
  // Called on every worker's thread (alone: on this one) before the first iteration and after the
  // last.
  std::function<void(int worker, Solver&solver)> before{}, after{};
  // Changes the parameters that differ from worker to worker.
  std::function<void(int worker, SolverParameter& param)> change{};
  std::vector<std::shared_ptr<ops::ConvTuning>> tuning{};  // by worker; empty: kernels by rule
};

using Weights = std::vector<float>;

struct JobResult {
  std::vector<std::vector<Weights>> weights;  // of worker w at stop i
  std::vector<std::vector<float>> losses;     // of worker w's iterations
  std::vector<Status> outcomes;
  bool ok() const;
  std::string why() const;  // the first error
  const Weights& at(std::size_t stop) const { return weights[0].at(stop); }
};
// Trains one solver alone, or as the workers and replicas of a job.
JobResult train(const SolverParameter& param, const JobShape& shape);

// Returns |a - b| / |b|, in double.
double distance(const Weights& a, const Weights& b);

}  // namespace shoal::test
