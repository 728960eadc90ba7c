// Runs the processes of a job as table services over TCP, on threads of one test process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shoal/table/table.h"
#include "support/faulty_link.h"

namespace shoal::test {

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

// `roles` has one letter for each process, by rank: b both, w worker, s server.
class Cluster {
 public:
  // With `through_proxies`, connections to a process pass its FaultyLink.
  explicit Cluster(const std::string& roles, bool through_proxies = false);
  ~Cluster();

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
  // Workers train, servers serve.
  std::vector<Status> train_all(const Training& training);
  std::vector<RowValues> weights;  // of train_all, by rank

 private:
  std::vector<std::unique_ptr<FaultyLink>> proxies_;
};

// Runs `life` as each worker of a Cluster in which process r is worker r and server r, as far as
// there are so many. Returns what each worker's life returned.
std::vector<Status> run_workers(int workers, int servers,
                                const std::function<Status(int worker, table::Table& table)>& life);

void expect_all_ok(const std::vector<Status>& results);

}  // namespace shoal::test
