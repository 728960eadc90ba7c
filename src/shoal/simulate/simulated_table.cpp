#include "shoal/simulate/simulated_table.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <variant>

#include "shoal/base/log.h"
#include "shoal/table/coordinator.h"
#include "shoal/table/scheme.h"

namespace shoal::simulate {

using table::Clock;
using table::Message;
using table::RowId;
using table::Topic;
using table::Want;

void SimulatedTable::compute(Instant until) {
  enter();
  if (!status().ok() || until <= now()) return;
  times_.compute += to_seconds(until - now());
  left_at_ = now();
  job_.time().at(until, [this] { thread_.resume(); });
  thread_.leave();
}

void SimulatedTable::wake() {
  if (!suspended_ || waking_) return;
  waking_ = true;
  job_.time().at(SimulatedClient::now(), [this] {
    waking_ = false;
    thread_.resume();
  });
}

template <class Done>
Status SimulatedTable::wait_until(Done done, double& account) {
  const Instant since = now();
  while (status().ok() && !done()) {
    suspended_ = true;
    thread_.suspend();
    suspended_ = false;
  }
  account += to_seconds(now() - since);
  return status();
}

Status SimulatedTable::status() const {
  const MutexLock lock(mutex_);
  return error_ ? Status(*error_) : Status();
}

void SimulatedTable::failed() {
  if (finished_) return;
  {
    const MutexLock lock(mutex_);
    error_ = *job_.error();
  }
  wake();
}

Status SimulatedTable::create(const table::Plan& plan, const Source& initial,
                              const Destination& destination) {
  enter();
  const auto begin = [&] {
    answers_.begin(session_.first(), session_.paced(), session_.bounded());
    open(plan, destination);
  };
  const auto install = [&] {
    job_.install_plan(plan, initial);
    return Status();
  };
  return table::create(session_, plan, false, *this,
                       {.settle = [this] { return settle(); }, .open = begin, .install = install});
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
  if (!is_open()) return status();
  std::vector<RowId> all(job_.shard(0).plan()->rows.size());
  std::iota(all.begin(), all.end(), RowId{0});
  return wait(all);
}

void SimulatedTable::push(std::span<const table::Push> together) {
  enter();
  if (!status().ok()) return;
  for (const table::Push& push : together) {
    session_.pushed(push.clock);
    push_row(push);
  }
}

void SimulatedTable::get(RowId row, Clock clock, table::Part part) {
  enter();
  if (status().ok()) get_row(row, clock, part);
}

Status SimulatedTable::wait(std::span<const RowId> rows) {
  if (rows.empty()) return status();
  enter();
  if (Status status = this->status(); !status.ok() || !await(rows)) return status;
  return wait_until([this] { return !awaits(); }, times_.rows);
}

Result<std::string> SimulatedTable::ask(Topic topic, Clock clock, std::string body) {
  enter();
  if (Status status = this->status(); !status.ok()) return status.error();
  table::Ask question{.topic = topic, .clock = clock, .body = std::move(body)};
  if (const auto retire = session_.retires_before(question); retire && is_open())
    for (int server = 0; server < job_.servers(); ++server) job_.send(worker_, server, *retire);
  const std::uint32_t part = table::part_of(topic, question.body);
  job_.ask(worker_, std::move(question));
  std::optional<std::string> answer;
  const auto answered = [&] {
    return (answer = answers_.take_answer(topic, clock, part)).has_value();
  };
  if (Status status = wait_until(answered, times_.others); !status.ok()) return status.error();
  return *std::move(answer);
}

void SimulatedTable::tell(Topic topic, Clock clock, std::string body) {
  enter();
  if (status().ok())
    job_.ask(worker_, table::Ask{.topic = topic, .clock = clock, .body = std::move(body)});
}

std::vector<table::Answer> SimulatedTable::take_outputs() {
  enter();
  return answers_.take_outputs();
}

Result<Want> SimulatedTable::start(Clock clock) {
  enter();
  std::optional<Want> want;
  const auto may_start = [&] { return (want = answers_.start(clock)).has_value(); };
  if (Status status = wait_until(may_start, times_.others); !status.ok()) return status.error();
  return *want;
}

Status SimulatedTable::finish(Clock clock) {
  enter();
  if (Status status = this->status(); !status.ok()) return status;
  if (Status status = settle(); !status.ok()) return status;
  const Result<std::string> done = ask(Topic::kDone, clock, {});
  finished_ = done.ok();
  return done.ok() ? Status() : Status(done.error());
}

void SimulatedTable::abort(const Error& error) {
  enter();
  job_.fail(error);
}

// From here on nothing writes to the solver's params or reads what it pushed.
void SimulatedTable::release() {
  enter();
  close();
}

table::Traffic SimulatedTable::traffic() const {
  thread_.enter();
  return job_.traffic(worker_);
}

table::StalenessCounts SimulatedTable::staleness() const {
  thread_.enter();
  return job_.staleness(worker_);
}

void SimulatedTable::heard(const Message& message) {
  if (std::optional<table::Ask> reply = answers_.hear(message)) job_.ask(worker_, *reply);
  if (!std::holds_alternative<table::NormTotal>(message)) wake();
}

}  // namespace shoal::simulate
