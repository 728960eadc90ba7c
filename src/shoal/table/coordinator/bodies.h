// Bodies of questions to the coordinator and of their answers, beside those of messages.h;
// docs/reference/protocol.md has their bytes.
#pragma once

#include "shoal/base/try.h"
#include "shoal/table/account.h"
#include "shoal/table/messages.h"
#include "shoal/table/pacer.h"

namespace shoal::table {

// The body of kReport: a worker's work since its last one. Times are seconds.
struct ReportBody {
  double iterations = 0;
  // rows: the wait for them, which is not the fault of the worker that waits.
  double compute = 0, data = 0, rows = 0, other = 0;
  bool operator==(const ReportBody&) const = default;
};

// The body of kBegin; no bytes at all are one with nothing in it.
struct BeginBody {
  // The report of the worker's last task; of 0 steps: there is none.
  TaskReport last;
  // 0: the worker ends by itself. Otherwise tasks are the job's, this many of each worker, less
  // those that each has done at its first kBegin, which all wait for: a fast worker does more of
  // them.
  Clock until = 0;
  bool operator==(const BeginBody&) const = default;
};
// The body of the answer to kJudge.
struct VerdictBody {
  std::uint32_t steps = 0;
  Verdict verdict = Verdict::kPush;
};
// The body of kTolerances: which losses a generation's plan can bear.
struct TolerancesBody {
  std::uint8_t copies = 1;  // as in Plan; 0: no row learns on a server
  std::string why_none{};   // the plan bears none, for this reason; "": it bears some
  bool interrupts = false;  // a loss interrupts all workers, who then reunite (kReunite)
};
// A TaskReport is the body of kJudge; a Start, whose worker is not in it, answers kBegin; a Want is
// the body of kPause, and of the answer to kMeet.
using Body = std::variant<JoinBody, RosterBody, SegmentBody, LeaveBody, ReportBody, BeginBody,
                          TaskReport, Start, VerdictBody, Want, TolerancesBody, AccountBody>;
std::string encode(const Body& body);
// Decodes `bytes` into a body of the kind that `body` is already. An error names what is wrong with
// them.
Status decode_into(Body& body, std::string_view bytes);
template <class B>
Result<B> decode(std::string_view bytes) {
  Body body = B();
  TRY(decode_into(body, bytes));
  return std::get<B>(std::move(body));
}
// The body of kMeet: the reason for which a worker comes to a meeting.
enum class Meeting : std::uint8_t {
  kPause = 0,       // for what was agreed on; it goes on after that
  kEnd = 1,         // it is at the end of its iterations
  kGeneration = 2,  // what was agreed on ends the generation
};
std::string encode(Meeting why);
Meeting decode_meeting(std::string_view bytes);  // no body: kPause
// Returns the answer to kLeave: whether the process may go.
std::string encode_may_leave(bool may);
bool decode_may_leave(std::string_view bytes);
// Returns the number that tells questions of one topic and clock, and their answers, apart: the
// steps of kJudge, 0 of all others.
std::uint32_t part_of(Topic topic, std::string_view body);

// These return the clocks of the rounds (kBarrier) with which a generation begins, one after the
// other: one in which worker 0 names a group for sums by a library, if there are such; two in
// Table::create(); then, where workers measure their links, one at the end of each worker's turn.
constexpr Clock group_named(Generation generation) {
  return (static_cast<Clock>(generation) << 17) - (Clock{1} << 50);
}
constexpr Clock all_drained(Generation generation) { return group_named(generation) + 1; }
constexpr Clock rows_exist(Generation generation) { return all_drained(generation) + 1; }
constexpr Clock end_of_turn(Generation generation, int worker) {
  return rows_exist(generation) + 1 + worker;
}

}  // namespace shoal::table
