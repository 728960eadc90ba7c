// What a worker asks of the others and hears of them, between the solver's thread, which waits, and the strands, which never do.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "envoy.h"

namespace shoal::table {

class Talks {
 public:
  Talks(Job& job, Envoy& envoy) : job_(job), envoy_(envoy) {}

  // ---- the solver's side ----
  Result<std::string> ask(Topic topic, Clock clock, std::string body);
  std::vector<Answer> take_outputs();
  Result<Want> start(Clock clock);
  // The scheme lets workers ask before a task (kBegin), which then begins when they are answered, not in start(); an answer is "" where something
  // was agreed on that comes first. It keeps them within a bound, or not.
  void follow(bool paced, bool bounded);
  // No iteration follows `clock` of them.
  void end(Clock clock);

  // ---- the strands' side ----
  void answer(Answer answer);
  // What the worker says to a pause, a kPaused: it starts nothing else until agreed() is called.
  Ask pause();
  void agreed(Clock clock, Want want);

 private:
  Job& job_;
  Envoy& envoy_;
  std::map<std::tuple<Topic, Clock, std::uint32_t>, std::string> answers_ GUARDED_BY(job_.mutex);   // the number is part_of()
  std::vector<Answer> outputs_ GUARDED_BY(job_.mutex);
  Clock started_ GUARDED_BY(job_.mutex) = 0;             // iterations begun, all of which will be finished
  bool pausing_ GUARDED_BY(job_.mutex) = false;
  bool paced_ GUARDED_BY(job_.mutex) = false, bounded_ GUARDED_BY(job_.mutex) = true;
  std::map<Clock, Want> agreed_ GUARDED_BY(job_.mutex);
};

}  // namespace shoal::table
