#include "shoal/table/coordinator/membership.h"

#include "shoal/base/try.h"
#include "shoal/table/coordinator/difference.h"

namespace shoal::table {

// ---- joining ----

Status Membership::join(Rank rank, const Ask& ask) {
  Result<JoinBody> body = decode<JoinBody>(ask.body);
  TRY(body);
  if (body.value().rank != rank)
    return broken("the process of rank ", rank, " asks to join as rank ", body.value().rank);
  if (ended_) {
    job_.members.say(rank, Refuse{ended_->code, "the job has ended: " + ended_->message});
    return {};
  }
  if (rank < job_.members.size() && job_.members[rank].joined) return join_again(rank, ask);
  if (const Status status = may_join(rank, body.value()); !status.ok()) {
    refuse(rank, status.error());
    return {};
  }
  job_.members[rank].joined = true;
  job_.members[rank].incarnation = ask.clock;
  job_.members[rank].body = std::move(body).value();
  if (roster_) {
    join_late(rank);
    return {};
  }
  if (!missing().empty()) return {};
  if (const std::string reason = why_not_all(); reason.empty())
    begin();
  else
    refuse(rank, Error{Code::kUsage, reason});
  return {};
}

// Joins a process after the job has begun, which goes on as it is until all workers are at the ends
// of their tasks.
void Membership::join_late(Rank rank) {
  if (finished_) {
    job_.members[rank].joined = false;
    job_.members[rank].left = true;
    return refuse(rank, broken("the job is done: there is nothing left to join"));
  }
  want_next(job_.members.name(rank) + " joins");
}

// Handles a second Join. From the process that joined, it is a repeat; from another, a mistake that
// ends a job which has not begun.
Status Membership::join_again(Rank rank, const Ask& ask) {
  if (job_.members[rank].incarnation == ask.clock) {
    if (in_roster(rank)) job_.members.say(rank, roster_answer(rank));
    if (finished_ && job_.members[rank].serves()) job_.members.say(rank, finished_directive());
    return {};
  }
  const std::string host = decode<JoinBody>(ask.body).value().host,
                    before = job_.members[rank].body.host;
  Error error =
      host == before
          ? broken("a second process says that it is rank ", rank, ", on the same host ", host,
                   ": either two have the same --client_id, or it was started again; a job "
                   "goes on only with the processes it began with")
          : broken("two processes say that they are rank ", rank, ", on hosts ", before, " and ",
                   host, "; each needs its own --client_id");
  if (!roster_) end(error, kNoRank);
  return error;
}

// Returns whether this process can be part of the job.
Status Membership::may_join(Rank rank, const JoinBody& body) const {
  const std::string self = str("rank ", rank, body.host.empty() ? "" : " (host " + body.host + ")");
  if (rank >= job_.members.size())
    return table::broken(self, " is outside the job, which has ranks 0 to ",
                         job_.members.size() - 1, "; is --num_clients the same everywhere?");
  if (!body.worker && !body.server) return table::broken(self, " is neither worker nor server");
  const auto [own, machines] = parted(body.configuration);
  for (const Rank other : job_.members.here()) {
    const JoinBody& theirs = job_.members[other].body;
    const auto [common, others] = parted(roster_ ? configuration_ : theirs.configuration);
    if (common != own)
      return Error{Code::kConfig, difference(self, own, job_.members.name(other), common)};
    if (machines != others && !machines.empty() && !others.empty())
      return Error{Code::kUsage, difference(self, machines, job_.members.name(other), others,
                                            "has a machinefile")};
    if (theirs.server && body.server && !body.address.empty() && theirs.address == body.address)
      return table::broken(self, " and ", job_.members.name(other),
                           " both say that they are reached at ", body.address,
                           "; each needs a port of its own and an address that others can reach");
  }
  return {};
}

// Returns why these processes are no job; "" if they are one.
std::string Membership::why_not_all() const {
  const auto count = [&](bool JoinBody::*role) {
    return job_.members.which([&](const Member& member) { return member.body.*role; }).size();
  };
  if (count(&JoinBody::server) == 0)
    return str("zero servers: all ", job_.members.size(),
               " processes have role=worker, and no process holds the weights");
  if (count(&JoinBody::worker) == 0)
    return str("zero workers: all ", job_.members.size(),
               " processes have role=server, and no process trains");
  return {};
}

void Membership::begin() {
  configuration_ = job_.members[0].body.configuration;  // equal on all
  for (Rank rank = 0; rank < job_.members.size(); ++rank)
    job_.members[rank].body.configuration.clear();
  roster_ = job_.regrouping.first(seed_);
  job_.participation.regroup(*roster_, {});
  for (const Rank rank : job_.members.here()) job_.members.say(rank, roster_answer(rank));
  job_.pacing.go_on();
}

Result<std::string> Membership::next_generation(const Rounds::Round& round) {
  std::map<Rank, SegmentBody> ends;
  for (const auto& [rank, bytes] : round) {
    Result<SegmentBody> end = decode<SegmentBody>(bytes);
    if (!end.ok()) return job_.members.broken(rank, " sends ", end.error().message);
    if (const std::string wrong =
            rank == round.begin()->first ? job_.regrouping.why_not(end.value()) : "";
        !wrong.empty())
      return job_.members.broken(rank, " sends ", wrong);
    ends[rank] = std::move(end).value();
  }
  const bool is_in_vain = std::exchange(is_in_vain_, false);
  has_begun_ = has_begun_ || !is_in_vain;
  const std::vector<Rank> new_ones = has_begun_ ? newcomers() : std::vector<Rank>();
  const std::vector<Rank> leaving =
      job_.members.which([](const Member& member) { return member.leaving && !member.left; });
  roster_ = job_.regrouping.next(ends, has_begun_,
                                 [this](Rank rank) { return job_.stragglers.seconds(rank); });
  for (const Rank rank : leaving) let_go(rank);
  job_.rounds.begin_generation();
  tolerances_.reset();
  if (!is_in_vain) lost_early_.clear();
  silent_.clear();
  job_.participation.regroup(*roster_, ends);
  job_.norms.begin_generation(roster_->generation);
  job_.agreement.begin_generation(roster_->measures);
  const std::string body = encode(*roster_);
  for (const Rank rank : new_ones) {
    job_.members[rank].body.configuration.clear();
    job_.members.say(rank, roster_answer(rank));
    if (!job_.members[rank].works()) continue;
    job_.outputs.admit(rank, roster_->processes[rank].clock);
    job_.agreement.admit(rank, roster_->processes[rank].clock);
  }
  for (const Rank server : job_.members.servers())
    if (!job_.members[server].works() && std::ranges::count(new_ones, server) == 0)
      job_.members.say(server,
                       Answer{Topic::kRegroup, static_cast<Clock>(roster_->generation), body});
  holds_newcomers_ = !has_begun_;
  return body;
}

// ---- leaving ----

Status Membership::leave(Rank rank, const Ask& ask) {
  Result<LeaveBody> body = decode<LeaveBody>(ask.body);
  if (!body.ok()) return job_.members.broken(rank, " sends ", body.error().message);
  Member& member = job_.members[rank];
  // The others learn of it when the next generation begins.
  const bool asks = body.value().at_end || !member.works();
  if (const std::string why = finished_ ? "" : why_it_stays(rank); !why.empty()) {
    if (!std::exchange(member.told_to_leave, true))
      job_.members.warn(str(job_.members.name(rank), " is told to leave, and ", why,
                            ": the whole job stops, to be continued"));
    job_.agreement.want(Want::kRequeue);
    if (asks) job_.members.say(rank, Answer{Topic::kLeave, ask.clock, encode_may_leave(false)});
    return {};
  }
  if (asks) member.asks_to_leave = ask.clock;
  if (finished_) {
    let_go(rank);
    return {};
  }
  const bool is_new = !std::exchange(member.leaving, true);
  if (body.value().at_end && !member.done) {
    if (job_.rounds.waits(rank))
      return broken(job_.members.name(rank) + " leaves while it waits in a round");
    job_.pacing.leave_undone(rank, ask.clock);
    job_.pacing.stop_asking(rank, true);
    job_.rounds.stand_in(rank, std::move(body.value().state));
    take_out(rank);
    if (!member.serves()) let_go(rank);
  }
  if (is_new) want_next(job_.members.name(rank) + " leaves");
  return {};
}

// Returns "" if the process may leave.
std::string Membership::why_it_stays(Rank rank) const {
  if (rank == coordinator_ && !has_standby_) return "it coordinates the job, and has no standby";
  const auto others = job_.members.which([&](const Member& member) {
    return member.works() && !member.leaving && &member != &job_.members[rank];
  });
  return others.empty() ? "no other worker would train" : "";
}

// Lets the process end: its rows, if it had any, are elsewhere, and no process waits for it.
void Membership::let_go(Rank rank) {
  Member& member = job_.members[rank];
  member.left = true;
  for (const Rank other : job_.members.here())
    if (other != rank)
      job_.members.say(
          other,
          Directive{.kind = DirectiveKind::kLeft, .clock = static_cast<Clock>(rank), .text = {}});
  if (member.asks_to_leave)
    job_.members.say(rank, Answer{Topic::kLeave, *member.asks_to_leave, encode_may_leave(true)});
}

Status Membership::done(Rank rank, const Ask& ask) {
  if (job_.members[rank].done) {
    if (finished_) job_.members.say(rank, Answer{Topic::kDone, ask.clock, {}});
    return {};
  }
  if (job_.rounds.waits(rank))
    return job_.members.broken(rank, " is done while it waits in a round");
  if (job_.pacing.waits(rank))
    return job_.members.broken(rank, " is done while it waits for the start of a task");
  done_at_[rank] = ask.clock;
  job_.participation.done(rank, ask.clock);
  job_.agreement.ended(ask.clock);
  take_out(rank);
  if (job_.members.active().empty()) finish();
  return {};
}

// Takes out a worker that takes part in nothing more.
void Membership::take_out(Rank rank) {
  job_.members[rank].done = true;
  job_.agreement.close();
  job_.rounds.close();
  job_.outputs.close();
  job_.pacing.leave(rank);
}

void Membership::finish() {
  finished_ = true;
  job_.participation.finish();
  for (const Rank rank : newcomers()) join_late(rank);
  for (const Rank rank : job_.members.which([](const Member& member) {
         return member.asks_to_leave && member.done && !member.left;
       }))
    let_go(rank);
  for (const auto& [rank, clock] : done_at_) {
    if (rank == job_.members.chief()) tell_account(rank, clock);
    job_.members.say(rank, Answer{Topic::kDone, clock, {}});
  }
  for (const Rank server : job_.members.servers()) job_.members.say(server, finished_directive());
}

void Membership::end(Error error, Rank but) {
  if (ended_ || finished_) return;
  for (const Rank rank : job_.members.here())
    if (rank != but)
      job_.members.say(
          rank,
          Directive{.kind = DirectiveKind::kAbort, .code = error.code, .text = error.message});
  ended_ = std::move(error);
}

// ---- losses ----

Status Membership::tolerances(Rank rank, const Ask& ask) {
  if (job_.members[rank].worker != 0)
    return job_.members.broken(
        rank, " sends the losses that its plan tolerates, which only worker 0 may send");
  Result<TolerancesBody> body = decode<TolerancesBody>(ask.body);
  TRY(body);
  if (static_cast<Generation>(ask.clock) != roster_->generation) return {};
  tolerances_ = std::move(body).value();
  job_.norms.set_copies(tolerances_->copies);
  if (interrupts() && has_lost_early()) job_.rounds.interrupt();
  for (const auto& [lost, error] : std::exchange(lost_early_, {}))
    if (const std::string ends = why_it_ends_all(lost); !ends.empty())
      end({error.code, lost_words(lost, error.message, ends)}, lost);
  return {};
}

// Returns "" if the job can go on without the process; else why it ends.
std::string Membership::why_it_ends_all(Rank rank) const {
  if (!bears_.goes_on) return "on_lost is STOP";
  const Member& member = job_.members[rank];
  if (member.active() && job_.members.active().size() == 1 && !any_done())
    return "no other worker would train";
  if (!tolerances_) return "";  // the plan will show it
  return tolerances_->why_none;
}

// Returns which rows are on no server any more without this one, in words; "" if none are.
std::string Membership::rows_lost_with(Rank rank) const {
  if (!tolerances_ || tolerances_->copies == 0) return "";
  const std::vector<Rank> servers = job_.members.servers();
  for (std::size_t s = 0; s < servers.size() && job_.members[rank].serves(); ++s) {
    const Rank next = servers[(s + 1) % servers.size()];
    const bool has_rows = servers[s] == rank || job_.members[servers[s]].left,
               has_copies = next == rank || job_.members[next].left;
    if (servers[s] != rank && next != rank) continue;
    if (tolerances_->copies < 2 || next == servers[s]) {
      if (servers[s] == rank) return "its params have no second copy (copies: 1)";
    } else if (has_rows && has_copies) {
      return str("the params of ", job_.members.name(servers[s]), " were copied on ",
                 job_.members.name(next), ", and both are lost");
    }
  }
  return "";
}

void Membership::lose(Rank rank, Code code, const std::string& why, bool may_go_on) {
  const bool known = rank < job_.members.size();
  if (known && job_.members[rank].left) return;
  if (known && !job_.members.is_founding(rank) && !in_roster(rank)) {  // it had not joined yet
    if (job_.members[rank].joined)
      job_.members.warn(str(job_.members.name(rank), " wanted to join, and does not: ", why));
    job_.members[rank].left = true;
    return;
  }
  const bool may =
      may_go_on && known && roster_ && job_.members[rank].joined && !finished_ && !ended_;
  if (may && !proves_end(why)) silent_.insert(rank);
  if (may && is_cut_off(rank))
    return end(
        {Code::kRequeue,
         str("lost ", job_.members.name(rank), ": ", why, " Half or more of the processes are ",
             "silent, and may go on without these: this side of the network ends, and can "
             "join the others again.")},
        kNoRank);
  const std::string ends = may ? why_it_ends_all(rank) : "";
  if (!may || !ends.empty()) {
    const bool says = may && bears_.goes_on;
    return end({code, lost_words(rank, why, says ? ends : "")}, rank);
  }
  if (!tolerances_) lost_early_.emplace(rank, Error{code, why});
  job_.participation.lose(rank, {code, why}, tolerances_ && tolerances_->interrupts,
                          job_.regrouping.scheme());
  go_on_without(rank, why);
}

// Returns whether less than half of the processes of the generation that may be alive are here,
// when this one is lost.
bool Membership::is_cut_off(Rank rank) const {
  std::size_t here = 0, alive = 0;
  for (const RosterBody::Process& process : roster_->processes) {
    if (!in_roster(process.rank)) continue;
    const bool is_here = process.rank != rank && job_.members[process.rank].here();
    here += is_here ? 1 : 0;
    alive += is_here || silent_.contains(process.rank) ? 1 : 0;
  }
  return silent_.contains(rank) && 2 * here < alive;
}

std::string Membership::lost_words(Rank rank, const std::string& why,
                                   const std::string& ends) const {
  return str("lost ", job_.members.name(rank), ": ", why,
             ends.empty() ? "" : " The job cannot go on without it: " + ends + ".");
}

// Counts the process out at once, and takes it from the members when the next generation begins.
void Membership::go_on_without(Rank rank, const std::string& why) {
  const std::string name = job_.members.name(rank);
  job_.members.warn(str("lost ", name, ": ", why, " The job goes on without it."));
  if (const std::string rows = rows_lost_with(rank); !rows.empty())
    job_.members.warn(str(rows,
                          ": workers go on from what they have read last of these, and with "
                          "the histories of the last snapshot, or zeros"));
  for (const Rank other : job_.members.here())
    job_.members.say(
        other,
        Directive{.kind = DirectiveKind::kLost, .clock = static_cast<Clock>(rank), .text = why});
  Member& member = job_.members[rank];
  member.leaving = member.left = true;
  job_.norms.close();
  if (begins_with(rank)) {
    job_.members.warn(name + " had not yet given the servers the params: the next worker does");
    is_in_vain_ = true;
    job_.rounds.end_in_vain();
  }
  job_.rounds.forget(rank);
  if (interrupts()) job_.rounds.interrupt();
  if (member.active()) {
    job_.pacing.lose(rank);
    take_out(rank);
  }
  if (job_.members.active().empty()) return finish();
  if (job_.members.active().size() < bears_.min_workers) {
    job_.members.warn(str(job_.members.active().size(), " workers are left, and min_workers is ",
                          bears_.min_workers, ": the job stops, to be continued"));
    return job_.agreement.want(Want::kRequeue);
  }
  want_next(name + " is lost");
}

}  // namespace shoal::table
