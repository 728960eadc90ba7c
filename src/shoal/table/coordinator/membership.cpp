#include "shoal/table/coordinator/membership.h"

#include <algorithm>
#include <utility>

#include "shoal/base/text.h"
#include "shoal/table/coordinator/difference.h"

namespace shoal::table {

// ---- joining ----

Status Membership::join(std::uint32_t rank, const Ask& ask, Instant now,
                        std::vector<Dispatch>& out) {
  Result<JoinBody> body = decode_join(ask.body);
  if (!body.ok()) return body.error();
  if (body.value().rank != rank)
    return broken("the process of rank ", rank, " asks to join as rank ", body.value().rank);
  if (ended_) {
    out.push_back({rank, Refuse{ended_->code, "the job has ended: " + ended_->message}});
    return {};
  }
  if (rank < members_.size() && members_[rank].joined) return join_again(rank, ask, out);
  if (const std::string reason = why_not(rank, body.value()); !reason.empty()) {
    refuse(rank, reason, out);
    return {};
  }
  members_[rank].joined = true;
  members_[rank].incarnation = ask.clock;
  members_[rank].body = std::move(body).value();
  if (roster_) {
    join_late(rank, out);
    return {};
  }
  for (std::uint32_t other = 0; other < members_.size(); ++other)
    if (members_.is_founding(other) && !members_[other].joined) return {};
  if (const std::string reason = why_not_all(); reason.empty())
    begin(now, out);
  else
    refuse(rank, reason, out);
  return {};
}

// The job has begun. It goes on as it is until all workers are at the ends of their tasks.
void Membership::join_late(std::uint32_t rank, std::vector<Dispatch>& out) {
  if (finished_) {
    members_[rank].joined = false;
    members_[rank].left = true;
    return refuse(rank, "the job is done: there is nothing left to join", out);
  }
  want_next(members_.name(rank) + " joins", out);
}

// Takes part, or did before it left.
bool Membership::in_roster(std::uint32_t rank) const {
  if (!roster_ || rank >= roster_->processes.size()) return false;
  return roster_->processes[rank].worker >= 0 || roster_->processes[rank].server >= 0;
}

// From the process that joined, it is a repeat; from another, a mistake that ends a job which has
// not begun.
Status Membership::join_again(std::uint32_t rank, const Ask& ask, std::vector<Dispatch>& out) {
  if (members_[rank].incarnation == ask.clock) {
    if (in_roster(rank)) out.push_back({rank, roster_answer(rank)});
    if (finished_ && members_[rank].server >= 0)
      out.push_back({rank, Directive{.kind = DirectiveKind::kFinished, .text = {}}});
    return {};
  }
  const std::string host = decode_join(ask.body).value().host, before = members_[rank].body.host;
  Error error =
      host == before
          ? broken("a second process says that it is rank ", rank, ", on the same host ", host,
                   ": either two have the same --client_id, or it was started again; a job "
                   "goes on only with the processes it began with")
          : broken("two processes say that they are rank ", rank, ", on hosts ", before, " and ",
                   host, "; each needs its own --client_id");
  if (!roster_) end(error, kNoOne, out);
  return error;
}

// Why this process cannot be part of the job; "" if it can.
std::string Membership::why_not(std::uint32_t rank, const JoinBody& body) const {
  const std::string self = str("rank ", rank, body.host.empty() ? "" : " (host " + body.host + ")");
  if (rank >= members_.size())
    return str(self, " is outside the job, which has ranks 0 to ", members_.size() - 1,
               "; is --num_clients the same everywhere?");
  if (!body.worker && !body.server) return self + " is neither worker nor server";
  for (const std::uint32_t other : members_.here()) {
    const JoinBody& theirs = members_[other].body;
    const std::string& common = roster_ ? configuration_ : theirs.configuration;
    if (common != body.configuration)
      return difference(self, body.configuration, members_.name(other), common);
    if (theirs.server && body.server && !body.address.empty() && theirs.address == body.address)
      return str(self, " and ", members_.name(other), " both say that they are reached at ",
                 body.address,
                 "; each needs a port of its own and an address that others can reach");
  }
  return {};
}

// Why these processes are no job; "" if they are one.
std::string Membership::why_not_all() const {
  const auto count = [&](bool JoinBody::*role) {
    return members_.which([&](const Member& member) { return member.body.*role; }).size();
  };
  if (count(&JoinBody::server) == 0)
    return str("zero servers: all ", members_.size(),
               " processes have role=worker, and no process holds the weights");
  if (count(&JoinBody::worker) == 0)
    return str("zero workers: all ", members_.size(),
               " processes have role=server, and no process trains");
  return {};
}

void Membership::refuse(std::uint32_t rank, const std::string& reason, std::vector<Dispatch>& out) {
  out.push_back({rank, Refuse{Code::kPeer, reason}});
  if (!roster_) end({Code::kPeer, reason}, rank, out);
}

void Membership::begin(Instant now, std::vector<Dispatch>& out) {
  configuration_ = members_[0].body.configuration;  // equal on all
  for (std::uint32_t rank = 0; rank < members_.size(); ++rank)
    members_[rank].body.configuration.clear();
  roster_ = parts_.regrouping.first(seed_);
  for (const std::uint32_t rank : members_.here()) out.push_back({rank, roster_answer(rank)});
  parts_.pacing.go_on(now, out);
}

// All workers are at the ends of their parts of a generation.
Result<std::string> Membership::next_generation(const Rounds::Round& round,
                                                std::vector<Dispatch>& out) {
  std::map<std::uint32_t, SegmentBody> ends;
  for (const auto& [rank, bytes] : round) {
    Result<SegmentBody> end = decode_segment(bytes);
    if (!end.ok()) return members_.broken(rank, " sends ", end.error().message);
    if (const std::string wrong =
            members_[rank].worker == 0 ? parts_.regrouping.why_not(end.value()) : "";
        !wrong.empty())
      return members_.broken(rank, " sends ", wrong);
    ends[rank] = std::move(end).value();
  }
  const std::vector<std::uint32_t> new_ones = members_.which([&](const Member& member) {
    return member.joined && !member.left &&
           !in_roster(static_cast<std::uint32_t>(&member - &members_[0]));
  });
  const std::vector<std::uint32_t> leaving =
      members_.which([](const Member& member) { return member.leaving && !member.left; });
  roster_ = parts_.regrouping.next(
      ends, [this](std::uint32_t rank) { return parts_.stragglers.seconds(rank); });
  for (const std::uint32_t rank : leaving) let_go(rank, out);
  parts_.rounds.begin_generation();
  parts_.norms.begin_generation(roster_->generation);
  parts_.agreement.begin_generation(roster_->measures, out);
  const std::string body = encode(*roster_);
  for (const std::uint32_t rank : new_ones) {
    members_[rank].body.configuration.clear();
    out.push_back({rank, roster_answer(rank)});
    if (members_[rank].worker < 0) continue;
    parts_.outputs.admit(rank, roster_->processes[rank].clock);
    parts_.agreement.admit(rank, roster_->processes[rank].clock, out);
  }
  for (const std::uint32_t server : members_.servers())
    if (members_[server].worker < 0 && std::ranges::count(new_ones, server) == 0)
      out.push_back(
          {server, Answer{Topic::kRegroup, static_cast<Clock>(roster_->generation), body}});
  return body;
}

void Membership::want_next(const std::string& why, std::vector<Dispatch>& out) {
  if (parts_.regrouping.want(why, "")) parts_.agreement.want(Want::kRegroup, 0, out);
}

// ---- leaving ----

Status Membership::leave(std::uint32_t rank, const Ask& ask, Instant now,
                         std::vector<Dispatch>& out) {
  Result<LeaveBody> body = decode_leave(ask.body);
  if (!body.ok()) return members_.broken(rank, " sends ", body.error().message);
  Member& member = members_[rank];
  // the others hear of it when the next generation begins
  const bool asks = body.value().at_end || member.worker < 0;
  if (const std::string why = finished_ ? "" : why_it_stays(rank); !why.empty()) {
    warn(str(members_.name(rank), " is told to leave, and ", why,
             ": the whole job stops, to be continued"));
    parts_.agreement.want(Want::kRequeue, 0, out);
    if (asks) out.push_back({rank, Answer{Topic::kLeave, ask.clock, encode_may_leave(false)}});
    return {};
  }
  if (asks) member.asks_to_leave = ask.clock;
  if (finished_) {
    let_go(rank, out);
    return {};
  }
  const bool is_new = !std::exchange(member.leaving, true);
  if (body.value().at_end && !member.done) {
    if (parts_.rounds.waits(rank))
      return broken(members_.name(rank) + " leaves while it waits in a round");
    parts_.pacing.leave_undone(rank, ask.clock);
    parts_.pacing.stop_asking(rank, true, now, out);
    parts_.rounds.stand_in(rank, std::move(body.value().state));
    take_out(rank, now, out);
    if (member.server < 0) let_go(rank, out);
  }
  if (is_new) want_next(members_.name(rank) + " leaves", out);
  return {};
}

// "" if it may leave.
std::string Membership::why_it_stays(std::uint32_t rank) const {
  if (rank == 0) return "it coordinates the job";
  if (members_[rank].worker == 0) return "it is the chief, which writes the job's snapshots";
  const auto others = members_.which([&](const Member& member) {
    return member.server >= 0 && !member.leaving && &member != &members_[rank];
  });
  if (members_[rank].server >= 0 && others.empty()) return "no other server would hold the params";
  return "";
}

// The process may end: its rows, if it had any, are elsewhere, and no process waits for it.
void Membership::let_go(std::uint32_t rank, std::vector<Dispatch>& out) {
  Member& member = members_[rank];
  member.left = true;
  for (const std::uint32_t other : members_.here())
    if (other != rank)
      out.push_back(
          {other,
           Directive{.kind = DirectiveKind::kLeft, .clock = static_cast<Clock>(rank), .text = {}}});
  if (member.asks_to_leave)
    out.push_back({rank, Answer{Topic::kLeave, *member.asks_to_leave, encode_may_leave(true)}});
}

Status Membership::done(std::uint32_t rank, const Ask& ask, Instant now,
                        std::vector<Dispatch>& out) {
  if (members_[rank].done) {
    if (finished_) out.push_back({rank, Answer{Topic::kDone, ask.clock, {}}});
    return {};
  }
  if (parts_.rounds.waits(rank)) return members_.broken(rank, " is done while it waits in a round");
  if (parts_.pacing.waits(rank))
    return members_.broken(rank, " is done while it waits for the start of a task");
  done_at_[rank] = ask.clock;
  parts_.agreement.ended(ask.clock);
  take_out(rank, now, out);
  if (members_.active().empty()) finish(out);
  return {};
}

// The worker takes part in nothing more.
void Membership::take_out(std::uint32_t rank, Instant now, std::vector<Dispatch>& out) {
  members_[rank].done = true;
  parts_.agreement.close(out);
  parts_.rounds.close(out);
  parts_.outputs.close(out);
  parts_.pacing.leave(rank, now, out);
}

void Membership::finish(std::vector<Dispatch>& out) {
  finished_ = true;
  for (std::uint32_t rank = 0; rank < members_.size(); ++rank)
    if (members_[rank].joined && !members_[rank].left && !in_roster(rank)) join_late(rank, out);
  for (const std::uint32_t rank : members_.which([](const Member& member) {
         return member.asks_to_leave && member.done && !member.left;
       }))
    let_go(rank, out);
  for (const auto& [rank, clock] : done_at_) out.push_back({rank, Answer{Topic::kDone, clock, {}}});
  for (const std::uint32_t server : members_.servers())
    out.push_back({server, Directive{.kind = DirectiveKind::kFinished, .text = {}}});
}

void Membership::end(Error error, std::uint32_t but, std::vector<Dispatch>& out) {
  if (ended_ || finished_) return;
  for (const std::uint32_t rank : members_.here())
    if (rank != but)
      out.push_back(
          {rank,
           Directive{.kind = DirectiveKind::kAbort, .code = error.code, .text = error.message}});
  ended_ = std::move(error);
}

void Membership::lose(std::uint32_t rank, Code code, const std::string& why,
                      std::vector<Dispatch>& out) {
  const bool known = rank < members_.size();
  if (known && members_[rank].left) return;
  if (known && !members_.is_founding(rank) && !in_roster(rank)) {  // it had not joined yet
    if (members_[rank].joined)
      warn(str(members_.name(rank), " wanted to join, and does not: ", why));
    members_[rank].left = true;
    return;
  }
  end({code, str("lost ", members_.name(rank), ": ", why)}, rank, out);
}

}  // namespace shoal::table
