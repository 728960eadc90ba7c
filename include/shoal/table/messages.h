// What processes of a job say to each other, as values. Their bytes are docs/protocol.md and
// wire.h.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/table/types.h"

namespace shoal::table {

// Append only; these are on the wire.
enum class MessageType : std::uint8_t {
  kChallenge = 1,
  kHello = 2,
  kWelcome = 3,
  kRefuse = 4,
  kPing = 5,
  kBye = 6,
  kPlan = 16,
  kInit = 17,
  kReady = 18,
  kPush = 24,
  kGet = 25,
  kRow = 26,
  kNeedPush = 27,
  kRetire = 28,
  kNorm = 32,
  kNormTotal = 33,
  kAsk = 40,
  kAnswer = 41,
  kDirective = 42,
};

// of a Hello: a process that is to have one
inline constexpr std::uint32_t kNoRank = ~std::uint32_t{0};
using Nonce = std::array<std::uint8_t, 16>;
using Digest = std::array<std::uint8_t, 32>;

// Longer ones are cut when they are encoded.
// of Refuse's reason and of Directive's text
inline constexpr std::size_t kMaxReasonBytes = 4000;
// Longer ones may not be encoded.
inline constexpr std::size_t kMaxBodyBytes = 16u << 20;  // of Ask and Answer

// What a connection is for. A process of both kinds opens one of each kind it needs.
enum class Purpose : std::uint8_t { kRows = 1, kCoordination = 2 };

// ---- the first messages of a connection; who accepts speaks first ----
struct Challenge {
  std::uint16_t lowest = 3, highest = 3;
  Nonce nonce{};
};
struct Hello {
  std::uint16_t lowest = 3, highest = 3;  // versions of the protocol it speaks
  Purpose purpose = Purpose::kRows;
  std::uint32_t rank = 0;  // of who connects
  // drawn at its start: a process that was started again is another
  std::uint64_t incarnation = 0;
  Digest configuration{};  // of net, solver and scheme
  Nonce nonce{};
  // HMAC-SHA256 of the job's token over "hello", the challenge's fields and all fields above
  Digest proof{};
};
struct Welcome {
  std::uint16_t version = 3;
  std::uint32_t rank = 0;  // of who accepted
  std::uint64_t incarnation = 0;
  // the same over "welcome", the challenge's fields, the hello's nonce and the fields above
  Digest proof{};
};
// Why a connection ends; the last message of it. The code is what the other side ends with.
struct Refuse {
  Code code = Code::kPeer;
  std::string reason;
};
// Each second in both directions; silence is how a stalled peer is known. `clock` is the sender's
// own, -1 if it has none.
struct Ping {
  Clock clock = -1;
};
// Ends a connection in order: the peer is not lost.
struct Bye {};

// ---- rows ----
// What is said of rows is said in a generation: in a later one it is late, and is passed over.
// From the chief, worker 0, to every server: all rows, of which the server keeps its own.
struct PlanMessage {
  Plan plan;
  // of the only worker, said to a server in its process; not on the wire
  Home home{};
};
// Its numbers, part by part. Answered by one Ready when all rows of the server have their weights.
struct Init {
  RowId row = 0;
  Part part = Part::kWeights;
  Payload payload{};
  Generation generation = 0;
};
struct Ready {
  std::uint32_t rows = 0;
  Generation generation = 0;
};
// A contribution. An acknowledgement is any Row for a later clock of the same row; until then it
// may be sent again.
struct Push {
  RowId row = 0;
  Clock clock = 0;  // of the iteration that made it
  Version base = 0;
  ContributionKind kind = ContributionKind::kGradient;
  float weight = 1;
  float rate = 0;     // the solver's rate in that iteration
  Payload payload{};  // empty if weight is 0
  Generation generation = 0;
  // Said to a server in its process, not on the wire:
  bool finite = false;  // who pushed has looked: there is no NaN, and no infinity
  // a gradient's numbers, if they are to be zeros once the rule took them, or they were dropped
  std::span<float> spent{};
};
// Wants the row as a worker that finished `clock` iterations may see it. A worker that pushed need
// not ask: a push asks for clock + 1. Answered by Row, when the scheme allows, or by NeedPush, at
// once, if the worker's own push of clock - 1 has not arrived. Parts other than weights are
// answered at once.
struct Get {
  RowId row = 0;
  Clock clock = 0;
  Part part = Part::kWeights;
  Generation generation = 0;
};
struct RowMessage {
  RowId row = 0;
  Clock clock = 0;
  Version version = 0;
  Part part = Part::kWeights;
  Payload payload{};
  Generation generation = 0;
};
struct NeedPush {
  RowId row = 0;
  Clock clock = 0;
  Generation generation = 0;
};
// The worker made its last push, of clock - 1, or never will: nobody is to wait for it from there
// on. If it pushes again all the same, it is back.
struct Retire {
  Clock clock = 0;
  Generation generation = 0;
};
// Of a server's rows at one clock, for a clip of the norm of all: the sum of squares of its part of
// the mean gradient; the coordinator adds them up in the order of servers.
struct Norm {
  Clock clock = 0;
  std::uint16_t server = 0;
  double squares = 0;
  Generation generation = 0;
};
struct NormTotal {
  Clock clock = 0;
  double squares = 0;
  Generation generation = 0;
};

// ---- the coordinator ----
// What a question to it is about. Append only.
enum class Topic : std::uint16_t {
  // body: a JoinBody; `clock` is the process's incarnation. Answer: a RosterBody, when all have
  // joined
  kJoin = 1,
  // anything or nothing; answered when every worker asked, with worker 0's. Of how a generation
  // begins:
  // the solver's rounds are others
  kBarrier = 2,
  kSum = 3,  // float64s; the sum over the workers, in their order
  // anything; worker 0 gets all bodies, in order, each after its u32 length; others get nothing
  kGather = 4,
  kShare = 5,  // anything, from worker 0 (others: nothing); all get that
  // float64s, the first the weight: worker 0 gets the weighted means, when all have spoken; nobody
  // waits
  kOutputs = 6,
  kPause = 7,  // u8 Want: what this worker wants all to do; everyone is told when (Directive)
  // the clock that this worker will surely finish, in answer to a kPause directive. A body of u8 1:
  // its scheme keeps workers
  kPaused = 8,
  // within no bound, and it cannot wait until all have come as far as the first
  kDone = 9,  // this worker has finished; answered when all have
  // the worker's times since its last report (ReportBody), for the straggler's name; not answered
  kReport = 10,
  // both ways: `clock` messages of this conversation with the coordinator have come, whatever
  // became of the connections that
  kHeard = 11,
  // carried them: the other side sends the rest again on a new one, and forgets what is not needed
  // may this worker start its task `clock`? A BeginBody; answered with a Start, when the scheme's
  // pacer lets it
  kBegin = 12,
  // a TaskReport of task `clock`; its steps tell one question from the next. Answered at once with
  // those and a u8 Verdict
  kJudge = 13,
  // from worker 0, while nobody is in a task: from generation `clock` on the pacer is that of this
  // scheme, in make_scheme's words
  kScheme = 14,
  // this worker has stopped because of an agreement (u8 2: on what ends the generation), or (1: it
  // starts nothing else) at its end. Answered, when all have and
  kMeet = 15,
  // no agreement is open, with a u8 Want: the most urgent that was agreed on since the last meeting
  // this worker is at the end of its part of a generation (SegmentBody); `clock` is the next
  // generation.
  // Answered, when all are and no
  kRegroup = 16,
  // agreement is open, with the RosterBody of that
  // this process wants to leave the job (LeaveBody). Answered when it may go, with a u8: 1: it may;
  // 0: it may not, and all stop. A
  kLeave = 17,
  // worker that is not at its end hears of it in the next generation's roster instead
  // of a process that has no rank, on a connection of its own: `clock` is its incarnation. Answered
  // with the u32 rank under which it
  kEnroll = 18,
  // is to join
};
// What a worker may want of all.
enum class Want : std::uint8_t {
  kNothing = 0,
  kSnapshot = 1,
  kStop = 2,
  kRequeue = 3,
  kRegroup = 4
};
// Of two that are wanted at once the more urgent counts: an end before the next generation, that
// before a snapshot.
constexpr Want more_urgent(Want one, Want other) {
  constexpr auto urgency = [](Want want) {
    return want == Want::kRegroup ? 3
           : want < Want::kStop   ? 2 * static_cast<int>(want)
                                  : 2 * static_cast<int>(want) + 2;
  };
  return urgency(one) < urgency(other) ? other : one;
}

// `clock` tells one round of a topic from the next
struct Ask {
  Topic topic = Topic::kBarrier;
  Clock clock = 0;
  std::string body;
};
struct Answer {
  Topic topic = Topic::kBarrier;
  Clock clock = 0;
  std::string body;
};
enum class DirectiveKind : std::uint8_t {
  // the job ends now; code and reason for everyone. To the coordinator: the process of rank `clock`
  // is lost to the sender,
  kAbort = 1,
  // or, if that is its own, ends by itself
  // say at once which clock you will surely finish (kPaused), and do not start another before you
  // hear kAgreed
  kPause = 2,
  // after `clock` iterations all do `want`; an earlier one whose clock is still to come stands
  // beside it. Without a bound each
  kAgreed = 3,
  // worker has a clock of its own, there it asks for kMeet, and the answer ends all agreements that
  // were heard of before it
  kFinished = 4,  // all workers are done: servers may go
  kLeft = 5,      // the process of rank `clock` has left in order: its connections may end
};
struct Directive {
  DirectiveKind kind = DirectiveKind::kAbort;
  Clock clock = 0;
  Want want = Want::kNothing;
  Code code = Code::kPeer;
  std::string text;
};

using Message =
    std::variant<Challenge, Hello, Welcome, Refuse, Ping, Bye, PlanMessage, Init, Ready, Push, Get,
                 RowMessage, NeedPush, Retire, Norm, NormTotal, Ask, Answer, Directive>;
MessageType type_of(const Message& message);
const char* name_of(MessageType type);  // "Push"

// Bodies of kJoin.
struct JoinBody {
  std::uint32_t rank = 0;
  bool worker = true, server = true;
  std::string host;  // for people: what it calls itself
  // "10.0.0.3:29600", where others reach it; a part before the colon that is empty or "0.0.0.0"
  // means: where this connection comes from
  std::string address;
  // net, solver and scheme as text: so that a difference can be shown
  std::string configuration;
};
// Who is what in a generation, and what else is new in it.
struct RosterBody {
  struct Process {
    std::uint32_t rank = 0;
    // -1: is none. One that is neither has left, or has never come
    std::int32_t worker = -1, server = -1;
    std::string host, address;
    Clock clock = 0;  // iterations that its worker has behind it
    // of its worker's part of the data, beside the others'; 0: all are equal
    double weight = 0;
    double bandwidth = 0;  // of its server's link, bytes a second; 0: no limit is known
  };
  // by rank; workers and servers are numbered in the order of ranks
  std::vector<Process> processes;
  std::uint64_t seed = 0;  // of the job, common to all
  Generation generation = 0;
  // of the generation, in make_scheme's words; in the first: none, the solver says it
  std::string scheme{};
  std::string why{};  // it began, for people
  // in this generation nobody trains: the workers measure the servers' links, and then comes the
  // next
  bool measures = false;
};
// The end of a worker's part of a generation.
struct SegmentBody {
  Clock clock = 0;  // iterations it has behind it
  // at which the solver's next scheme begins, and that, in words for the workers the job began
  // with. The chief's count;
  Clock phase_end = kUnbounded;
  // without words all are before that end, whatever their clocks say
  std::string next_scheme{};
  // The chief's count here too. Numbers of workers and servers are those of the generation that
  // ends. it goes on with this one, whatever else would come; "": as that says
  std::string scheme{};
  // of the workers' parts of the data from now on; none: all are equal
  std::vector<double> weights{};
  // of the servers' links, bytes a second, 0 if there is no telling; none: as known before
  std::vector<double> bandwidths{};
  // the links of servers of which nothing was said are to be measured
  bool measures = false;
};
// Of a process that wants to leave.
struct LeaveBody {
  // of a worker: it has made its last push, and heard of all, and takes part in nothing more
  bool at_end = false;
  // of that: what it would say in a gather for a snapshot, which stands for it until the next
  // generation
  std::string state{};
};
std::string encode(const JoinBody& body);
std::string encode(const RosterBody& body);
std::string encode(const SegmentBody& body);
std::string encode(const LeaveBody& body);
Result<JoinBody> decode_join(std::string_view bytes);
Result<RosterBody> decode_roster(std::string_view bytes);
Result<SegmentBody> decode_segment(std::string_view bytes);
Result<LeaveBody> decode_leave(std::string_view bytes);

}  // namespace shoal::table
