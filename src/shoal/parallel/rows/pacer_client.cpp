#include "shoal/parallel/rows/pacer_client.h"

#include <algorithm>

#include "shoal/base/timer.h"
#include "shoal/base/try.h"

namespace shoal::parallel {

using table::Topic;
using table::Verdict;

Result<Begin> PacerClient::begin(table::Clock clock) {
  if (!task_.paced || granted_ == clock) return Begin::kBegin;
  const Result<std::string> answer =
      ask(Topic::kBegin, clock, encode(table::BeginBody{.last = report_, .until = until_}));
  TRY(answer);
  if (answer.value().empty()) return Begin::kAgree;
  Result<table::Start> start = table::decode<table::Start>(answer.value());
  TRY(start);
  start_ = start.value();
  if (start_.over) return Begin::kOver;
  granted_ = clock;
  return Begin::kBegin;
}

// Counts the time until the answer is there as waiting, as for rows.
Result<std::string> PacerClient::ask(Topic topic, table::Clock clock, const std::string& body) {
  const table::Instant start = table_.now();
  Result<std::string> answer = table_.ask(topic, clock, body);
  waits_.add(table_.now() - start);
  return answer;
}

void PacerClient::task_begins() {
  report_ = {.exchange = exchange_};
  told_ = 0;
  since_ = table_.now();
  waited_ = waits_.total();
}

void PacerClient::step_done(double samples) {
  ++report_.steps;
  report_.samples += samples;
  const auto busy = table_.now() - since_ - (waits_.total() - waited_);
  report_.seconds = std::max(0.0, to_seconds(busy) / (report_.steps - told_));
}

Result<Verdict> PacerClient::judge(table::Clock clock) {
  if (!task_.judged) return Verdict::kPush;
  const Result<std::string> answer = ask(Topic::kJudge, clock, encode(report_));
  TRY(answer);
  told_ = report_.steps;
  since_ = table_.now();
  waited_ = waits_.total();
  const auto body = table::decode<table::VerdictBody>(answer.value());
  TRY(body);
  return body.value().verdict;
}

}  // namespace shoal::parallel
