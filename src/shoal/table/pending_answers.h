// Keeps what a worker has heard from the coordinator and not yet used: answers, outputs and
// agreements. A pure state machine: its driver sends the questions, and looks again when something
// was heard. Every table has one: the service's, a simulation's, a test's.
#pragma once

#include <map>
#include <tuple>

#include "shoal/table/messages.h"

namespace shoal::table {

class PendingAnswers {
 public:
  // ---- the worker's side ----
  // The answer to a question (`part` is part_of()), once. To kBegin: none while a pause is being
  // agreed on, and "" if something was agreed on that comes first.
  std::optional<std::string> take_answer(Topic topic, Clock clock, std::uint32_t part);
  std::vector<Answer> take_outputs();
  // Before iteration `clock` starts: what all do now; none while a pause is being agreed on.
  std::optional<Want> start(Clock clock);
  // A generation begins, in which this worker's first iteration is `first`. `paced`: the worker
  // asks before each task (kBegin), which begins with the answer and not in start(). `bounded`: the
  // scheme keeps workers within a bound.
  void begin(Clock first, bool paced, bool bounded);
  void end(Clock clock) { started_ = clock; }  // no iteration follows `clock` of them

  // ---- the coordinator's side ----
  // Handles an Answer, kPause or kAgreed, and ignores the rest. Returns what the worker says to it
  // at once: to a kPause a kPaused, after which it starts nothing before a kAgreed.
  std::optional<Ask> hear(const Message& message);

 private:
  void answer(const Answer& answer);
  Ask pause();

  std::map<std::tuple<Topic, Clock, std::uint32_t>, std::string> answers_;
  std::vector<Answer> outputs_;
  Clock started_ = 0;  // iterations begun, all of which will be finished
  Clock first_ = 0;    // of this generation
  bool pausing_ = false;
  bool paced_ = false, bounded_ = true;
  std::map<Clock, Want> agreed_;
};

}  // namespace shoal::table
