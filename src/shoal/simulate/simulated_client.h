// Drives a worker's table client in virtual time: passes messages, tells when awaited rows have
// arrived, and lets the client repeat what was lost.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "shoal/simulate/simulated_job.h"
#include "shoal/table/client.h"

namespace shoal::simulate {

class SimulatedClient : public WorkerEndpoint {
 public:
  SimulatedClient(SimulatedJob& job, int worker) : job_(job), worker_(worker) {
    job.attach(worker, *this);
  }
  ~SimulatedClient() override = default;

  void received(int server, const table::Message& message) override;
  std::optional<table::Message> next(int server) override {
    return client_ ? client_->next(server) : std::nullopt;
  }

 protected:
  using Places = table::Table::Destination;
  void open(const table::Plan& plan, const Places& destination);
  void push_row(const table::Push& push);
  void get_row(table::RowId row, table::Clock clock, table::Part part);
  // Returns whether any of these rows is still to arrive. If so, all_arrived() is called once when
  // the last one has.
  bool await(std::span<const table::RowId> rows);
  bool awaits() const { return missing_ > 0; }
  virtual void all_arrived() = 0;
  void close() { client_.reset(); }
  bool is_open() const { return client_ != nullptr; }
  Instant now() const { return job_.time().now(); }

  SimulatedJob& job_;
  const int worker_;

 private:
  void pump(int server);
  void keep_time();

  std::unique_ptr<table::Client> client_;
  std::vector<std::uint16_t> server_of_;  // by row
  std::vector<bool> awaited_;             // by row
  std::size_t missing_ = 0;
  Instant alarm_ = Instant::max();  // when the client is called next
};

}  // namespace shoal::simulate
