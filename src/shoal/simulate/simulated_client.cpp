#include "shoal/simulate/simulated_client.h"

namespace shoal::simulate {

using table::Message;
using table::RowId;

void SimulatedClient::open(const table::Plan& plan, const Places& destination) {
  client_ =
      std::make_unique<table::Client>(table::ClientOptions{.worker = worker_}, plan, destination);
  awaited_.assign(plan.rows.size(), false);
  missing_ = 0;
  server_of_.clear();
  for (const table::Row& row : plan.rows) server_of_.push_back(row.server);
}

void SimulatedClient::push_row(const table::Push& push) {
  client_->push(push, now());
  pump(server_of_[push.row]);
}

void SimulatedClient::get_row(RowId row, table::Clock clock, table::Part part) {
  client_->get(row, clock, part, now());
  pump(server_of_[row]);
}

bool SimulatedClient::await(std::span<const RowId> rows) {
  for (const RowId row : rows) {
    if (awaited_[row] || client_->arrived(row)) continue;
    awaited_[row] = true;
    ++missing_;
  }
  return missing_ > 0;
}

void SimulatedClient::received(int server, const Message& message) {
  if (!client_ || std::holds_alternative<table::Ready>(message)) return;
  const auto* row = std::get_if<table::RowMessage>(&message);
  Result<bool> taken = false;
  if (row != nullptr && job_.options().dry) {
    table::RowMessage placed = *row;
    placed.payload.bytes = client_->place(placed, row->payload.bytes.size());
    if (placed.payload.bytes.empty()) return;
    taken = client_->take(server, placed, now());
  } else {
    taken = client_->take(server, message, now());
  }
  if (!taken.ok()) return job_.fail(taken.error());
  pump(server);
  if (row == nullptr || !taken.value() || !awaited_[row->row] || !client_->arrived(row->row))
    return;
  awaited_[row->row] = false;
  if (--missing_ == 0) all_arrived();
}

void SimulatedClient::pump(int server) {
  job_.wake(worker_, server);
  keep_time();
}

void SimulatedClient::keep_time() {
  const Instant due = client_->on_time(now());
  if (due >= alarm_) return;
  alarm_ = due;
  job_.time().at(due, [this, due] {
    if (due != alarm_) return;  // an earlier alarm was set since
    alarm_ = Instant::max();
    if (!client_) return;
    keep_time();
    for (int server = 0; server < job_.servers(); ++server) job_.wake(worker_, server);
  });
}

}  // namespace shoal::simulate
