// Decides which processes take part in a job: they join before it begins or while it goes on, are
// done, leave, or are lost. Keeps the roster of the generation.
#pragma once

#include "shoal/table/coordinator/norms.h"
#include "shoal/table/coordinator/outputs.h"
#include "shoal/table/coordinator/pacing.h"
#include "shoal/table/coordinator/participation.h"
#include "shoal/table/coordinator/regrouping.h"
#include "shoal/table/coordinator/rounds.h"
#include "shoal/table/coordinator/stragglers.h"
#include "shoal/table/table.h"

namespace shoal::table {

// The parts of a coordinator, each of which settles one matter of the same members of a job.
struct JobParts {
  // `silence`: as in Participation. `next` begins the next generation, when all workers are at the
  // ends of their parts.
  JobParts(std::uint32_t processes, Instant silence, Rounds::Regroup next)
      : members(processes),
        rounds{members, agreement, std::move(next)},
        participation{members, silence} {}
  JobParts(const JobParts&) = delete;

  Members members;
  Outputs outputs{members};
  Regrouping regrouping{members};
  Agreement agreement{members, regrouping.scheme()};
  Rounds rounds;
  Norms norms{members};
  Stragglers stragglers{members};
  Pacing pacing{members};
  Participation participation;
};

class Membership {
 public:
  // `bears`: which losses the job is to survive.
  Membership(JobParts& job, std::uint64_t seed, const LossPolicy& bears)
      : job_(job), seed_(seed), bears_(bears) {}

  Status join(Rank rank, const Ask& ask);
  Status leave(Rank rank, const Ask& ask);
  // Notes that the worker has finished its part of the job.
  Status done(Rank rank, const Ask& ask);
  // Notes that the process is lost. All others go on without it, if they may, or end.
  void lose(Rank rank, Code code, const std::string& why, bool may_go_on = true);
  Status tolerances(Rank rank, const Ask& ask);
  // Notes which process coordinates, and whether another could take its place.
  void coordinates(Rank rank, bool has_standby) {
    coordinator_ = rank;
    has_standby_ = has_standby;
  }
  // Tells all that have joined, `but` one, that the job ends now.
  void end(Error error, Rank but);
  // Requests another generation for all.
  void want_next(const std::string& why) {
    if (job_.regrouping.want(why)) job_.agreement.want(Want::kRegroup);
  }
  // Notes that the servers have the params of this generation: those that have come meanwhile join.
  void begun() {
    if (!std::exchange(holds_newcomers_, false)) return;
    for (const Rank rank : newcomers()) want_next(job_.members.name(rank) + " joins");
  }
  // Returns the next roster's bytes.
  Result<std::string> next_generation(const Rounds::Round& round);

  // Returns whether the process has joined a generation; it may have left since.
  bool in_roster(Rank rank) const {
    if (!roster_ || rank >= roster_->processes.size()) return false;
    return roster_->processes[rank].worker >= 0 || roster_->processes[rank].server >= 0;
  }
  // Returns the ranks that are to join before the job begins.
  std::vector<Rank> missing() const {
    std::vector<Rank> ranks =
        job_.members.which([](const Member& member) { return !member.joined; });
    std::erase_if(ranks, [this](Rank rank) { return !job_.members.is_founding(rank); });
    return ranks;
  }
  // Returns null until all have joined.
  const RosterBody* roster() const { return roster_ ? &*roster_ : nullptr; }
  bool finished() const { return finished_; }  // every worker is done
  // Returns why the job was ended for all; null if it was not.
  const Error* ended() const { return ended_ ? &*ended_ : nullptr; }
  Rank coordinator() const { return coordinator_; }  // the process that holds this one
  bool any_done() const { return !done_at_.empty(); }
  // Tells the chief how useful the job's compute was so far.
  void tell_account(Rank chief, Clock clock) {
    job_.members.say(chief, Answer{Topic::kReport, clock, encode(job_.participation.account())});
  }
  void state(auto& io) {
    io(seed_, bears_.goes_on, bears_.min_workers, coordinator_, has_standby_, tolerances_,
       is_in_vain_, has_begun_, holds_newcomers_, lost_early_, silent_, roster_, configuration_,
       ended_, finished_, done_at_);
  }

 private:
  // Returns the processes that have joined since the generation began.
  std::vector<Rank> newcomers() const {
    return job_.members.which(
        [this](const Member& member) { return member.here() && !in_roster(member.body.rank); });
  }
  void join_late(Rank rank);
  Status join_again(Rank rank, const Ask& ask);
  Status may_join(Rank rank, const JoinBody& body) const;
  std::string why_not_all() const;
  void refuse(Rank rank, const Error& error) {
    job_.members.say(rank, Refuse{error.code, error.message});
    // The process joins a running job, which does not wait for it.
    const bool has_enrolled = rank < job_.members.size() && !job_.members.is_founding(rank);
    if (!roster_ && !has_enrolled) end(error, rank);
  }
  void begin();
  std::string why_it_stays(Rank rank) const;
  std::string why_it_ends_all(Rank rank) const;
  std::string rows_lost_with(Rank rank) const;
  // Returns whether the process is the chief, and the servers have no params of it yet.
  bool begins_with(Rank rank) const {
    return job_.members[rank].worker == 0 && !job_.rounds.is_past(rows_exist(roster_->generation));
  }
  // Returns whether a loss interrupts the rounds, as they are not at their end anyway.
  bool interrupts() const { return tolerances_ && tolerances_->interrupts && !is_in_vain_; }
  // Returns whether one of this generation was lost before its plan was known.
  bool has_lost_early() const {
    return std::ranges::any_of(lost_early_,
                               [this](const auto& lost) { return in_roster(lost.first); });
  }
  bool is_cut_off(Rank rank) const;
  void let_go(Rank rank);
  void take_out(Rank rank);
  void go_on_without(Rank rank, const std::string& why);
  std::string lost_words(Rank rank, const std::string& why, const std::string& ends) const;
  void finish();
  Directive finished_directive() const {
    return {.kind = DirectiveKind::kFinished,
            .want = job_.agreement.requeues() ? Want::kRequeue : Want::kNothing,
            .text = {}};
  }
  Answer roster_answer(Rank rank) const {
    return {Topic::kJoin, job_.members[rank].incarnation, encode(*roster_)};
  }

  JobParts& job_;
  std::uint64_t seed_;
  LossPolicy bears_;
  std::optional<TolerancesBody> tolerances_;  // of the present generation, once known
  std::map<Rank, Error> lost_early_;          // before that
  bool is_in_vain_ = false;                   // it has lost its chief before it could begin
  bool has_begun_ = false;                    // some generation has; until then no process joins
  bool holds_newcomers_ = false;              // until this one has
  std::set<Rank> silent_;                     // lost in this generation, but perhaps alive
  Rank coordinator_ = 0;
  bool has_standby_ = false;
  std::optional<RosterBody> roster_;
  std::string configuration_;  // of all
  std::optional<Error> ended_;
  bool finished_ = false;
  std::map<Rank, Clock> done_at_;  // clocks of kDone, by rank
};

}  // namespace shoal::table
