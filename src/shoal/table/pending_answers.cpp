#include "shoal/table/pending_answers.h"

#include <algorithm>

#include "shoal/base/bytes.h"
#include "shoal/table/coordinator.h"

namespace shoal::table {

std::optional<std::string> PendingAnswers::take_answer(Topic topic, Clock clock,
                                                       std::uint32_t part) {
  const bool begins = topic == Topic::kBegin;
  if (begins && pausing_) return std::nullopt;
  if (begins && !agreed_.empty() && agreed_.begin()->first <= clock) return std::string();
  const auto found = answers_.find({topic, clock, part});
  if (found == answers_.end()) return std::nullopt;
  if (begins) started_ = clock + 1;
  return std::move(answers_.extract(found).mapped());
}

std::vector<Answer> PendingAnswers::take_outputs() { return std::exchange(outputs_, {}); }

std::optional<Want> PendingAnswers::start(Clock clock) {
  if (pausing_) return std::nullopt;
  started_ = paced_ ? std::max(started_, clock) : clock + 1;
  const auto first = agreed_.begin();
  if (first == agreed_.end() || first->first > clock) return Want::kNothing;
  return agreed_.extract(first).mapped();
}

void PendingAnswers::begin(Clock first, bool paced, bool bounded) {
  first_ = started_ = first;
  paced_ = paced;
  bounded_ = bounded;
}

std::optional<Ask> PendingAnswers::hear(const Message& message) {
  if (const auto* heard = std::get_if<Answer>(&message)) answer(*heard);
  const auto* directive = std::get_if<Directive>(&message);
  if (directive && directive->kind == DirectiveKind::kPause) return pause();
  if (directive && directive->kind == DirectiveKind::kAgreed) {
    pausing_ = false;
    Want& agreed = agreed_[directive->clock];
    agreed = more_urgent(agreed, directive->want);
  }
  return std::nullopt;
}

void PendingAnswers::answer(const Answer& answer) {
  if (answer.topic == Topic::kMeet) agreed_.clear();
  if (answer.topic == Topic::kOutputs)
    outputs_.push_back(answer);
  else
    answers_[{answer.topic, answer.clock, part_of(answer.topic, answer.body)}] = answer.body;
}

Ask PendingAnswers::pause() {
  pausing_ = true;
  Ask ask{.topic = Topic::kPaused, .clock = started_, .body = {}};
  if (!bounded_) put_le(ask.body, started_ - first_);
  return ask;
}

}  // namespace shoal::table
