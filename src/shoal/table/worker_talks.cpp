#include "shoal/table/worker_talks.h"

#include <algorithm>
#include <utility>

#include "shoal/base/bytes.h"
#include "shoal/table/coordinator.h"

namespace shoal::table {

std::optional<std::string> WorkerTalks::take_answer(Topic topic, Clock clock, std::uint32_t part) {
  const bool begins = topic == Topic::kBegin;
  if (begins && pausing_) return std::nullopt;
  if (begins && !agreed_.empty() && agreed_.begin()->first <= clock) return std::string();
  const auto found = answers_.find({topic, clock, part});
  if (found == answers_.end()) return std::nullopt;
  if (begins) started_ = clock + 1;
  return std::move(answers_.extract(found).mapped());
}

std::vector<Answer> WorkerTalks::take_outputs() { return std::exchange(outputs_, {}); }

std::optional<Want> WorkerTalks::start(Clock clock) {
  if (pausing_) return std::nullopt;
  started_ = paced_ ? std::max(started_, clock) : clock + 1;
  const auto first = agreed_.begin();
  if (first == agreed_.end() || first->first > clock) return Want::kNothing;
  return agreed_.extract(first).mapped();
}

void WorkerTalks::follow(bool paced, bool bounded) { paced_ = paced, bounded_ = bounded; }

void WorkerTalks::answer(Answer answer) {
  if (answer.topic == Topic::kMeet) agreed_.clear();
  if (answer.topic == Topic::kOutputs)
    outputs_.push_back(std::move(answer));
  else
    answers_[{answer.topic, answer.clock, part_of(answer.topic, answer.body)}] =
        std::move(answer.body);
}

Ask WorkerTalks::pause() {
  pausing_ = true;
  Ask ask{.topic = Topic::kPaused, .clock = started_, .body = {}};
  if (!bounded_) put_le(ask.body, started_ - first_);
  return ask;
}

void WorkerTalks::agreed(Clock clock, Want want) {
  pausing_ = false;
  agreed_[clock] = more_urgent(agreed_[clock], want);
}

}  // namespace shoal::table
