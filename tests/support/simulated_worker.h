// A worker of a simulated cluster: a client, gradients that tell whose they are, and random times.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "shoal/base/random.h"
#include "shoal/table/client.h"
#include "support/asks_again.h"
#include "support/history.h"
#include "support/simulated_cluster.h"

namespace shoal::table {

// Returns the numbers of a payload that a client or a test took.
Values numbers_of(const Payload& payload);

// A worker's loop: reads the rows from the front of the net to its back, computes, pushes from the
// back to the front.
class SimulatedWorker {
 public:
  // The job of the cluster, which another may replace, its time and history, the worker's links.
  struct Surroundings {
    const ClusterCase& job;
    VirtualTime& time;
    std::optional<History>& history;
    std::function<UnreliableLink&(int server)> link;
  };
  SimulatedWorker(Surroundings around, int id);
  void read();  // asks for all rows
  void received(int server, const Message& message);
  std::optional<Message> next(int server) { return dead_ ? std::nullopt : client_.next(server); }
  void link_up(int server);
  bool done() const { return done_ || dead_ || is_lost_; }
  // Forgets the worker: another has its place. Its Retire is still repeated.
  void forget() { forgotten_ = true; }
  void die() { dead_ = true; }
  // Is counted as lost, and goes on: nobody waits for it.
  void be_lost() { is_lost_ = true; }
  bool is_lost() const { return dead_ || is_lost_; }
  // Goes on without a server that is lost, as in Client.
  Status fail_over(int server, const std::function<int(int)>& heir_of);

 private:
  const ClusterCase& job() const { return around_.job; }
  Instant now() const { return around_.time.now(); }
  UnreliableLink& link(int server) { return around_.link(server); }
  void forward();
  void backward(RowId behind);
  void push(RowId row);
  void retire();
  void keep_time();
  void on_time();

  const Surroundings around_;
  const int id_;
  const Plan plan_;
  const ContributionKind kind_;
  std::vector<std::vector<float>> weights_, gradients_, histories_;
  Client client_;
  test::AsksAgain asks_again_;
  Random random_;
  Clock clock_;
  RowId reading_ = 0;
  bool computing_ = false, done_ = false, has_read_twice_ = false, forgotten_ = false,
       dead_ = false, is_lost_ = false;
  Instant alarm_ = Instant::max();  // when on_time() is called next
};

}  // namespace shoal::table
