// What a worker asks of the others and hears of them, between the solver's thread, which waits, and
// the strands, which never do.
#pragma once

#include <string>
#include <vector>

#include "shoal/table/link/envoy.h"
#include "shoal/table/worker_talks.h"

namespace shoal::table {

// Each as in WorkerTalks; who asks or starts waits.
class Talks {
 public:
  Talks(Job& job, Envoy& envoy) : job_(job), envoy_(envoy) {}

  // ---- the solver's side ----
  Result<std::string> ask(Topic topic, Clock clock, std::string body);
  std::vector<Answer> take_outputs();
  Result<Want> start(Clock clock);
  void follow(bool paced, bool bounded);
  void begin(Clock clock);
  void end(Clock clock);

  // ---- the strands' side ----
  void answer(Answer answer);
  Ask pause();
  void agreed(Clock clock, Want want);

 private:
  Job& job_;
  Envoy& envoy_;
  WorkerTalks heard_ GUARDED_BY(job_.mutex);
};

}  // namespace shoal::table
