// Loses processes of a simulated cluster when its job says so, and tells the others, each some time
// later and of all losses in their order.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <vector>

#include "shoal/base/random.h"
#include "shoal/table/client.h"
#include "shoal/table/link/virtual_time.h"
#include "support/simulated_cluster.h"

namespace shoal::table {

class SimulatedLosses {
 public:
  // The cluster's functions: what happens to a process that is lost, to a server that hears of it,
  // and to a worker that hears of a lost server. A server is told of each loss once: what it has
  // heard already is -1.
  struct Owner {
    std::function<void(const Loss&)> lose;
    std::function<void(int server, const Loss& news)> tell_server;
    std::function<void(int worker, int lost)> tell_worker;
  };
  // `job` and `time` outlive this. The job's plan may change, and then has no losses.
  SimulatedLosses(const ClusterCase& job, VirtualTime& time, Owner owner);

  // Waits for the first loss, if it has a time.
  void begin() { expect_next(); }
  // Returns an end of a link like this one, which counts the messages that arrive. A process whose
  // loss is due is lost just before the message is handled, or just after.
  UnreliableEnd counted(UnreliableEnd end);
  // Tells all servers at once of all losses so far. There are no more.
  void end();

  std::uint64_t messages() const { return messages_; }  // delivered
  std::size_t happened() const { return happened_; }    // losses
  bool is_dead(int server) const { return dead_.contains(server); }
  // Returns the lost workers that the server has heard of.
  const std::set<int>& gone(int server) const { return gone_[static_cast<std::size_t>(server)]; }
  // Returns whether the server has heard that another is lost.
  bool has_heard(int server, int lost) const {
    return lost_servers_[static_cast<std::size_t>(server)].contains(lost);
  }
  // Returns the server that has this server's rows once it is lost; kNoServer if there is none.
  int heir_of(int server) const {
    const int copy = job_.plan.copy_of(server);
    return job_.plan.is_copied(server) && !is_dead(copy) ? copy : Client::kNoServer;
  }
  // Returns whether a server answers for this server's rows, or will.
  bool is_served(int server) const {
    return !is_dead(server) || heir_of(server) != Client::kNoServer;
  }
  // Returns the server that has the row now, or kNoServer.
  int owner_of(RowId row) const {
    const int server = job_.plan.rows[row].server;
    return is_dead(server) ? heir_of(server) : server;
  }
  // Returns whether the server answers for the row, as far as it has heard.
  bool leads(int server, RowId row) const {
    const int first = job_.plan.rows[row].server;
    return first == server || (has_heard(server, first) && heir_of(first) == server);
  }

 private:
  void expect_next();
  void lose_if_due(bool before);
  void lose_next();
  void tell_server(int server, const Loss& loss);
  Instant soon(int who);

  const ClusterCase& job_;
  VirtualTime& time_;
  const Owner owner_;
  Random random_;
  std::uint64_t messages_ = 0;
  std::size_t happened_ = 0;
  bool over_ = false;
  std::set<int> dead_;                              // servers
  std::vector<std::set<int>> gone_, lost_servers_;  // by server, as it has heard
  std::map<int, Instant> told_;  // when the last word of a loss comes: by server, or ~worker
};

}  // namespace shoal::table
