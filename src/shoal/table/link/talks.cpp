#include "shoal/table/link/talks.h"

#include <optional>
#include <utility>

#include "shoal/base/log.h"
#include "shoal/table/coordinator.h"

namespace shoal::table {

Result<std::string> Talks::ask(Topic topic, Clock clock, std::string body) {
  if (Status status = job_.status(); !status.ok()) return status.error();
  const std::uint32_t part = part_of(topic, body);
  envoy_.send(Ask{.topic = topic, .clock = clock, .body = std::move(body)});
  std::optional<std::string> answer;
  const auto answered = [&]() REQUIRES(job_.mutex) {
    return (answer = heard_.take_answer(topic, clock, part)).has_value();
  };
  const auto late = [&](double seconds) {
    LOG(WARNING) << "has waited for the other workers for " << seconds << " s, at clock "
                 << job_.clock;
  };
  if (Status status = job_.wait(kForever, job_.options.stall_warn, answered, late); !status.ok())
    return status.error();
  return *std::move(answer);
}

std::vector<Answer> Talks::take_outputs() {
  MutexLock lock(job_.mutex);
  return heard_.take_outputs();
}

Result<Want> Talks::start(Clock clock) {
  job_.clock = clock;
  std::optional<Want> want;
  const auto may_start = [&]() REQUIRES(job_.mutex) {
    return (want = heard_.start(clock)).has_value();
  };
  const auto late = [&](double seconds) {
    LOG(WARNING) << "has waited for " << seconds << " s, at clock " << clock
                 << ", for all workers to agree on a pause";
  };
  if (Status status = job_.wait(kForever, job_.options.stall_warn, may_start, late); !status.ok())
    return status.error();
  return *want;
}

void Talks::follow(bool paced, bool bounded) {
  MutexLock lock(job_.mutex);
  heard_.follow(paced, bounded);
}

void Talks::begin(Clock clock) {
  job_.clock = clock;
  MutexLock lock(job_.mutex);
  heard_.begin(clock);
}

void Talks::end(Clock clock) {
  job_.clock = clock;
  MutexLock lock(job_.mutex);
  heard_.end(clock);
}

void Talks::answer(Answer answer) {
  MutexLock lock(job_.mutex);
  heard_.answer(std::move(answer));
  job_.changed.notify_all();
}

Ask Talks::pause() {
  MutexLock lock(job_.mutex);
  return heard_.pause();
}

void Talks::agreed(Clock clock, Want want) {
  MutexLock lock(job_.mutex);
  heard_.agreed(clock, want);
  job_.changed.notify_all();
}

}  // namespace shoal::table
