#include "table.h"

#include <numeric>
#include <variant>

#include "shoal/base/log.h"

namespace shoal::simulate {

using table::Clock;
using table::Message;
using table::RowId;
using table::Topic;
using table::Want;

namespace {

constexpr Clock kBeforeAll = -1;

}  // namespace

void SimulatedTable::compute(Instant until) {
  enter();
  if (!status().ok() || until <= now()) return;
  times_.compute += to_seconds(until - now());
  job_.time().at(until, [this] { actor_.turn(); });
  actor_.leave();
}

void SimulatedTable::wake() {
  if (!asleep_ || waking_) return;
  waking_ = true;
  job_.time().at(now(), [this] {
    waking_ = false;
    actor_.turn();
  });
}

template <class Done>
Status SimulatedTable::rest_until(Done done, double& account) {
  const Instant since = now();
  while (status().ok() && !done()) {
    asleep_ = true;
    actor_.rest();
    asleep_ = false;
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

Status SimulatedTable::create(const table::Plan& plan, const Source& initial, const Destination& destination) {
  enter();
  if (Status status = this->status(); !status.ok()) return status;
  if (const std::string wrong = table::validate(plan); !wrong.empty()) return Error{Code::kConfig, wrong};
  if (worker_ == 0) job_.plant(plan, initial);
  open(plan, destination);
  started_ = pushed_ = plan.start;
  const Result<std::string> all = ask(Topic::kBarrier, kBeforeAll, {});
  return all.ok() ? Status() : Status(all.error());
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
  return rest_until([this] { return !awaits(); }, times_.rows);
}

Result<std::string> SimulatedTable::ask(Topic topic, Clock clock, std::string body) {
  enter();
  if (Status status = this->status(); !status.ok()) return status.error();
  if (topic == Topic::kMeet && body == "\1" && is_open())   // it pushes no more: others that go on are not to wait for it
    for (int server = 0; server < job_.servers(); ++server) job_.send(worker_, server, table::Retire{.clock = pushed_});
  asked_ = {topic, clock};
  answer_.reset();
  job_.ask(worker_, table::Ask{.topic = topic, .clock = clock, .body = std::move(body)});
  if (Status status = rest_until([this] { return answer_.has_value(); }, times_.others); !status.ok()) return status.error();
  asked_.reset();
  return *std::exchange(answer_, std::nullopt);
}

void SimulatedTable::tell(Topic topic, Clock clock, std::string body) {
  enter();
  if (status().ok()) job_.ask(worker_, table::Ask{.topic = topic, .clock = clock, .body = std::move(body)});
}

std::vector<table::Answer> SimulatedTable::take_outputs() {
  enter();
  return std::exchange(outputs_, {});
}

Result<Want> SimulatedTable::start(Clock clock) {
  enter();
  if (Status status = rest_until([this] { return !pausing_; }, times_.others); !status.ok()) return status.error();
  started_ = clock + 1;
  const auto first = agreed_.begin();
  if (first == agreed_.end() || first->first > clock) return Want::kNothing;
  return agreed_.extract(first).mapped();
}

Status SimulatedTable::finish(Clock clock) {
  enter();
  if (Status status = this->status(); !status.ok()) return status;
  if (is_open()) {
    std::vector<RowId> all(job_.shard(0).plan()->rows.size());
    std::iota(all.begin(), all.end(), RowId{0});
    if (Status status = wait(all); !status.ok()) return status;
    for (int server = 0; server < job_.servers(); ++server) job_.send(worker_, server, table::Retire{.clock = clock});
  }
  started_ = clock;
  const Result<std::string> done = ask(Topic::kDone, clock, {});
  finished_ = done.ok();
  return done.ok() ? Status() : Status(done.error());
}

void SimulatedTable::abort(const Error& error) {
  enter();
  job_.fail(error);
}

// Nobody writes to the solver's params any more, or reads what it pushed.
void SimulatedTable::release() {
  enter();
  close();
}

void SimulatedTable::heard(const Message& message) {
  if (const auto* directive = std::get_if<table::Directive>(&message)) {
    if (directive->kind == table::DirectiveKind::kPause) {
      pausing_ = true;
      job_.ask(worker_, table::Ask{.topic = Topic::kPaused, .clock = started_, .body = {}});
    } else if (directive->kind == table::DirectiveKind::kAgreed) {
      pausing_ = false;
      agreed_[directive->clock] = directive->want;
    }
    return wake();
  }
  const auto* answer = std::get_if<table::Answer>(&message);
  if (answer == nullptr) return;
  if (answer->topic == Topic::kOutputs) outputs_.push_back(*answer);
  if (!asked_ || *asked_ != std::pair(answer->topic, answer->clock)) return;
  answer_ = answer->body;
  wake();
}

}  // namespace shoal::simulate
