// The table service as a worker sees it, and the processes that make it up. The interface is what
// the bridge (parallel/) uses: the service over TCP implements it, and so can a simulation.
#pragma once

#include "shoal/table/account.h"
#include "shoal/table/messages.h"
#include "shoal/table/pacer.h"

namespace shoal::table {

// Bytes and frames since the start, counted where they are handed to or taken from the system or a
// process of this machine. In-process traffic is counted apart.
struct Traffic {
  std::uint64_t bytes_sent = 0, bytes_received = 0, frames_sent = 0, frames_received = 0;
  // Bytes of rows that went to or came from a server in this process, on no wire.
  std::uint64_t local_bytes = 0;
  // Bytes, of those sent, that went through memory to processes of this machine.
  std::uint64_t shared_bytes = 0;
  // Time in which the system could not take all bytes to send, or a frame had come in part; sums
  // over connections.
  std::chrono::nanoseconds sending{}, receiving{};
};

// The staleness of pushes and reads since the start, as counts of 0, 1, 2 ...; the last counts
// more, too.
struct StalenessCounts {
  // Versions that others made of a row between the read that a push was computed from and its
  // answer.
  Staleness pushes{};
  // Clocks that the reader of a row was ahead of the slowest worker.
  Staleness reads{};
  // Pushes without contents, or whose answer shows that they were not merged.
  std::uint64_t drops = 0;
};

// Counts of a server since the start.
struct ShardCounters {
  // Updates; pushes in them; pushes thrown away, including those of skipped iterations.
  std::uint64_t merges = 0, contributions = 0, dropped = 0;
  std::uint64_t repeated = 0;  // pushes that were there already
  // Pushes before an earlier one of their worker, which are requested again and not kept.
  std::uint64_t early = 0;
  std::uint64_t refused = 0;  // pushes with a NaN or an infinity
  std::uint64_t parked = 0;   // reads that had to wait
  std::uint64_t late = 0;     // messages of an earlier generation
  // The reads that were so many clocks ahead of the slowest worker; the last counts more, too.
  Staleness staleness{};
};

// A worker's table. All calls on one thread, the solver's. Every wait ends: with an error (kPeer:
// lost or refused, kTimeout: stalled) that names the process, since when and its last clock. After
// an error every call returns it again.
class Table {
 public:
  virtual ~Table() = default;
  virtual int worker() const = 0;                // 0 is the chief
  virtual const RosterBody& roster() const = 0;  // of this generation; good as long as the table
  // Returns whether rows may have a second copy (Plan::copies). In a simulation they have one.
  virtual bool can_copy() const { return false; }
  // Returns whether the process is known to have left the job, or to be lost.
  virtual bool is_gone(Rank) const { return false; }

  // Agrees on the plan with all and waits until the rows exist. The chief's `initial(row, part)`
  // gives their numbers (histories: as many parts as the rule has, or empty spans for zeros);
  // others' is not called. `destinations` as in Client. Called again, with a plan of the next
  // generation, when each worker is at the end of its part of the last one: it waits until this
  // worker's answers have arrived, then for the others; then the rows are the new plan's, with the
  // chief's numbers. No update is lost or counted again: messages of the last generation that are
  // still on their way are ignored. A simulation does the same with Plan::generation and the fence
  // of Shard and Client.
  using Source = std::function<std::span<const float>(RowId, Part)>;
  using Destinations = std::function<Destination(RowId, Part)>;
  virtual Status create(const Plan& plan, const Source& initial,
                        const Destinations& destinations) = 0;

  // Gives the memory for what codecs of pushes keep of each row, from the next create() on. Without
  // it the table has its own, which ends with the generation. To be looked at and changed between
  // two plans, or while no push waits for its answer.
  virtual void hold_states(CodecStates states) = 0;

  // Ends this worker's part of a generation, between two plans, with all its pushes answered. Waits
  // until all workers have. From then on worker() and roster() are those of the next generation,
  // whose plan create() is to be given. Returns false if this worker is not in it.
  virtual Result<bool> regroup(const SegmentBody& end) = 0;

  // Asks to leave, at the end of a task: the worker has made its last push, has all answers, and
  // takes part in nothing more. `state` is its part of a gather for a snapshot. Returns when this
  // process may go; false: it may not, and all workers are told to stop.
  virtual Result<bool> leave(Clock clock, std::string state) = 0;

  // Returns memory for numbers to push. From there they reach processes of this machine with one
  // copy less, if possible.
  virtual std::shared_ptr<float[]> memory(std::size_t floats) = 0;

  // Returns the job's error, if it has failed, without waiting. On any thread.
  virtual Status status() const = 0;

  // Gives the table a ParallelFor for the work that this worker's thread does for a server in its
  // process. Without one that thread does all of it.
  virtual void share_out(ParallelFor parallel_for) = 0;
  // Sends pushes and returns at once, except for rows of a server in this process that no other
  // worker pushes: these have been updated on return, since only this thread would wait for it.
  // Values as in Client::push. Pushes given together leave in fewer writes than one by one.
  virtual void push(std::span<const Push> together) = 0;
  void push(const Push& one) { push(std::span(&one, 1)); }
  virtual void get(RowId row, Clock clock, Part part) = 0;
  // Tells the servers that this worker has waited long enough for others' pushes of these rows,
  // where it waits for the answer to its own: a scheme with a quorum merges without the rest.
  virtual void hurry(std::span<const RowId>) {}
  // Returns when these rows have arrived.
  virtual Status wait(std::span<const RowId> rows) = 0;
  // Returns whether these rows have arrived, without waiting.
  virtual bool has(std::span<const RowId> rows) = 0;
  // Returns the version of the row's numbers that arrived last; before any, the plan's start.
  virtual Version version(RowId row) = 0;

  // Asks the coordinator, or takes part in a round with all workers, as Topic describes. `clock`
  // must differ from round to round of a topic.
  virtual Result<std::string> ask(Topic topic, Clock clock, std::string body) = 0;
  // Sends without waiting (kOutputs, kReport, kPause).
  virtual void tell(Topic topic, Clock clock, std::string body) = 0;
  // Returns the answers to kOutputs since the last call: chief only.
  virtual std::vector<Answer> take_outputs() = 0;
  // Returns the account of the job that the coordinator told last: on the chief, after its kReport
  // and with the end of finish(). On any thread.
  virtual std::optional<AccountBody> account() const { return std::nullopt; }

  // ---- losses ----
  // Returns kInterrupted if a loss has stopped all workers and reunite() was not called since. Such
  // a loss is one of a process of a plan by which workers write rows for each other: none of them
  // can go on. Each wait for a row that has not come, start(), and each round but kBarrier then end
  // with the same error. On any thread.
  virtual Status interruption() const { return {}; }
  // Waits until all workers have been interrupted. Returns what each of them says, by worker ("":
  // it is lost), and how many processes of the plan are lost. From here on waits wait again, until
  // another loss; but no row that one worker writes comes any more.
  struct Reunion {
    std::uint32_t losses = 0;
    std::vector<std::string> said;
  };
  virtual Result<Reunion> reunite(std::string mine) {
    return Reunion{.losses = 0, .said = {std::move(mine)}};
  }
  // Waits, after reunite(), for what ends this generation: the same for all workers.
  virtual Result<Want> end_of_generation() { return Want::kRegroup; }

  // Waits, before iteration `clock` starts, while a pause is being agreed on. Returns what all do
  // now, after `clock` iterations.
  virtual Result<Want> start(Clock clock) = 0;

  // Ends the worker's part in order: all have finished when it returns.
  virtual Status finish(Clock clock) = 0;
  // Ends the job for all, because this worker met an error.
  virtual void abort(const Error& error) = 0;
  // Returns when the memory given to push() and create() is no longer read, nor will be. Call it
  // before that memory goes, unless the service went first. Afterwards only ask, tell and abort may
  // be called. If the job is not over, the others take this worker for lost, unless abort follows
  // at once.
  virtual void release() = 0;

  virtual Traffic traffic() const = 0;  // of the whole process
  // Returns the time of the monotonic clock by which this worker's times are measured: the
  // system's, or that of a simulation.
  virtual Instant now() const = 0;
  // Returns the staleness of this worker's pushes, and of the reads of any worker that the server
  // in this process answered (none without a server).
  virtual StalenessCounts staleness() const = 0;
};

// The transport of rows between processes of one machine: through memory if possible, or as to
// others.
enum class LocalTransport { kAuto, kTcp };

// The connections that are encrypted, by TLS 1.3 with a key that comes of the token: those between
// machines (a process refuses those in clear from other addresses than its machine's), all or none.
enum class Encrypt { kAuto, kAlways, kNever };
// The bytes of the shortest token that encrypts: one that is shorter could be guessed from a
// recorded handshake.
inline constexpr std::size_t kShortestToken = 16;

// The PEM files of a process that shows a certificate: it, with the CAs between if any; its key;
// the CAs whose certificates are accepted.
struct CertificateFiles {
  std::string certificate, key, authorities;
};
class Certificates;
// Reads the files. They are read again when they change: connections that are made then use what
// they hold then. Errors are kUsage, and name the file and what is wrong in it.
Result<std::shared_ptr<Certificates>> read_certificates(const CertificateFiles& files);

// Says whether a job outlives the loss of a process.
struct LossPolicy {
  bool goes_on = false;           // the others go on, where the plan permits it; false: all end
  std::uint32_t min_workers = 1;  // with fewer all stop, to be continued
};

// The order of sending. kArrival (FIFO) exists for comparison.
enum class Order { kPriority, kArrival };

struct ServiceOptions {
  Rank rank = 0;
  std::uint32_t processes = 1;
  // A job that goes on, with the rank that enroll() had for it. `processes` is then its rank plus
  // one.
  bool joins = false;
  // The job's processes come without ranks: process 0 hands out those from 1 to `processes` in the
  // order in which the others ask with enroll(), which waits for process 0 for as long as `start`.
  bool ranks_by_order = false;
  bool worker = true, server = true;
  std::string coordinator;          // "host:port" of process 0; unused there
  Rank coordinator_rank = 0;        // of the process that is there, if another took its place
  std::vector<std::string> others;  // addresses of processes that enroll() asks, too
  std::string bind = "127.0.0.1";   // address to listen on
  std::uint16_t port = 0;           // 0: a free one
  std::string advertise;            // "host:port" or "host" told to others; empty: `bind`
  std::string host;                 // for people
  std::string token;                // of the job; the same on all
  // The key by which this process claims its rank, the same for enroll() and the service; null: the
  // service draws one.
  std::shared_ptr<const SigningKey> key{};
  std::string configuration;         // net, solver and scheme as text
  std::uint64_t seed = 0;            // the job's, if this is process 0
  std::optional<SchemeSpec> scheme;  // the plan's, for the coordinator of process 0
  LossPolicy losses{};               // for the coordinator of process 0
  int threads = 1;                   // for input and output
  Order order = Order::kPriority;    // of a worker's pushes and of a server's answers
  // Called in process 0, on a thread for input and output, with each round that ends, as in
  // Pacer::take_round.
  std::function<void(const std::string&)> on_round{};
  // Bytes a link hands to the system ahead: the most that an urgent row waits for.
  std::size_t window = 512 * 1024;
  Encrypt encrypt = Encrypt::kAuto;
  // Both ends of an encrypted connection show a certificate, beside their proof of the token; null:
  // the token is the key. All processes do the same.
  std::shared_ptr<Certificates> certificates{};
  // Under a throttle: kTcp.
  LocalTransport local_transport = LocalTransport::kAuto;
  // Bytes a second each way that this process may send and receive; 0: no limit. For trials.
  double throttle = 0;
  milliseconds start{300'000};   // all must have joined
  milliseconds connect{10'000};  // one attempt to connect
  milliseconds reconnect{800};   // a broken connection must be back
  // A silent peer is named, is given up.
  milliseconds stall_warn{10'000}, stall_abort{60'000};
};
// Returns "", or the first thing wrong, in words.
std::string validate(const ServiceOptions& options);
// The place of a process that joins in its job.
struct Enrolment {
  Rank rank = 0, coordinator_rank = 0;
  std::string coordinator;  // where that process is
};
// Asks the job's process 0 for a rank, for a process that is to join while the job trains, or one
// of those it begins with if they come without ranks; token, coordinator and times as in the
// options. A job that trains may be asked at any of its processes. The rank belongs to options.key,
// which is not null. An error says why there is no rank: no process there, another token.
Result<Enrolment> enroll(const ServiceOptions& options);

// The wish of a server alone: a snapshot or a stop of the whole job, never kRegroup; or to leave,
// as it does when its rows are elsewhere. If it cannot be spared all stop.
struct Wish {
  Want want = Want::kNothing;
  bool leaves = false;
};

// The table service in one process of a job: the listener, the coordinator in process 0, a shard in
// servers, a Table in workers.
class Service {
 public:
  // Listens, finds the coordinator (trying again until `start` has passed: the order of starting
  // does not matter), joins, and returns when all processes have. Errors name the
  // processes that are missing, or why this one was refused.
  static Result<std::unique_ptr<Service>> create(const ServiceOptions& options);
  // Ends the connections of a finished job in order: messages already sent still arrive. If the job
  // is not over, the others take this process for lost, as if killed.
  virtual ~Service() = default;
  virtual const RosterBody& roster() const = 0;
  virtual std::uint16_t port() const = 0;  // listened on
  // Returns the worker's table; null in a process that is a server alone.
  virtual Table* table() = 0;
  // Runs a server alone until the job is done or failed. Calls `wish` a few times a second, until
  // the server is to leave, or all are to stop and be continued.
  virtual Status serve(const std::function<Wish()>& wish) = 0;
  // Returns whether this process has left the job, which goes on.
  virtual bool left() const = 0;
  // Returns whether the job, of which this server alone was a part, has stopped and is to be
  // continued.
  virtual bool requeued() const = 0;
  // Returns the addresses of the processes of a job that has removed this one and goes on without
  // it, where it can join anew once this service is gone. Empty: the job did not remove it.
  virtual std::vector<std::string> where_to_rejoin() const = 0;
};

}  // namespace shoal::table
