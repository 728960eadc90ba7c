// A whole job in one process: k workers, each on a thread of its own, over real clients, shards and
// a coordinator, with calls where the service has sockets. For tests of what is above the table.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/table/shard.h"
#include "shoal/table/table.h"

namespace shoal::test {

class LocalCluster {
 public:
  // Process r is worker r and server r, as far as there are so many.
  explicit LocalCluster(int workers, int servers = 1,
                        table::SchemeMaker maker = table::make_scheme);
  ~LocalCluster();
  LocalCluster(const LocalCluster&) = delete;

  table::Table& table(int worker);
  // Calls body(worker, its table) on k threads. Who returns an error ends the job. Returns worker
  // by worker what the body did.
  std::vector<Status> run(const std::function<Status(int worker, table::Table& table)>& body);
  // Updates applied to rows, on all servers.
  std::uint64_t merges() const;
  // Pushes in them.
  std::uint64_t contributions() const;
  std::size_t learning_rows() const;
  // The numbers of those, as they are on the servers, when nobody has a push on its way.
  std::vector<std::vector<float>> rows() const;
  // As Coordinator::regroup.
  void regroup(const std::string& why, const std::string& scheme, table::Clock from);
  // What the coordinator would have logged since the last call.
  std::vector<std::string> warnings();

 private:
  class Hub;
  class Seat;
  std::unique_ptr<Hub> hub_;
  std::vector<std::unique_ptr<Seat>> seats_;
};

}  // namespace shoal::test
