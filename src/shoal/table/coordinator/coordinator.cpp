#include "shoal/table/coordinator.h"

#include <algorithm>
#include <map>
#include <utility>

#include "agreement.h"
#include "difference.h"
#include "members.h"
#include "norms.h"
#include "outputs.h"
#include "pacing.h"
#include "regrouping.h"
#include "rounds.h"
#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/table/scheme.h"
#include "stragglers.h"

namespace shoal::table {

struct Coordinator::State {
  explicit State(const CoordinatorOptions& given) : options(given), members(given.processes) {}

  Status join(std::uint32_t rank, const Ask& ask, Instant now, std::vector<Dispatch>& out);
  void join_late(std::uint32_t rank, std::vector<Dispatch>& out);
  bool in_roster(std::uint32_t rank) const;
  Status join_again(std::uint32_t rank, const Ask& ask, std::vector<Dispatch>& out);
  std::string why_not(std::uint32_t rank, const JoinBody& body) const;
  std::string why_not_all() const;
  void refuse(std::uint32_t rank, const std::string& reason, std::vector<Dispatch>& out);
  void call_the_roll(Instant now, std::vector<Dispatch>& out);
  Result<std::string> next_epoch(const Rounds::Round& round, std::vector<Dispatch>& out);
  Answer roster_answer(std::uint32_t rank) const { return {Topic::kJoin, members[rank].incarnation, encode(*roster)}; }
  void end(Error error, std::uint32_t but, std::vector<Dispatch>& out);

  Status ask(std::uint32_t rank, const Ask& ask, Instant now, std::vector<Dispatch>& out);
  Status done(std::uint32_t rank, const Ask& ask, Instant now, std::vector<Dispatch>& out);
  void take_out(std::uint32_t rank, Instant now, std::vector<Dispatch>& out);
  Status leave(std::uint32_t rank, const Ask& ask, Instant now, std::vector<Dispatch>& out);
  std::string why_it_stays(std::uint32_t rank) const;
  void let_go(std::uint32_t rank, std::vector<Dispatch>& out);
  void want_next_epoch(const std::string& why, std::vector<Dispatch>& out);
  bool is_to_stop(std::uint32_t rank) const;
  std::optional<Error> stuck() const;
  std::vector<std::vector<int>> in_step() const;
  Status next_scheme(std::uint32_t rank, const Ask& ask, Instant now, std::vector<Dispatch>& out);
  std::unique_ptr<Pacer> pacer;                // until all have joined
  Clock scheme_of_epoch = -1;                  // the last that worker 0 said
  std::string paced;                           // the scheme whose pacer decides
  void finish(std::vector<Dispatch>& out);
  void warn(std::string line) {
    if (!line.empty()) warnings.push_back(std::move(line));
  }

  const CoordinatorOptions options;
  Members members;
  std::optional<RosterBody> roster;
  std::string configuration;                   // of all
  std::optional<Error> ended;
  bool finished = false;
  std::map<std::uint32_t, Clock> done_at;      // clocks of kDone, by rank
  std::vector<std::string> warnings;
  Outputs outputs{members};
  Agreement agreement{members, [this] { return in_step(); }};
  Rounds rounds{members, agreement, [this](const Rounds::Round& round, std::vector<Dispatch>& out) { return next_epoch(round, out); }};
  Regrouping regrouping{members};
  Norms norms{members};
  Stragglers stragglers{members};
  Pacing pacing{members};
};

namespace {

constexpr std::uint32_t kNobody = ~std::uint32_t{0};

Error broken(const std::string& words) { return {Code::kPeer, words}; }

}  // namespace

// ---- who is in the job ----

Status Coordinator::State::join(std::uint32_t rank, const Ask& ask, Instant now, std::vector<Dispatch>& out) {
  Result<JoinBody> body = decode_join(ask.body);
  if (!body.ok()) return body.error();
  if (body.value().rank != rank) return broken(str("the process of rank ", rank, " asks to join as rank ", body.value().rank));
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
  want_next_epoch(members.name(rank) + " joins", out);
}

// Takes part, or did before it left.
bool Coordinator::State::in_roster(std::uint32_t rank) const {
  if (!roster || rank >= roster->processes.size()) return false;
  return roster->processes[rank].worker >= 0 || roster->processes[rank].server >= 0;
}

// From the process that joined, it is a repeat; from another, a mistake that ends a job which has not begun.
Status Coordinator::State::join_again(std::uint32_t rank, const Ask& ask, std::vector<Dispatch>& out) {
  if (members[rank].incarnation == ask.clock) {
    if (in_roster(rank)) out.push_back({rank, roster_answer(rank)});
    if (finished && members[rank].server >= 0) out.push_back({rank, Directive{.kind = DirectiveKind::kFinished, .text = {}}});
    return {};
  }
  const std::string host = decode_join(ask.body).value().host, before = members[rank].body.host;
  Error error = host == before
      ? broken(str("a second process says that it is rank ", rank, ", on the same host ", host,
                   ": either two have the same --client_id, or it was started again; a job goes on only with the processes it began with"))
      : broken(str("two processes say that they are rank ", rank, ", on hosts ", before, " and ", host, "; each needs its own --client_id"));
  if (!roster) end(error, kNobody, out);
  return error;
}

// Why this process cannot be part of the job; "" if it can.
std::string Coordinator::State::why_not(std::uint32_t rank, const JoinBody& body) const {
  const std::string self = str("rank ", rank, body.host.empty() ? "" : " (host " + body.host + ")");
  if (rank >= members.size())
    return str(self, " is outside the job, which has ranks 0 to ", members.size() - 1, "; is --num_clients the same everywhere?");
  if (!body.worker && !body.server) return self + " is neither worker nor server";
  for (const std::uint32_t other : members.here()) {
    const JoinBody& theirs = members[other].body;
    const std::string& common = roster ? configuration : theirs.configuration;
    if (common != body.configuration) return difference(self, body.configuration, members.name(other), common);
    if (theirs.server && body.server && !body.address.empty() && theirs.address == body.address)
      return str(self, " and ", members.name(other), " both say that they are reached at ", body.address,
                 "; each needs a port of its own and an address that others can reach");
  }
  return {};
}

// Why these processes are no job; "" if they are one.
std::string Coordinator::State::why_not_all() const {
  const auto count = [&](bool JoinBody::*role) { return members.which([&](const Member& member) { return member.body.*role; }).size(); };
  if (count(&JoinBody::server) == 0)
    return str("zero servers: all ", members.size(), " processes have role=worker, and nobody holds the weights");
  if (count(&JoinBody::worker) == 0) return str("zero workers: all ", members.size(), " processes have role=server, and nobody trains");
  return {};
}

void Coordinator::State::refuse(std::uint32_t rank, const std::string& reason, std::vector<Dispatch>& out) {
  out.push_back({rank, Refuse{Code::kPeer, reason}});
  if (!roster) end({Code::kPeer, reason}, rank, out);
}

void Coordinator::State::call_the_roll(Instant now, std::vector<Dispatch>& out) {
  configuration = members[0].body.configuration;   // equal on all
  for (std::uint32_t rank = 0; rank < members.size(); ++rank) members[rank].body.configuration.clear();
  roster = regrouping.first(options.seed);
  for (const std::uint32_t rank : members.here()) out.push_back({rank, roster_answer(rank)});
  pacing.use(std::move(pacer), now, out);
}

// All workers are at the ends of their parts of an epoch.
Result<std::string> Coordinator::State::next_epoch(const Rounds::Round& round, std::vector<Dispatch>& out) {
  std::map<std::uint32_t, SegmentBody> ends;
  for (const auto& [rank, bytes] : round) {
    Result<SegmentBody> end = decode_segment(bytes);
    if (!end.ok()) return Error{end.error().code, str(members.name(rank), " sends ", end.error().message)};
    if (const std::string wrong = members[rank].worker == 0 ? regrouping.why_not(end.value()) : ""; !wrong.empty())
      return broken(str(members.name(rank), " sends ", wrong));
    ends[rank] = std::move(end).value();
  }
  const std::vector<std::uint32_t> new_ones = members.which([&](const Member& member) {
    return member.joined && !member.left && !in_roster(static_cast<std::uint32_t>(&member - &members[0]));
  });
  const std::vector<std::uint32_t> leaving = members.which([](const Member& member) { return member.leaving && !member.left; });
  roster = regrouping.next(ends, [this](std::uint32_t rank) { return stragglers.seconds(rank); });
  for (const std::uint32_t rank : leaving) let_go(rank, out);
  rounds.begin_epoch();
  norms.begin_epoch(roster->epoch);
  agreement.begin_epoch(roster->measures, out);
  const std::string body = encode(*roster);
  for (const std::uint32_t rank : new_ones) {
    members[rank].body.configuration.clear();
    out.push_back({rank, roster_answer(rank)});
    if (members[rank].worker < 0) continue;
    outputs.admit(rank, roster->processes[rank].clock);
    agreement.admit(rank, roster->processes[rank].clock, out);
  }
  for (const std::uint32_t server : members.servers())
    if (members[server].worker < 0 && std::ranges::count(new_ones, server) == 0) out.push_back({server, Answer{Topic::kRegroup, static_cast<Clock>(roster->epoch), body}});
  return body;
}

void Coordinator::State::want_next_epoch(const std::string& why, std::vector<Dispatch>& out) {
  if (regrouping.want(why, "")) agreement.want(Want::kRegroup, 0, out);
}

// ---- who leaves ----

Status Coordinator::State::leave(std::uint32_t rank, const Ask& ask, Instant now, std::vector<Dispatch>& out) {
  Result<LeaveBody> body = decode_leave(ask.body);
  if (!body.ok()) return Error{body.error().code, str(members.name(rank), " sends ", body.error().message)};
  Member& member = members[rank];
  const bool asks = body.value().at_end || member.worker < 0;      // others hear of it when the next epoch begins
  if (const std::string why = finished ? "" : why_it_stays(rank); !why.empty()) {
    warn(str(members.name(rank), " is told to leave, and ", why, ": the whole job stops, to be continued"));
    agreement.want(Want::kRequeue, 0, out);
    if (asks) out.push_back({rank, Answer{Topic::kLeave, ask.clock, std::string(1, '\0')}});
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
  if (is_new) want_next_epoch(members.name(rank) + " leaves", out);
  return {};
}

// "" if it may leave.
std::string Coordinator::State::why_it_stays(std::uint32_t rank) const {
  if (rank == 0) return "it coordinates the job";
  if (members[rank].worker == 0) return "it is the chief, which writes the job's snapshots";
  const auto others = members.which([&](const Member& member) { return member.server >= 0 && !member.leaving && &member != &members[rank]; });
  if (members[rank].server >= 0 && others.empty()) return "no other server would hold the params";
  return "";
}

// The process may end: its rows, if it had any, are elsewhere, and nobody waits for it.
void Coordinator::State::let_go(std::uint32_t rank, std::vector<Dispatch>& out) {
  Member& member = members[rank];
  member.left = true;
  for (const std::uint32_t other : members.here())
    if (other != rank) out.push_back({other, Directive{.kind = DirectiveKind::kLeft, .clock = static_cast<Clock>(rank), .text = {}}});
  if (member.asks_to_leave) out.push_back({rank, Answer{Topic::kLeave, *member.asks_to_leave, std::string(1, '\1')}});
}

// Tells all who have joined, `but` one, that the job ends now.
void Coordinator::State::end(Error error, std::uint32_t but, std::vector<Dispatch>& out) {
  if (ended || finished) return;
  for (const std::uint32_t rank : members.here())
    if (rank != but) out.push_back({rank, Directive{.kind = DirectiveKind::kAbort, .code = error.code, .text = error.message}});
  ended = std::move(error);
}

// ---- what all agree on ----

Status Coordinator::State::ask(std::uint32_t rank, const Ask& ask, Instant now, std::vector<Dispatch>& out) {
  const Member& member = members[rank];
  if (ask.topic == Topic::kLeave) return leave(rank, ask, now, out);
  if (member.worker < 0) return broken(str(members.name(rank), " is a server alone and asks for ", name_of(ask.topic), ", which is for workers"));
  if (ask.topic == Topic::kDone) return done(rank, ask, now, out);
  const bool about_task = ask.topic == Topic::kBegin || ask.topic == Topic::kJudge, round = Rounds::is_one(ask.topic);
  if (member.done && (about_task || round)) return broken(str(members.name(rank), " is done and asks for ", name_of(ask.topic), ' ', ask.clock));
  if (ask.topic == Topic::kMeet) pacing.stop_asking(rank, ask.body == "\1", now, out);
  if (round && is_to_stop(rank)) pacing.stop_asking(rank, false, now, out);
  if (ask.topic != Topic::kBegin && (about_task || round) && pacing.waits(rank))
    return broken(str(members.name(rank), " asks for ", name_of(ask.topic), ' ', ask.clock, " while it waits for the start of a task"));
  if (about_task && rounds.waits(rank)) return broken(str(members.name(rank), " asks for ", name_of(ask.topic), ' ', ask.clock, " while it waits in a round"));
  if (round) return rounds.ask(rank, ask, out);
  if (member.done) return {};
  switch (ask.topic) {
    case Topic::kOutputs: return outputs.tell(rank, ask, out);
    case Topic::kPause:
      if (ask.body == std::string(1, static_cast<char>(Want::kRegroup))) regrouping.want(members.name(rank) + " asks for it", "");
      return agreement.want(rank, ask, out);
    case Topic::kPaused: {
      const Status status = agreement.paused(rank, ask, out);
      rounds.close(out);
      return status;
    }
    case Topic::kBegin: return pacing.begin(rank, ask, now, out);
    case Topic::kJudge: return pacing.judge(rank, ask, now, out);
    case Topic::kScheme: return next_scheme(rank, ask, now, out);
    case Topic::kReport: {
      Result<std::string> line = stragglers.take(rank, ask.body);
      if (!line.ok()) return line.error();
      warn(std::move(line).value());
      return {};
    }
    default: return broken(str(members.name(rank), " asks for topic ", static_cast<int>(ask.topic), ", which is not known here"));
  }
}

std::vector<std::vector<int>> Coordinator::State::in_step() const {
  const auto scheme = make_scheme(regrouping.roster().scheme);
  return scheme.ok() ? scheme.value()->in_step() : std::vector<std::vector<int>>();
}

Status Coordinator::State::next_scheme(std::uint32_t rank, const Ask& ask, Instant now, std::vector<Dispatch>& out) {
  if (members[rank].worker != 0) return broken(str(members.name(rank), " says what scheme is next, and only worker 0 may"));
  if (ask.clock <= scheme_of_epoch) return {};
  const auto scheme = make_scheme(ask.body);
  if (!scheme.ok()) return scheme.error();
  scheme_of_epoch = ask.clock;
  regrouping.plans(ask.body);
  if (std::exchange(paced, ask.body) == ask.body && ask.clock > 0) return pacing.go_on(now, out), Status();
  pacing.use(scheme.value()->make_pacer(), now, out);
  return {};
}

Status Coordinator::State::done(std::uint32_t rank, const Ask& ask, Instant now, std::vector<Dispatch>& out) {
  if (members[rank].done) {
    if (finished) out.push_back({rank, Answer{Topic::kDone, ask.clock, {}}});
    return {};
  }
  if (rounds.waits(rank)) return broken(str(members.name(rank), " is done while it waits in a round"));
  if (pacing.waits(rank)) return broken(str(members.name(rank), " is done while it waits for the start of a task"));
  done_at[rank] = ask.clock;
  take_out(rank, now, out);
  if (members.active().empty()) finish(out);
  return {};
}

// The worker takes part in nothing more.
void Coordinator::State::take_out(std::uint32_t rank, Instant now, std::vector<Dispatch>& out) {
  members[rank].done = true;
  agreement.close(out);
  rounds.close(out);
  outputs.close(out);
  pacing.leave(rank, now, out);
}

void Coordinator::State::finish(std::vector<Dispatch>& out) {
  finished = true;
  for (std::uint32_t rank = 0; rank < members.size(); ++rank)
    if (members[rank].joined && !members[rank].left && !in_roster(rank)) join_late(rank, out);
  for (const std::uint32_t rank : members.which([](const Member& member) { return member.asks_to_leave && member.done && !member.left; })) let_go(rank, out);
  for (const auto& [rank, clock] : done_at) out.push_back({rank, Answer{Topic::kDone, clock, {}}});
  for (const std::uint32_t server : members.servers()) out.push_back({server, Directive{.kind = DirectiveKind::kFinished, .text = {}}});
}

// It waits for the start of a task before which all stop: it has been told, and asks for something else next.
bool Coordinator::State::is_to_stop(std::uint32_t rank) const {
  const std::optional<Clock> task = pacing.waits_for(rank);
  return task && agreement.stops_at(*task);
}

// Why the workers can never go on, if they cannot.
std::optional<Error> Coordinator::State::stuck() const {
  if (rounds.mismatch()) return rounds.mismatch();
  const std::vector<std::uint32_t> active = members.active();
  const auto waits = [&](std::uint32_t rank) { return rounds.waits(rank) || (pacing.waits(rank) && !is_to_stop(rank)); };
  if (active.empty() || agreement.is_due() || !std::ranges::all_of(active, waits)) return std::nullopt;
  std::vector<std::string> places = rounds.places();
  for (std::string& place : pacing.places()) places.push_back(std::move(place));
  return broken(str("the workers wait for each other in different places and none can go on: ", shoal::join(places, "; "),
                    ". Do all run the same program, solver and iterations?"));
}

Coordinator::Coordinator(const CoordinatorOptions& options) : state_(std::make_unique<State>(options)) {
  CHECK_GE(options.processes, 1u);
  if (options.scheme.empty()) return;
  const auto scheme = make_scheme(options.scheme);
  CHECK(scheme.ok()) << scheme.error().message;
  state_->pacer = scheme.value()->make_pacer();
  state_->regrouping.plans(options.scheme);
}
Coordinator::~Coordinator() = default;

Status Coordinator::handle(std::uint32_t rank, const Message& message, Instant now, std::vector<Dispatch>& out) {
  if (const auto* ping = std::get_if<Ping>(&message)) {
    heard(rank, ping->clock);
    return {};
  }
  const auto* ask = std::get_if<Ask>(&message);
  if (ask && ask->topic == Topic::kJoin) return state_->join(rank, *ask, now, out);
  if (state_->ended) return {};   // everybody has been told
  if (rank < state_->members.size() && state_->members[rank].left) return {};
  if (rank >= state_->members.size() || !state_->members[rank].joined)
    return broken(str("rank ", rank, " sends ", name_of(type_of(message)), " before it has joined"));
  if (const auto* directive = std::get_if<Directive>(&message); directive && directive->kind == DirectiveKind::kAbort) {
    const auto whose = static_cast<std::uint32_t>(directive->clock);
    if (whose == rank && !state_->members.is_founding(rank) && !state_->in_roster(rank))
      lost(rank, directive->code, directive->text, out);
    else if (whose == rank)
      state_->end({directive->code, str(state_->members.name(rank), " has ended: ", directive->text)}, rank, out);
    else
      lost(whose, directive->code, directive->text, out);
    return {};
  }
  if (!state_->roster)
    return broken(str(state_->members.name(rank), " sends ", name_of(type_of(message)), " before all have joined"));
  if (const auto* norm = std::get_if<Norm>(&message)) return state_->norms.take(rank, *norm, out);
  if (!ask) return broken(str(state_->members.name(rank), " sends ", name_of(type_of(message)), " to the coordinator"));
  const Status status = state_->ask(rank, *ask, now, out);
  state_->warn(state_->outputs.take_warning());
  for (std::string& line : state_->pacing.take_remarks()) state_->warn(std::move(line));
  if (std::optional<Error> fault = state_->stuck()) state_->end(*std::move(fault), kNobody, out);
  return status;
}

Status Coordinator::pace(const std::string& words, Instant now, std::vector<Dispatch>& out) {
  const auto scheme = make_scheme(words);
  if (!scheme.ok()) return scheme.error();
  pace(scheme.value()->make_pacer(), now, out);
  return {};
}

void Coordinator::pace(std::unique_ptr<Pacer> pacer, Instant now, std::vector<Dispatch>& out) {
  if (state_->roster) state_->pacing.use(std::move(pacer), now, out);
  else state_->pacer = std::move(pacer);
}

void Coordinator::regroup(const std::string& why, const std::string& scheme, Clock from, std::vector<Dispatch>& out) {
  if (!state_->roster || state_->ended || state_->finished) return;
  if (state_->regrouping.want(why, scheme)) state_->agreement.want(Want::kRegroup, from, out);
}

void Coordinator::lost(std::uint32_t rank, Code code, const std::string& why, std::vector<Dispatch>& out) {
  State& state = *state_;
  if (rank < state.members.size() && state.members[rank].left) return;
  if (rank < state.members.size() && !state.members.is_founding(rank) && !state.in_roster(rank)) {      // it had not joined yet
    if (state.members[rank].joined) state.warn(str(state.members.name(rank), " wanted to join, and does not: ", why));
    state.members[rank].left = true;
    return;
  }
  state_->end({code, str("lost ", state_->members.name(rank), ": ", why)}, rank, out);
}

void Coordinator::heard(std::uint32_t rank, Clock clock) {
  if (rank < state_->members.size()) state_->members[rank].clock = std::max(state_->members[rank].clock, clock);
}

const RosterBody* Coordinator::roster() const { return state_->roster ? &*state_->roster : nullptr; }

std::vector<std::uint32_t> Coordinator::missing() const {
  std::vector<std::uint32_t> ranks = state_->members.which([](const Member& member) { return !member.joined; });
  std::erase_if(ranks, [this](std::uint32_t rank) { return !state_->members.is_founding(rank); });
  return ranks;
}

std::uint32_t Coordinator::processes() const { return state_->members.size(); }

std::uint32_t Coordinator::enroll() {
  const std::uint32_t rank = state_->members.enroll();
  state_->agreement.grow();
  state_->rounds.grow();
  state_->outputs.grow();
  state_->pacing.grow();
  state_->stragglers.grow();
  return rank;
}

std::string Coordinator::waiting_for() const {
  if (state_->ended || finished()) return {};
  const Members& members = state_->members;
  if (const std::vector<std::uint32_t> absent = missing(); !absent.empty()) return "start: waiting for " + members.names(absent);
  std::vector<std::string> lines = state_->rounds.waiting_for();
  for (std::string& line : state_->norms.waiting_for()) lines.push_back(std::move(line));
  if (std::string line = state_->agreement.waiting_for(); !line.empty()) lines.push_back(std::move(line));
  if (std::string line = state_->pacing.waiting_for(); !line.empty()) lines.push_back(std::move(line));
  if (!state_->done_at.empty()) lines.push_back("end: waiting for " + members.names(members.active()));
  return join(lines, "; ");
}

bool Coordinator::finished() const { return state_->finished; }

const Error* Coordinator::ended() const { return state_->ended ? &*state_->ended : nullptr; }

std::string Coordinator::describe_pace() const { return state_->pacing.describe(); }

std::vector<std::string> Coordinator::take_warnings() { return std::exchange(state_->warnings, {}); }

}  // namespace shoal::table
