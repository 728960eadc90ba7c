// Process 0's second duty: who is in the job, and what all must agree on. A pure state machine:
// message in, messages out.
//
// Every Ask may be repeated: it counts once, and where an answer was given already it is given
// again. Clocks of a topic rise with a worker's rounds; a repeat from before its last round is
// passed over. A worker waits in one round (barrier, sum, gather, share) or for one start of a task
// at a time. Workers that are done take part in no further round, and no task waits for them. When
// no worker can go on, because they wait in different places, all are told to end, and why.
#pragma once

#include "shoal/table/messages.h"
#include "shoal/table/scheme.h"

namespace shoal::table {

struct CoordinatorOptions {
  std::uint32_t processes = 1;  // that are to join
  std::uint64_t seed = 0;       // of the job
  // as make_scheme reads it; its pacer answers kBegin and kJudge. Empty, or none: every task may
  // start at once, with one step, and counts
  std::string scheme{};
  SchemeMaker maker = make_scheme;
};

// A message to the process with this rank.
struct Dispatch {
  Rank rank = 0;
  Message message;
};

// The body of kReport: what a worker did since its last one. Times are seconds.
struct ReportBody {
  double iterations = 0;
  // rows: waiting for them, which is no fault of the one who waits
  double compute = 0, data = 0, rows = 0, other = 0;
  bool operator==(const ReportBody&) const = default;
};
std::string encode(const ReportBody& body);
Result<ReportBody> decode_report(std::string_view bytes);

// The body of kBegin; no bytes at all are one with nothing in it.
struct BeginBody {
  // of the worker's last task; of 0 steps: nothing is said
  TaskReport last;
  // 0: the worker ends by itself. Otherwise tasks are the job's, this many of each worker, less
  // those that each has done at its first kBegin, which all wait for: whoever is fast does more of
  // them
  Clock until = 0;
  bool operator==(const BeginBody&) const = default;
};
std::string encode(const BeginBody& body);
std::string encode(const TaskReport& body);  // kJudge
// the answer to kBegin; its worker is not in it
std::string encode(const Start& body);
std::string encode(std::uint32_t steps, Verdict verdict);  // to kJudge
Result<BeginBody> decode_begin(std::string_view bytes);
Result<TaskReport> decode_task(std::string_view bytes);
Result<Start> decode_start(std::string_view bytes);
Result<Verdict> decode_verdict(std::string_view bytes);
// The body of kMeet: why a worker comes to a meeting.
enum class Meeting : std::uint8_t {
  kPause = 0,       // for what was agreed on; it goes on after that
  kEnd = 1,         // it is at the end of its iterations
  kGeneration = 2,  // what was agreed on ends the generation
};
std::string encode(Meeting why);
Meeting decode_meeting(std::string_view bytes);  // no body: kPause
// The body of kPause, and of the answer to kMeet.
std::string encode(Want want);
Result<Want> decode_want(std::string_view bytes);
// The answer to kLeave: whether the process may go.
std::string encode_may_leave(bool may);
bool decode_may_leave(std::string_view bytes);
// Returns what tells questions of one topic and clock, and their answers, apart: the steps of
// kJudge, 0 of all others.
std::uint32_t part_of(Topic topic, std::string_view body);

// The clocks of the rounds (kBarrier) with which a generation begins, one after the other: two in
// Table::create(); then, where workers measure their links, one at the end of each worker's turn.
constexpr Clock all_drained(Generation generation) {
  return (static_cast<Clock>(generation) << 17) - (Clock{1} << 50);
}
constexpr Clock rows_exist(Generation generation) { return all_drained(generation) + 1; }
constexpr Clock end_of_turn(Generation generation, int worker) {
  return rows_exist(generation) + 1 + worker;
}

class Coordinator {
 public:
  explicit Coordinator(const CoordinatorOptions& options);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;

  // Takes a message of the process with this rank. A Join's Ask carries the incarnation of its
  // process as clock, and in its address a host (whoever drives this knows where the connection
  // comes from). A Join that cannot be (another configuration: said with the first differing line
  // and both its values; a rank outside the job; no server or no worker at all) is answered by a
  // Refuse to it and, while not all have joined, an Abort to those who have. An error is a broken
  // protocol, or a rank that another process has: the connection is to end with it. `now` never
  // goes back.
  Status handle(Rank rank, const Message& message, Instant now, std::vector<Dispatch>& out);
  // The rank for a process that is to join a job that goes on (or is about to begin): it asks to
  // with that. It is answered when the next generation begins, which it brings about; until then
  // its loss is nobody's. A Join that cannot be is refused, and nothing else happens.
  Rank enroll();
  std::uint32_t processes() const;  // that have a rank
  // All workers are to go on in another generation, for the reason given (for people), and with
  // this scheme: words for the workers as the roster numbers them now; "": it stays as it is. Where
  // a bound holds them together that is after `from` iterations or later. Nothing before all have
  // joined, or when the job is over. src/shoal/table/coordinator/regrouping.h says how it comes
  // about; roster() is the new one when it has.
  void regroup(const std::string& why, const std::string& scheme, Clock from,
               std::vector<Dispatch>& out);
  // The process is lost, or was silent too long: everybody else is told to end, with a message that
  // names its rank, host, last clock and `why`. Nothing is said twice, and nothing after the job is
  // done.
  void lost(Rank rank, Code code, const std::string& why, std::vector<Dispatch>& out);
  // The last clock heard of a process, for messages.
  void heard(Rank rank, Clock clock);

  const RosterBody* roster() const;   // null until all have joined
  std::vector<Rank> missing() const;  // ranks that have not joined yet
  // Names the processes that have not answered: "barrier 500: waiting for rank 2 (host b, last
  // clock 498)"; "" if all have.
  std::string waiting_for() const;
  bool finished() const;  // every worker is done
  // Why the job was ended for all; null if it was not.
  const Error* ended() const;
  // Lines for the log since the last call: stragglers, outputs that were averaged without some
  // worker, and what the pacer says.
  std::vector<std::string> take_warnings();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shoal::table
