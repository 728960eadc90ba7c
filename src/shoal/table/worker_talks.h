// What a worker has heard of the coordinator and not looked at yet: answers, outputs, and what all
// agreed on. A pure state machine: whoever drives it sends the questions, and looks again when
// something was heard. Every table has one: the service's, a simulation's, a test's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "shoal/table/messages.h"

namespace shoal::table {

class WorkerTalks {
 public:
  // ---- the worker's side ----
  // The answer to a question (`part` is part_of()), once. To kBegin: nothing while a pause is being
  // agreed on, and "" where something was agreed on that comes first.
  std::optional<std::string> take_answer(Topic topic, Clock clock, std::uint32_t part);
  std::vector<Answer> take_outputs();
  // Before iteration `clock` starts: what all do now; nothing while a pause is being agreed on.
  std::optional<Want> start(Clock clock);
  // The scheme lets workers ask before a task (kBegin), which then begins when they are answered,
  // not in start(). It keeps them within a bound, or not.
  void follow(bool paced, bool bounded);
  // A generation begins, in which this worker's first iteration is `clock`.
  void begin(Clock clock) { first_ = started_ = clock; }
  // No iteration follows `clock` of them.
  void end(Clock clock) { started_ = clock; }

  // ---- the coordinator's side ----
  void answer(Answer answer);
  // What the worker says to a pause, a kPaused: it starts nothing else until agreed() is called.
  Ask pause();
  void agreed(Clock clock, Want want);

 private:
  std::map<std::tuple<Topic, Clock, std::uint32_t>, std::string> answers_;
  std::vector<Answer> outputs_;
  Clock started_ = 0;  // iterations begun, all of which will be finished
  Clock first_ = 0;    // of this generation
  bool pausing_ = false;
  bool paced_ = false, bounded_ = true;
  std::map<Clock, Want> agreed_;
};

}  // namespace shoal::table
