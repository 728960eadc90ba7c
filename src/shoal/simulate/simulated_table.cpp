#include "shoal/simulate/simulated_table.h"

#include <numeric>

namespace shoal::simulate {

using table::Clock;
using table::Message;
using table::RowId;
using table::Topic;

void SimulatedTable::compute(Instant until) {
  enter();
  if (!status().ok() || until <= now()) return;
  figures.compute += to_seconds(until - now());
  left_at_ = now();
  job_.time().at(until, [this] { thread_.resume(); });
  thread_.leave();
}

Status SimulatedTable::wait_until(const std::function<bool()>& done, double& account) {
  const Instant since = now();
  while (status().ok() && !done()) {
    suspended_ = true;
    thread_.suspend();
    suspended_ = false;
  }
  account += to_seconds(now() - since);
  return status();
}

Status SimulatedTable::create(const table::Plan& plan, const Source& initial,
                              const Destination& destination) {
  enter();
  const auto open = [&] {
    answers_.begin(session_.first(), session_.paced(), session_.bounded());
    client_ =
        std::make_unique<table::Client>(table::ClientOptions{.worker = worker_}, plan, destination);
    awaited_.clear();
  };
  const auto install = [&] {
    job_.install_plan(plan, initial);
    return Status();
  };
  // without numbers the first rows exist before there are workers
  if (job_.options().dry && plan.generation == 0) {
    if (worker_ == 0) job_.install_plan(plan, initial);
    if (Status status = this->status(); !status.ok()) return status;
    if (Status status = session_.begin(plan, worker_); !status.ok()) return status;
    open();
    return {};
  }
  return session_.create(plan, false, *this,
                         {.settle = [this] { return settle(); }, .open = open, .install = install});
}

Result<bool> SimulatedTable::regroup(const table::SegmentBody& end) {
  enter();
  if (Status status = settle(); !status.ok()) return status.error();
  const Result<std::string> answer = ask(Topic::kRegroup, roster().generation + 1, encode(end));
  if (!answer.ok()) return answer.error();
  Result<table::RosterBody> next = table::decode_roster(answer.value());
  if (!next.ok()) return next.error();
  rosters_.push_back(std::move(next).value());
  return true;
}

// Waits until everything that was asked for has arrived.
Status SimulatedTable::settle() {
  std::vector<RowId> all(client_ ? job_.shard(0).plan()->rows.size() : 0);
  std::iota(all.begin(), all.end(), RowId{0});
  return wait(all);
}

void SimulatedTable::push(std::span<const table::Push> together) {
  enter();
  if (!status().ok()) return;
  for (const table::Push& push : together) {
    session_.pushed(push.clock);
    client_->push(push, now());
    pump(job_.server_of(push.row));
  }
}

void SimulatedTable::get(RowId row, Clock clock, table::Part part) {
  enter();
  if (!status().ok()) return;
  client_->get(row, clock, part, now());
  pump(job_.server_of(row));
}

void SimulatedTable::when_arrived(std::span<const RowId> rows, std::function<void()> then) {
  for (const RowId row : rows)
    if (!client_->arrived(row)) awaited_.insert(row);
  if (awaited_.empty()) return then();
  then_ = std::move(then);
}

Status SimulatedTable::wait(std::span<const RowId> rows) {
  if (rows.empty()) return status();
  enter();
  if (Status status = this->status(); !status.ok()) return status;
  when_arrived(rows, [this] { wake(); });
  return wait_until([this] { return awaited_.empty(); }, figures.rows);
}

Result<std::string> SimulatedTable::ask(Topic topic, Clock clock, std::string body) {
  enter();
  if (Status status = this->status(); !status.ok()) return status.error();
  table::Ask question{.topic = topic, .clock = clock, .body = std::move(body)};
  if (const auto retires = session_.retires_before(question); retires && client_) retire(*retires);
  const std::uint32_t part = table::part_of(topic, question.body);
  job_.ask(worker_, std::move(question));
  std::optional<std::string> answer;
  const auto answered = [&] {
    return (answer = answers_.take_answer(topic, clock, part)).has_value();
  };
  if (Status status = wait_until(answered, figures.others); !status.ok()) return status.error();
  return *std::move(answer);
}

Result<table::Want> SimulatedTable::start(Clock clock) {
  enter();
  std::optional<table::Want> want;
  const auto may_start = [&] { return (want = answers_.start(clock)).has_value(); };
  if (Status status = wait_until(may_start, figures.others); !status.ok()) return status.error();
  return *want;
}

Status SimulatedTable::finish(Clock clock) {
  enter();
  if (Status status = settle(); !status.ok()) return status;
  const Result<std::string> done = ask(Topic::kDone, clock, {});
  return done.ok() ? Status() : Status(done.error());
}

void SimulatedTable::received(int server, const Message& message) {
  if (!client_ || std::holds_alternative<table::Ready>(message)) return;
  const Instant now = job_.time().now();
  const auto* row = std::get_if<table::RowMessage>(&message);
  Result<bool> taken = false;
  if (row != nullptr && job_.options().dry) {
    table::RowMessage placed = *row;
    placed.payload.bytes = client_->place(placed, row->payload.bytes.size());
    if (placed.payload.bytes.empty()) return;
    taken = client_->take(server, placed, now);
  } else {
    taken = client_->take(server, message, now);
  }
  if (!taken.ok()) return job_.fail(taken.error());
  pump(server);
  if (row == nullptr || !taken.value() || !client_->arrived(row->row)) return;
  if (awaited_.erase(row->row) > 0 && awaited_.empty()) std::exchange(then_, nullptr)();
}

void SimulatedTable::keep_time() {
  const Instant due = client_->on_time(job_.time().now());
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
