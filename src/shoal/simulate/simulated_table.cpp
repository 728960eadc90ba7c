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
  if (Status status = settle(); !status.ok()) return status;
  if (const std::string wrong = table::validate(plan); !wrong.empty())
    return Error{Code::kConfig, wrong};
  if (const auto drained = ask(Topic::kBarrier, table::all_drained(plan.generation), {});
      !drained.ok())
    return drained.error();
  pushed_ = plan.start_of(worker_);
  talks_.begin(pushed_);
  generation_ = plan.generation;
  if (const auto scheme = job_.options().maker(plan.scheme); scheme.ok()) {
    talks_.follow(scheme.value()->task().paced, scheme.value()->bounded());
    waited_for_ = scheme.value()->waits_for_others();
  }
  if (worker_ == 0) {
    // before the barrier below, so before any worker asks for a task
    tell(Topic::kScheme, plan.generation, plan.scheme);
    job_.install_plan(plan, initial);
  }
  open(plan, destination);
  const Result<std::string> all = ask(Topic::kBarrier, table::rows_exist(plan.generation), {});
  return all.ok() ? Status() : Status(all.error());
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
    pushed_ = push.clock + 1;
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

// Says that no push of this worker follows: other workers do not wait for one.
void SimulatedTable::retire(Clock clock) {
  for (int server = 0; server < job_.servers(); ++server)
    job_.send(worker_, server, table::Retire{.clock = clock, .generation = generation_});
}

Result<std::string> SimulatedTable::ask(Topic topic, Clock clock, std::string body) {
  enter();
  if (Status status = this->status(); !status.ok()) return status.error();
  // as TableOverTcp
  if (topic == Topic::kMeet && (waited_for_ || body == "\1" || body == "\2") && is_open())
    retire(pushed_);
  const std::uint32_t part = table::part_of(topic, body);
  job_.ask(worker_, table::Ask{.topic = topic, .clock = clock, .body = std::move(body)});
  std::optional<std::string> answer;
  const auto answered = [&] {
    return (answer = talks_.take_answer(topic, clock, part)).has_value();
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
  return talks_.take_outputs();
}

Result<Want> SimulatedTable::start(Clock clock) {
  enter();
  std::optional<Want> want;
  const auto may_start = [&] { return (want = talks_.start(clock)).has_value(); };
  if (Status status = wait_until(may_start, times_.others); !status.ok()) return status.error();
  return *want;
}

Status SimulatedTable::finish(Clock clock) {
  enter();
  if (Status status = this->status(); !status.ok()) return status;
  if (is_open()) {
    if (Status status = settle(); !status.ok()) return status;
    retire(pushed_);
  }
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
  if (const auto* directive = std::get_if<table::Directive>(&message)) {
    if (directive->kind == table::DirectiveKind::kPause) job_.ask(worker_, talks_.pause());
    if (directive->kind == table::DirectiveKind::kAgreed)
      talks_.agreed(directive->clock, directive->want);
  } else if (const auto* answer = std::get_if<table::Answer>(&message)) {
    talks_.answer(*answer);
  } else {
    return;
  }
  wake();
}

}  // namespace shoal::simulate
