// The processes of a job as services in one test process, with a worker's training in a thread
// each.
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
  // gradients are whole numbers, times the workers; otherwise drawn
  bool whole = true;
  // Called before each iteration with what start() said.
  std::function<void(table::Table&, table::Clock, table::Want)> at = [](table::Table&, table::Clock,
                                                                        table::Want) {};
};
table::Plan plan_of(const Training& training, const table::RosterBody& roster);
// What a worker adds to an element in an iteration.
float gradient_of(const Training& training, int workers, int worker, table::Clock clock,
                  table::RowId row, std::size_t i);
float first_weight(table::RowId row, std::size_t i);
// The whole life of a worker: create to finish. The weights in the end, when everybody's updates
// are in.
using Weights = std::vector<std::vector<float>>;
Result<Weights> train(table::Table& table, const Training& training);

// One letter a process, by rank: b both, w worker, s server.
class Cluster {
 public:
  // `through_proxies`: what others open to a process passes its FaultyLink.
  explicit Cluster(const std::string& roles, bool through_proxies = false);
  ~Cluster();

  std::size_t size() const { return options.size(); }
  // by rank; may be changed before start()
  std::vector<table::ServiceOptions> options;
  FaultyLink& proxy(std::size_t rank) { return *proxies_[rank]; }

  // Creates all services at once, in a thread each; the results by rank.
  std::vector<Status> start();
  std::vector<std::unique_ptr<table::Service>> services;  // null where creation failed
  // start(), then calls `life` for each service in a thread of its own; how each ended.
  using Life = std::function<Status(std::size_t rank, table::Service& service)>;
  std::vector<Status> run(const Life& life);
  // Workers train, servers serve.
  std::vector<Status> train_all(const Training& training);
  std::vector<Weights> weights;  // of train_all, by rank

 private:
  std::vector<std::unique_ptr<FaultyLink>> proxies_;
};

}  // namespace shoal::test
