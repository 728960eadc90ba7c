// The messages between the processes of a job, as values. docs/reference/protocol.md and wire.h
// have their bytes.
#pragma once

#include "shoal/base/error.h"
#include "shoal/base/signing.h"
#include "shoal/table/plan.h"

namespace shoal::table {

// The rank in a Hello of a process that has none yet.
inline constexpr Rank kNoRank = ~Rank{0};
using Nonce = std::array<std::uint8_t, 16>;
using Digest = std::array<std::uint8_t, 32>;

// Limit of a Refuse's reason and a Directive's text, which are cut when they are encoded.
inline constexpr std::size_t kMaxReasonBytes = 4000;
// Limit of the body of an Ask and an Answer; a longer one may not be encoded.
inline constexpr std::size_t kMaxBodyBytes = 16u << 20;

// The purpose of a connection: rows, from a worker to a server; the coordinator's messages; updates
// for copies, from a server to the one that has copies of its rows; records, from the coordinator
// to a standby. A process opens one connection for each purpose.
enum class Purpose : std::uint8_t { kRows = 1, kCoordination = 2, kCopies = 3, kStandby = 4 };

// The version of all frames but the first messages. docs/reference/protocol.md lists what each
// version changed.
inline constexpr std::uint8_t kProtocolVersion = 12;

// ---- the first messages of a connection; the accepting process speaks first ----
struct Challenge {
  std::uint16_t lowest = kProtocolVersion, highest = kProtocolVersion;
  Nonce nonce{};
};
struct Hello {
  // The versions of the protocol that the sender speaks.
  std::uint16_t lowest = kProtocolVersion, highest = kProtocolVersion;
  Purpose purpose = Purpose::kRows;
  Rank rank = 0;  // of the connecting process
  // A number drawn at its start: a process that was started again has another.
  std::uint64_t incarnation = 0;
  Digest configuration{};  // of net, solver and scheme
  Nonce nonce{};
  // The HMAC-SHA256 of the job's token over "hello", the challenge's fields and all fields above.
  Digest proof{};
};
// Follows the Hello: shows that the rank in it is the sender's, who alone can sign with its key.
struct Claim {
  Rank whom = 0;  // of the accepting process; kNoRank: any, for a process without a rank
  PublicKey key{};
  // Over "shoal claim", the fields of Challenge and Hello, those above, and under TLS what binds
  // them to the connection.
  Signature signature{};
};
struct Welcome {
  std::uint16_t version = kProtocolVersion;
  Rank rank = 0;  // of the accepting process
  std::uint64_t incarnation = 0;
  // The HMAC-SHA256 over "welcome", the challenge's fields, the hello's nonce and the fields above.
  Digest proof{};
};
// The reason for which a connection ends, as its last message. The other side ends with the code.
struct Refuse {
  Code code = Code::kPeer;
  std::string reason;
};
// Sent each second in both directions, so that silence shows a stalled peer. `clock` is the
// sender's own, -1 if it has none.
struct Ping {
  Clock clock = -1;
};
// Ends a connection in order: the peer is not lost.
struct Bye {};

// ---- memory that a link's sender lends its receiver on the same machine ----
// The memory is at the abstract unix address `name`, for a process that says `key` and knows the
// job's token. Each end of a link may offer one, once.
struct Offer {
  std::string name;
  Nonce key{};
  std::uint64_t bytes = 0;
};
inline constexpr std::size_t kMaxNameBytes = 100;
// Counts the payloads of the offered memory that were taken since the link began, in their order.
// The first `done` of them are no longer read: their bytes are the sender's again. The first Taken,
// of none, says that the memory is there.
struct Taken {
  std::uint64_t payloads = 0, done = 0;
  auto operator<=>(const Taken&) const = default;
};

// ---- rows ----
// Messages about rows belong to a generation; one that arrives in a later generation is ignored.

// From the chief, worker 0, to every server: all rows, of which the server keeps its own.
struct PlanMessage {
  explicit PlanMessage(Plan plan = {}, InPlace in_place = {})
      : plan(std::make_shared<Plan>(std::move(plan))), in_place(std::move(in_place)) {}
  // Copies of the message share the plan. It lies outside, since a Message of any type takes as
  // many bytes as the largest type.
  std::shared_ptr<Plan> plan;
  // The rows of the only worker, for a server in its process; not on the wire.
  InPlace in_place;
};
// The initial numbers of one part of a row, in float32. The server sends one Ready when all its
// rows have their weights.
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
// A contribution to a row. Any Row of the same row for a later clock acknowledges it; until then it
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
  // For the worker's client, not on the wire: what its codec has left out so far goes along, in
  // float32.
  bool whole = false;
  // For a server in the worker's process, not on the wire:
  bool finite = false;  // the worker has checked that there is no NaN and no infinity
  // A gradient's numbers, if they are to be set to zero once they were merged or dropped.
  std::span<float> clear_after{};
};
// Asks for the row as a worker that finished `clock` iterations may see it. A push of `clock` asks
// for clock + 1 too. The server answers with a Row when the scheme permits it, or at once with a
// NeedPush if the worker's own push of clock - 1 has not arrived. It answers at once for parts
// other than weights.
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
// Says that the worker pushes nothing at or after `clock`; servers stop waiting for it. A later
// push re-admits it.
struct Retire {
  Clock clock = 0;
  Generation generation = 0;
};
// A server's part of the mean gradient's norm at one clock, as a sum of squares. The coordinator
// adds the parts in the order of servers and answers with a NormTotal.
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

// ---- copies of rows, between servers ----
// A worker's push that an update took, or dropped.
struct MergedPush {
  std::uint16_t worker = 0;
  Clock clock = 0;
  bool taken = true;
  bool operator==(const MergedPush&) const = default;
};
// An update of a row, from its server to the one that has a copy: what its pushes add up to. The
// copy does the same arithmetic with the same numbers, so it has the same bits. One without numbers
// makes no version: all its pushes were dropped.
struct Update {
  RowId row = 0;
  std::uint64_t number = 0;  // counts the updates of the row in this generation, from 1
  Apply apply = Apply::kRule;
  float scale = 1;  // of the payload
  float rate = 0;   // of the update rule
  std::vector<MergedPush> merged{};
  Payload payload{};
  Generation generation = 0;
};
// The answer to an Update: the copy has this one and those before it.
struct Copied {
  RowId row = 0;
  std::uint64_t number = 0;
  Generation generation = 0;
};

// ---- the coordinator ----
// The subject of an Ask to the coordinator. Append only. `clock` and body are those of the Ask.
enum class Topic : std::uint16_t {
  // A JoinBody; `clock` is the process's incarnation. Answered with a RosterBody when all processes
  // have joined.
  kJoin = 1,
  // Any body. Answered, when every worker has asked, with worker 0's body. Used where a generation
  // begins.
  kBarrier = 2,
  // float64 numbers. Answered with their sums over the workers, added in the order of workers.
  kSum = 3,
  // Any body. Worker 0 gets all bodies in the order of workers, each after its u32 length; the
  // others get an empty one.
  kGather = 4,
  // Worker 0's body (if it is lost, the next one's) is the answer to all whose own body is empty.
  // Others get an empty one.
  kShare = 5,
  // float64 numbers, of which the first is the weight. Worker 0 gets the weighted means when all
  // workers have sent theirs. The others get no answer.
  kOutputs = 6,
  // A u8 Want: this worker's wish for all workers. A Directive tells all of them when.
  kPause = 7,
  // Answers a kPause directive: this worker will surely finish `clock`. Body u8 1: its scheme sets
  // no bound between workers, and it cannot wait until all are as far as the first.
  kPaused = 8,
  // This worker has finished. Answered when all have.
  kDone = 9,
  // A ReportBody: the worker's times since its last report, from which the straggler is named. The
  // chief's is answered with an AccountBody, and so is, before its own answer, its kDone.
  kReport = 10,
  // Both ways: the sender has received `clock` messages of this conversation, over all connections.
  // The other side forgets those, and sends the rest again on a new connection.
  kHeard = 11,
  // A BeginBody: may this worker start its task `clock`? Answered with a Start when the scheme's
  // pacer permits it.
  kBegin = 12,
  // A TaskReport of task `clock`, whose steps tell one question from the next. Answered at once
  // with those steps and a u8 Verdict.
  kJudge = 13,
  // The words of the scheme whose pacer counts from generation `clock` on; from worker 0, while no
  // worker is in a task.
  kScheme = 14,
  // This worker has stopped because of an agreement (u8 2: one that ends the generation), or is at
  // its end (u8 1: it starts nothing else). Answered, when all workers have asked and no agreement
  // is open, with a u8 Want: the most urgent that was agreed on since the last meeting.
  kMeet = 15,
  // A SegmentBody: this worker is at the end of its part of a generation; `clock` is the next one.
  // Answered with the RosterBody of that, when all workers have asked and no agreement is open.
  kRegroup = 16,
  // A LeaveBody: this process asks to leave the job. Answered with a u8 when it is decided. 1: it
  // may leave. 0: it may not, and all workers stop. A worker that is not at its end sees it in the
  // next generation's roster instead.
  kLeave = 17,
  // A process without a rank asks for one on a connection of its own; `clock` is its incarnation.
  // The rank belongs to the key of that connection.
  // Answered with the u32 rank under which it is to join. A process that does not coordinate
  // answers with kNoRank and the address of the one that does.
  kEnroll = 18,
  // A TolerancesBody, from worker 0, when it gives the servers the plan of generation `clock`. Not
  // answered. In a generation without one any loss ends the job.
  kTolerances = 19,
  // The i64 steps that this worker has finished, and any bytes. It was interrupted by a loss, and
  // takes part in no other round until all workers ask this; `clock` is the generation * 2^32 + the
  // processes of its plan that are lost.
  // Answered to all as kGather is to worker 0, with nothing for workers that are lost.
  kReunite = 20,
  // A piece of a Record (coordinator/record.h), for a standby; `clock` is 1 if it is the last. Not
  // answered, but counted (kHeard).
  kRecord = 21,
};
// A request of one worker to all workers.
enum class Want : std::uint8_t {
  kNothing = 0,
  kSnapshot = 1,
  kStop = 2,
  kRequeue = 3,
  kRegroup = 4
};
// Returns the more urgent of two wants: an end comes before the next generation, that before a
// snapshot.
constexpr Want more_urgent(Want one, Want other) {
  constexpr auto urgency = [](Want want) {
    return want == Want::kRegroup ? 3
           : want < Want::kStop   ? 2 * static_cast<int>(want)
                                  : 2 * static_cast<int>(want) + 2;
  };
  return urgency(one) < urgency(other) ? other : one;
}

// `clock` tells one round of a topic from the next.
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
  // From the coordinator: the job ends now, with this code and reason. To the coordinator: so it
  // does, since the process of rank `clock` broke the protocol, or ends by itself if that is the
  // sender's own rank.
  kAbort = 1,
  // Asks the worker to say at once which clock it will surely finish (kPaused). It starts no other
  // before kAgreed.
  kPause = 2,
  // All workers do `want` after `clock` iterations; an earlier agreement whose clock is still to
  // come stays. Where no bound keeps workers together each has a clock of its own: there it asks
  // for kMeet, and the answer ends all agreements that it has received.
  kAgreed = 3,
  kFinished = 4,  // all workers are done: servers may go
  kLeft = 5,      // the process of rank `clock` has left in order: its connections may end
  // The process of rank `clock` is lost, `text` says why. To the coordinator: the sender has lost
  // it. From the coordinator: the job goes on without it, and nothing of it counts any more.
  kLost = 6,
};
struct Directive {
  DirectiveKind kind = DirectiveKind::kAbort;
  Clock clock = 0;
  Want want = Want::kNothing;
  Code code = Code::kPeer;
  std::string text;
};

using Message = std::variant<Challenge, Hello, Claim, Welcome, Refuse, Ping, Bye, Offer, Taken,
                             PlanMessage, Init, Ready, Push, Get, RowMessage, NeedPush, Retire,
                             Norm, NormTotal, Update, Copied, Ask, Answer, Directive>;
const char* name_of(const Message& message);  // "Push"
// Returns the urgency of a server's message to a worker under this plan. Messages other than rows
// leave before rows.
Urgency urgency_of(const Message& message, const Plan& plan);

// The body of a kJoin.
struct JoinBody {
  Rank rank = 0;
  bool worker = true, server = true;
  std::string host;  // the name of its machine, for people
  // "10.0.0.3:29600", where other processes reach it. If the part before the colon is empty or
  // "0.0.0.0", the address that this connection comes from takes its place.
  std::string address;
  // Net, solver and scheme as text, so that a difference can be shown.
  std::string configuration;
  // The key with which the process claimed its rank. The coordinator fills it in.
  PublicKey key{};
};
// The processes of a generation and their parts in it.
struct RosterBody {
  struct Process {
    Rank rank = 0;
    // Its number as a worker and as a server; -1: it is none. A process that is neither has left,
    // or has never come.
    std::int32_t worker = -1, server = -1;
    std::string host, address;
    Clock clock = 0;       // iterations that its worker has made
    double weight = 0;     // its worker's share of the data beside the others'; 0: all are equal
    double bandwidth = 0;  // of its server's link in bytes a second; 0: no limit is known
    PublicKey key{};       // with which it claims its rank
  };
  // By rank. Workers and servers are numbered in the order of ranks.
  std::vector<Process> processes;
  std::uint64_t seed = 0;  // of the job, the same for all processes
  Generation generation = 0;
  std::optional<SchemeSpec> scheme{};  // none in the first: the solver says it
  std::string why{};                   // the generation began, for people
  bool measures = false;  // no worker trains: the servers' links are measured, then the next begins
};
// The end of a worker's part of a generation. Of phase_end, the schemes, weights, bandwidths and
// measures the coordinator takes the chief's. Lists are of the generation that ends.
struct SegmentBody {
  Clock clock = 0;  // iterations that this worker has made
  // The clock at which the solver's next scheme begins, and that scheme for the workers the job
  // began with. Without one all workers are before that end, whatever their clocks are.
  Clock phase_end = kUnbounded;
  std::optional<SchemeSpec> next_scheme{};
  std::optional<SchemeSpec> scheme{};  // of the next generation, before all others; none: as above
  // The workers' shares of the data from now on; none: all are equal.
  std::vector<double> weights{};
  // The servers' links in bytes a second, 0 where it is not known; none: as before.
  std::vector<double> bandwidths{};
  bool measures = false;  // links of servers without a known bandwidth are to be measured
};
// The body of a kLeave.
struct LeaveBody {
  // The worker has made its last push, has its answers, and takes part in nothing more.
  bool at_end = false;
  // If so: its part of a gather for a snapshot, which counts until the next generation.
  std::string state{};
};

}  // namespace shoal::table
