#include "talks.h"

#include <algorithm>
#include <utility>

#include "shoal/base/log.h"
#include "shoal/table/coordinator.h"

namespace shoal::table {

Result<std::string> Talks::ask(Topic topic, Clock clock, std::string body) {
  if (Status status = job_.status(); !status.ok()) return status.error();
  const std::tuple question(topic, clock, part_of(topic, body));
  envoy_.send(Ask{.topic = topic, .clock = clock, .body = std::move(body)});
  std::string answer;
  const auto answered = [&]() REQUIRES(job_.mutex) {
    if (topic == Topic::kBegin && pausing_) return false;
    if (topic == Topic::kBegin && !agreed_.empty() && agreed_.begin()->first <= clock) return true;
    const auto found = answers_.find(question);
    if (found == answers_.end()) return false;
    answer = std::move(found->second);
    answers_.erase(found);
    if (topic == Topic::kBegin) started_ = clock + 1;
    return true;
  };
  const auto late = [&](double seconds) { LOG(WARNING) << "has waited for the other workers for " << seconds << " s, at clock " << job_.clock; };
  if (Status status = job_.wait(kForever, job_.options.stall_warn, answered, late); !status.ok()) return status.error();
  return answer;
}

std::vector<Answer> Talks::take_outputs() {
  MutexLock lock(job_.mutex);
  return std::exchange(outputs_, {});
}

Result<Want> Talks::start(Clock clock) {
  job_.clock = clock;
  Want want = Want::kNothing;
  const auto may_start = [&]() REQUIRES(job_.mutex) {
    if (pausing_) return false;
    const auto first = agreed_.begin();
    if (first != agreed_.end() && first->first <= clock) {
      want = first->second;
      agreed_.erase(first);
    }
    started_ = paced_ ? std::max(started_, clock) : clock + 1;
    return true;
  };
  const auto late = [&](double seconds) {
    LOG(WARNING) << "has waited for " << seconds << " s, at clock " << clock << ", for all workers to agree on a pause";
  };
  if (Status status = job_.wait(kForever, job_.options.stall_warn, may_start, late); !status.ok()) return status.error();
  return want;
}

void Talks::follow(bool paced, bool bounded) {
  MutexLock lock(job_.mutex);
  paced_ = paced, bounded_ = bounded;
}

void Talks::end(Clock clock) {
  job_.clock = clock;
  MutexLock lock(job_.mutex);
  started_ = clock;
}

void Talks::answer(Answer answer) {
  MutexLock lock(job_.mutex);
  if (answer.topic == Topic::kMeet) agreed_.clear();
  if (answer.topic == Topic::kOutputs) outputs_.push_back(std::move(answer));
  else answers_[{answer.topic, answer.clock, part_of(answer.topic, answer.body)}] = std::move(answer.body);
  job_.changed.notify_all();
}

Ask Talks::pause() {
  MutexLock lock(job_.mutex);
  pausing_ = true;
  return {.topic = Topic::kPaused, .clock = started_, .body = bounded_ ? "" : "\1"};
}

void Talks::agreed(Clock clock, Want want) {
  MutexLock lock(job_.mutex);
  pausing_ = false;
  agreed_[clock] = more_urgent(agreed_[clock], want);
  job_.changed.notify_all();
}

}  // namespace shoal::table
