// Who takes part in a job: joins before it begins or while it goes on, leaves, ends.
#include <algorithm>
#include <utility>

#include "shoal/base/text.h"
#include "shoal/table/coordinator/coordinator_state.h"
#include "shoal/table/coordinator/difference.h"

namespace shoal::table {

// ---- who is in the job ----

Status Coordinator::State::join(std::uint32_t rank, const Ask& ask, Instant now,
                                std::vector<Dispatch>& out) {
  Result<JoinBody> body = decode_join(ask.body);
  if (!body.ok()) return body.error();
  if (body.value().rank != rank)
    return broken(str("the process of rank ", rank, " asks to join as rank ", body.value().rank));
  if (ended) {
    out.push_back({rank, Refuse{ended->code, "the job has ended: " + ended->message}});
    return {};
  }
  if (rank < members.size() && members[rank].joined) return join_again(rank, ask, out);
  if (const std::string reason = why_not(rank, body.value()); !reason.empty()) {
    refuse(rank, reason, out);
    return {};
  }
  members[rank].joined = true;
  members[rank].incarnation = ask.clock;
  members[rank].body = std::move(body).value();
  if (roster) return join_late(rank, out), Status();
  for (std::uint32_t other = 0; other < members.size(); ++other)
    if (members.is_founding(other) && !members[other].joined) return {};
  if (const std::string reason = why_not_all(); reason.empty())
    call_the_roll(now, out);
  else
    refuse(rank, reason, out);
  return {};
}

// The job has begun. It goes on as it is until all are at the ends of their tasks.
void Coordinator::State::join_late(std::uint32_t rank, std::vector<Dispatch>& out) {
  if (finished) {
    members[rank].joined = false;
    members[rank].left = true;
    return refuse(rank, "the job is done: there is nothing left to join", out);
  }
  want_next_generation(members.name(rank) + " joins", out);
}

// Takes part, or did before it left.
bool Coordinator::State::in_roster(std::uint32_t rank) const {
  if (!roster || rank >= roster->processes.size()) return false;
  return roster->processes[rank].worker >= 0 || roster->processes[rank].server >= 0;
}

// From the process that joined, it is a repeat; from another, a mistake that ends a job which has
// not begun.
Status Coordinator::State::join_again(std::uint32_t rank, const Ask& ask,
                                      std::vector<Dispatch>& out) {
  if (members[rank].incarnation == ask.clock) {
    if (in_roster(rank)) out.push_back({rank, roster_answer(rank)});
    if (finished && members[rank].server >= 0)
      out.push_back({rank, Directive{.kind = DirectiveKind::kFinished, .text = {}}});
    return {};
  }
  const std::string host = decode_join(ask.body).value().host, before = members[rank].body.host;
  Error error =
      host == before
          ? broken(str("a second process says that it is rank ", rank, ", on the same host ", host,
                       ": either two have the same --client_id, or it was started again; a job "
                       "goes on only with the processes it began with"))
          : broken(str("two processes say that they are rank ", rank, ", on hosts ", before,
                       " and ", host, "; each needs its own --client_id"));
  if (!roster) end(error, kNobody, out);
  return error;
}

// Why this process cannot be part of the job; "" if it can.
std::string Coordinator::State::why_not(std::uint32_t rank, const JoinBody& body) const {
  const std::string self = str("rank ", rank, body.host.empty() ? "" : " (host " + body.host + ")");
  if (rank >= members.size())
    return str(self, " is outside the job, which has ranks 0 to ", members.size() - 1,
               "; is --num_clients the same everywhere?");
  if (!body.worker && !body.server) return self + " is neither worker nor server";
  for (const std::uint32_t other : members.here()) {
    const JoinBody& theirs = members[other].body;
    const std::string& common = roster ? configuration : theirs.configuration;
    if (common != body.configuration)
      return difference(self, body.configuration, members.name(other), common);
    if (theirs.server && body.server && !body.address.empty() && theirs.address == body.address)
      return str(self, " and ", members.name(other), " both say that they are reached at ",
                 body.address,
                 "; each needs a port of its own and an address that others can reach");
  }
  return {};
}

// Why these processes are no job; "" if they are one.
std::string Coordinator::State::why_not_all() const {
  const auto count = [&](bool JoinBody::*role) {
    return members.which([&](const Member& member) { return member.body.*role; }).size();
  };
  if (count(&JoinBody::server) == 0)
    return str("zero servers: all ", members.size(),
               " processes have role=worker, and nobody holds the weights");
  if (count(&JoinBody::worker) == 0)
    return str("zero workers: all ", members.size(),
               " processes have role=server, and nobody trains");
  return {};
}

void Coordinator::State::refuse(std::uint32_t rank, const std::string& reason,
                                std::vector<Dispatch>& out) {
  out.push_back({rank, Refuse{Code::kPeer, reason}});
  if (!roster) end({Code::kPeer, reason}, rank, out);
}

void Coordinator::State::call_the_roll(Instant now, std::vector<Dispatch>& out) {
  configuration = members[0].body.configuration;  // equal on all
  for (std::uint32_t rank = 0; rank < members.size(); ++rank)
    members[rank].body.configuration.clear();
  roster = regrouping.first(options.seed);
  for (const std::uint32_t rank : members.here()) out.push_back({rank, roster_answer(rank)});
  pacing.use(std::move(pacer), now, out);
}

// All workers are at the ends of their parts of a generation.
Result<std::string> Coordinator::State::next_generation(const Rounds::Round& round,
                                                        std::vector<Dispatch>& out) {
  std::map<std::uint32_t, SegmentBody> ends;
  for (const auto& [rank, bytes] : round) {
    Result<SegmentBody> end = decode_segment(bytes);
    if (!end.ok())
      return Error{end.error().code, str(members.name(rank), " sends ", end.error().message)};
    if (const std::string wrong = members[rank].worker == 0 ? regrouping.why_not(end.value()) : "";
        !wrong.empty())
      return broken(str(members.name(rank), " sends ", wrong));
    ends[rank] = std::move(end).value();
  }
  const std::vector<std::uint32_t> new_ones = members.which([&](const Member& member) {
    return member.joined && !member.left &&
           !in_roster(static_cast<std::uint32_t>(&member - &members[0]));
  });
  const std::vector<std::uint32_t> leaving =
      members.which([](const Member& member) { return member.leaving && !member.left; });
  roster = regrouping.next(ends, [this](std::uint32_t rank) { return stragglers.seconds(rank); });
  for (const std::uint32_t rank : leaving) let_go(rank, out);
  rounds.begin_generation();
  norms.begin_generation(roster->generation);
  agreement.begin_generation(roster->measures, out);
  const std::string body = encode(*roster);
  for (const std::uint32_t rank : new_ones) {
    members[rank].body.configuration.clear();
    out.push_back({rank, roster_answer(rank)});
    if (members[rank].worker < 0) continue;
    outputs.admit(rank, roster->processes[rank].clock);
    agreement.admit(rank, roster->processes[rank].clock, out);
  }
  for (const std::uint32_t server : members.servers())
    if (members[server].worker < 0 && std::ranges::count(new_ones, server) == 0)
      out.push_back(
          {server, Answer{Topic::kRegroup, static_cast<Clock>(roster->generation), body}});
  return body;
}

void Coordinator::State::want_next_generation(const std::string& why, std::vector<Dispatch>& out) {
  if (regrouping.want(why, "")) agreement.want(Want::kRegroup, 0, out);
}

// ---- who leaves ----

Status Coordinator::State::leave(std::uint32_t rank, const Ask& ask, Instant now,
                                 std::vector<Dispatch>& out) {
  Result<LeaveBody> body = decode_leave(ask.body);
  if (!body.ok())
    return Error{body.error().code, str(members.name(rank), " sends ", body.error().message)};
  Member& member = members[rank];
  // others hear of it when the next generation begins
  const bool asks = body.value().at_end || member.worker < 0;
  if (const std::string why = finished ? "" : why_it_stays(rank); !why.empty()) {
    warn(str(members.name(rank), " is told to leave, and ", why,
             ": the whole job stops, to be continued"));
    agreement.want(Want::kRequeue, 0, out);
    if (asks) out.push_back({rank, Answer{Topic::kLeave, ask.clock, encode_may_leave(false)}});
    return {};
  }
  if (asks) member.asks_to_leave = ask.clock;
  if (finished) return let_go(rank, out), Status();
  const bool is_new = !std::exchange(member.leaving, true);
  if (body.value().at_end && !member.done) {
    if (rounds.waits(rank)) return broken(members.name(rank) + " leaves while it waits in a round");
    pacing.leave_undone(rank, ask.clock);
    pacing.stop_asking(rank, true, now, out);
    rounds.stand_in(rank, std::move(body.value().state));
    take_out(rank, now, out);
    if (member.server < 0) let_go(rank, out);
  }
  if (is_new) want_next_generation(members.name(rank) + " leaves", out);
  return {};
}

// "" if it may leave.
std::string Coordinator::State::why_it_stays(std::uint32_t rank) const {
  if (rank == 0) return "it coordinates the job";
  if (members[rank].worker == 0) return "it is the chief, which writes the job's snapshots";
  const auto others = members.which([&](const Member& member) {
    return member.server >= 0 && !member.leaving && &member != &members[rank];
  });
  if (members[rank].server >= 0 && others.empty()) return "no other server would hold the params";
  return "";
}

// The process may end: its rows, if it had any, are elsewhere, and nobody waits for it.
void Coordinator::State::let_go(std::uint32_t rank, std::vector<Dispatch>& out) {
  Member& member = members[rank];
  member.left = true;
  for (const std::uint32_t other : members.here())
    if (other != rank)
      out.push_back(
          {other,
           Directive{.kind = DirectiveKind::kLeft, .clock = static_cast<Clock>(rank), .text = {}}});
  if (member.asks_to_leave)
    out.push_back({rank, Answer{Topic::kLeave, *member.asks_to_leave, encode_may_leave(true)}});
}

// Tells all who have joined, `but` one, that the job ends now.
void Coordinator::State::end(Error error, std::uint32_t but, std::vector<Dispatch>& out) {
  if (ended || finished) return;
  for (const std::uint32_t rank : members.here())
    if (rank != but)
      out.push_back(
          {rank,
           Directive{.kind = DirectiveKind::kAbort, .code = error.code, .text = error.message}});
  ended = std::move(error);
}

}  // namespace shoal::table
