// Tracks membership and job-wide agreements. Runs in process 0. A pure state machine: messages in,
// messages out.
//
// Every Ask may be repeated: it counts once, and an answer that was given already is given again.
// Clocks of a topic rise with a worker's rounds; a repeat from before its last round is ignored. A
// worker waits in one round (barrier, sum, gather, share) or for one start of a task at a time.
// Workers that are done take part in no further round, and no task waits for them. When no worker
// can go on, because they wait in different places, all are told to end, and why.
#pragma once

#include "shoal/table/coordinator/membership.h"

namespace shoal::table {

struct CoordinatorOptions {
  std::uint32_t processes = 1;  // that are to join
  std::uint64_t seed = 0;       // of the job
  bool ranks_by_order = false;  // enroll() begins with the ranks of these, from 1
  // The scheme whose pacer answers kBegin and kJudge. Without one every task may start at once,
  // with one step, and counts.
  std::optional<SchemeSpec> scheme{};
  SchemeMaker maker = &SchemeSpec::make;
  LossPolicy losses{};
  Instant silence{};  // after which a process that says nothing is lost
};

// Passes each question of a worker to the part that answers it.
class Coordinator {
 public:
  explicit Coordinator(const CoordinatorOptions& options);

  // Takes a message of the process with this rank. A Join's Ask carries the incarnation of its
  // process as clock, and in its address a host (what drives this knows where the connection
  // comes from). A Join that cannot be (another configuration: said with the first differing line
  // and both its values; a rank outside the job; no server or no worker at all) is answered by a
  // Refuse to it and, while not all have joined, an Abort to those who have. An error is a broken
  // protocol, or a rank that another process has: the connection is to end with it. `now` never
  // goes back.
  Status handle(Rank rank, const Message& message, Instant now, std::vector<Dispatch>& out);
  // Returns the rank for a process that is to join a job that goes on (or is about to begin), and
  // asks to with that rank. It is answered when the next generation begins, which its request
  // causes; until then the job goes on without it if it is lost. A Join that cannot be is refused,
  // without other effects. With ranks_by_order, the first ranks are of processes that the job waits
  // for. `key`: of the process, as in its Join.
  Rank enroll(const PublicKey& key = {}) { return job_.members.enroll(key); }
  // Returns the key of the process with this rank; zeros: it is not known.
  PublicKey key_of(Rank rank) const {
    return rank < job_.members.size() ? job_.members[rank].body.key : PublicKey{};
  }
  std::uint32_t processes() const { return job_.members.size(); }  // that have a rank
  // Notes that the process is lost, or was silent too long. All others get a message that names its
  // rank, host, last clock and `why`: an end of the job, or, if losses permit it, a kLost, and the
  // job goes on to its next generation. Each gets it once, and none after the job is done.
  void lost(Rank rank, Code code, const std::string& why, Instant now, std::vector<Dispatch>& out);
  // Notes which process holds this coordinator, and whether another could take its place: it may
  // leave then.
  void coordinates(Rank rank, bool has_standby) { membership_.coordinates(rank, has_standby); }
  // Notes the last clock heard of a process, for messages.
  void heard(Rank rank, Clock clock) { job_.members.heard(rank, clock); }
  // Returns it; -1: none was heard.
  Clock heard(Rank rank) const {
    return rank < job_.members.size() ? job_.members[rank].clock : -1;
  }

  // These are as in Membership.
  const RosterBody* roster() const { return membership_.roster(); }
  std::vector<Rank> missing() const { return membership_.missing(); }
  bool finished() const { return membership_.finished(); }
  const Error* ended() const { return membership_.ended(); }
  // Names the processes that have not answered: "barrier 500: waiting for rank 2 (host b, last
  // clock 498)"; "" if all have.
  std::string waiting_for();
  // Returns lines for the log since the last call: stragglers, outputs that were averaged without
  // some worker, and the pacer's remarks.
  Lines take_warnings() { return job_.members.take_warnings(); }
  // As in Pacer.
  std::string take_round() { return job_.pacing.take_round(); }

  // Writes all that the coordinator knows, between two calls.
  std::string save();
  // Takes what another, made with the same options, has saved: from then on both answer the same
  // calls alike. An error: the bytes are not of this build, or of another scheme.
  Status load(std::string_view state);

 private:
  Status handle(Rank rank, const Message& message);
  Status ask(Rank rank, const Ask& ask);
  Status check(Rank rank, const Ask& ask);
  Status next_scheme(Rank rank, const Ask& ask);
  void abort(Rank rank, const Directive& directive);
  void take_part(Rank rank, const Ask& ask);
  Status report(Rank rank, const Ask& ask);
  void look_for_training() {
    if (!roster() || !job_.rounds.is_past(rows_exist(roster()->generation))) return;
    job_.participation.train();
    membership_.begun();
  }
  void state(auto& io) {
    io(scheme_generation_, paced_, job_.members, job_.outputs, job_.regrouping, job_.agreement,
       job_.rounds, job_.norms, job_.stragglers, job_.participation, membership_);
  }
  bool is_to_stop(Rank rank);
  std::optional<Error> stuck();

  JobParts job_;
  Membership membership_;
  const SchemeMaker maker_;
  Clock scheme_generation_ = -1;     // the last that worker 0 said
  std::optional<SchemeSpec> paced_;  // the scheme whose pacer decides
};

}  // namespace shoal::table
