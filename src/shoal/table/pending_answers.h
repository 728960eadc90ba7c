// Keeps the coordinator's messages that a worker has not yet used: answers, outputs and agreements.
// A pure state machine: its driver sends the questions, and checks again after each message. Every
// table has one: the service's, a simulation's, a test's.
#pragma once

#include <algorithm>
#include <map>
#include <tuple>

#include "shoal/base/bytes.h"
#include "shoal/table/coordinator/bodies.h"

namespace shoal::table {

// The settings with which a worker begins a generation.
struct GenerationStart {
  Clock first = 0;      // iteration
  bool paced = false;   // it asks before each task (kBegin), which begins with the answer
  bool bounded = true;  // the scheme keeps workers within a bound
};

class PendingAnswers {
 public:
  // ---- the worker's side ----
  // The answer to a question (`part` is part_of()), once. To kBegin: none while a pause is being
  // agreed on, and "" if something was agreed on that comes first.
  std::optional<std::string> take_answer(Topic topic, Clock clock, std::uint32_t part) {
    const bool begins = topic == Topic::kBegin;
    if (begins && pausing_) return std::nullopt;
    if (begins && !agreed_.empty() && agreed_.begin()->first <= clock) return std::string();
    const auto found = answers_.find({topic, clock, part});
    if (found == answers_.end()) return std::nullopt;
    if (begins) started_ = clock + 1;
    return std::move(answers_.extract(found).mapped());
  }
  std::vector<Answer> take_outputs() { return std::exchange(outputs_, {}); }
  // Returns the last account of the job that was told here.
  std::optional<AccountBody> account() const {
    const Result<AccountBody> account = decode<AccountBody>(account_);
    return account.ok() ? std::optional(account.value()) : std::nullopt;
  }
  // Returns what all do now, before iteration `clock` starts; none while a pause is being agreed
  // on.
  std::optional<Want> start(Clock clock) {
    if (pausing_) return std::nullopt;
    started_ = generation_.paced ? std::max(started_, clock) : clock + 1;
    const auto first = agreed_.begin();
    if (first == agreed_.end() || first->first > clock) return Want::kNothing;
    return agreed_.extract(first).mapped();
  }
  // Returns, of what was agreed on, the first that ends this generation, whatever its clock: a loss
  // has interrupted the worker, and more cannot be done. None while a pause is being agreed on, or
  // nothing of that kind was yet.
  std::optional<Want> take_end() {
    const auto end = std::ranges::find_if(
        agreed_, [](const auto& entry) { return entry.second > Want::kSnapshot; });
    if (pausing_ || end == agreed_.end()) return std::nullopt;
    const Want want = end->second;
    agreed_.erase(agreed_.begin(), std::next(end));
    return want;
  }
  void begin(const GenerationStart& generation) {
    generation_ = generation;
    started_ = generation.first;
  }
  void end(Clock clock) { started_ = clock; }  // no iteration follows `clock` of them

  // ---- the coordinator's side ----
  // Handles an Answer, kPause or kAgreed, and ignores the rest. Returns what the worker says to it
  // at once: to a kPause a kPaused, after which it starts nothing before a kAgreed.
  std::optional<Ask> hear(const Message& message) {
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

 private:
  void answer(const Answer& answer) {
    if (answer.topic == Topic::kMeet) agreed_.clear();
    if (answer.topic == Topic::kOutputs)
      outputs_.push_back(answer);
    else if (answer.topic == Topic::kReport)
      account_ = answer.body;
    else
      answers_[{answer.topic, answer.clock, part_of(answer.topic, answer.body)}] = answer.body;
  }
  Ask pause() {
    pausing_ = true;
    Ask ask{.topic = Topic::kPaused, .clock = started_, .body = {}};
    if (!generation_.bounded) put_le(ask.body, started_ - generation_.first);
    return ask;
  }

  std::map<std::tuple<Topic, Clock, std::uint32_t>, std::string> answers_;
  std::vector<Answer> outputs_;
  std::string account_;
  Clock started_ = 0;  // iterations begun, all of which will be finished
  GenerationStart generation_;
  bool pausing_ = false;
  std::map<Clock, Want> agreed_;
};

}  // namespace shoal::table
