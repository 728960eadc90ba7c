#include "shoal/table/coordinator.h"

#include <algorithm>
#include <utility>

#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/table/coordinator/coordinator_state.h"
#include "shoal/table/scheme.h"

namespace shoal::table {

// ---- what all agree on ----

Status Coordinator::State::ask(std::uint32_t rank, const Ask& ask, Instant now,
                               std::vector<Dispatch>& out) {
  const Member& member = members[rank];
  if (ask.topic == Topic::kLeave) return leave(rank, ask, now, out);
  if (member.worker < 0)
    return broken(str(members.name(rank), " is a server alone and asks for ", name_of(ask.topic),
                      ", which is for workers"));
  if (ask.topic == Topic::kDone) return done(rank, ask, now, out);
  const bool about_task = ask.topic == Topic::kBegin || ask.topic == Topic::kJudge,
             round = Rounds::is_one(ask.topic);
  if (member.done && (about_task || round))
    return broken(
        str(members.name(rank), " is done and asks for ", name_of(ask.topic), ' ', ask.clock));
  if (ask.topic == Topic::kMeet)
    pacing.stop_asking(rank, decode_meeting(ask.body) == Meeting::kEnd, now, out);
  if (round && is_to_stop(rank)) pacing.stop_asking(rank, false, now, out);
  if (ask.topic != Topic::kBegin && (about_task || round) && pacing.waits(rank))
    return broken(str(members.name(rank), " asks for ", name_of(ask.topic), ' ', ask.clock,
                      " while it waits for the start of a task"));
  if (about_task && rounds.waits(rank))
    return broken(str(members.name(rank), " asks for ", name_of(ask.topic), ' ', ask.clock,
                      " while it waits in a round"));
  if (round) return rounds.ask(rank, ask, out);
  if (member.done) return {};
  switch (ask.topic) {
    case Topic::kOutputs: return outputs.tell(rank, ask, out);
    case Topic::kPause:
      if (ask.body == encode(Want::kRegroup))
        regrouping.want(members.name(rank) + " asks for it", "");
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
    default:
      return broken(str(members.name(rank), " asks for topic ", static_cast<int>(ask.topic),
                        ", which is not known here"));
  }
}

std::vector<std::vector<int>> Coordinator::State::in_step() const {
  const auto scheme = make_scheme(regrouping.roster().scheme);
  return scheme.ok() ? scheme.value()->in_step() : std::vector<std::vector<int>>();
}

Status Coordinator::State::next_scheme(std::uint32_t rank, const Ask& ask, Instant now,
                                       std::vector<Dispatch>& out) {
  if (members[rank].worker != 0)
    return broken(str(members.name(rank), " says what scheme is next, and only worker 0 may"));
  if (ask.clock <= scheme_of_generation) return {};
  const auto scheme = options.maker(ask.body);
  if (!scheme.ok()) return scheme.error();
  scheme_of_generation = ask.clock;
  regrouping.plans(ask.body);
  if (std::exchange(paced, ask.body) == ask.body && ask.clock > 0)
    return pacing.go_on(now, out), Status();
  pacing.use(scheme.value()->make_pacer(), now, out);
  return {};
}

Status Coordinator::State::done(std::uint32_t rank, const Ask& ask, Instant now,
                                std::vector<Dispatch>& out) {
  if (members[rank].done) {
    if (finished) out.push_back({rank, Answer{Topic::kDone, ask.clock, {}}});
    return {};
  }
  if (rounds.waits(rank))
    return broken(str(members.name(rank), " is done while it waits in a round"));
  if (pacing.waits(rank))
    return broken(str(members.name(rank), " is done while it waits for the start of a task"));
  done_at[rank] = ask.clock;
  agreement.ended(ask.clock);
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
  for (const std::uint32_t rank : members.which([](const Member& member) {
         return member.asks_to_leave && member.done && !member.left;
       }))
    let_go(rank, out);
  for (const auto& [rank, clock] : done_at) out.push_back({rank, Answer{Topic::kDone, clock, {}}});
  for (const std::uint32_t server : members.servers())
    out.push_back({server, Directive{.kind = DirectiveKind::kFinished, .text = {}}});
}

// It waits for the start of a task before which all stop: it has been told, and asks for something
// else next.
bool Coordinator::State::is_to_stop(std::uint32_t rank) const {
  const std::optional<Clock> task = pacing.waits_for(rank);
  return task && agreement.stops_at(*task);
}

// Why the workers can never go on, if they cannot.
std::optional<Error> Coordinator::State::stuck() const {
  if (rounds.mismatch()) return rounds.mismatch();
  const std::vector<std::uint32_t> active = members.active();
  const auto waits = [&](std::uint32_t rank) {
    return rounds.waits(rank) || (pacing.waits(rank) && !is_to_stop(rank));
  };
  if (active.empty() || agreement.is_due() || !std::ranges::all_of(active, waits))
    return std::nullopt;
  std::vector<std::string> places = rounds.places();
  for (std::string& place : pacing.places()) places.push_back(std::move(place));
  return broken(str("the workers wait for each other in different places and none can go on: ",
                    shoal::join(places, "; "),
                    ". Do all run the same program, solver and iterations?"));
}

Coordinator::Coordinator(const CoordinatorOptions& options)
    : state_(std::make_unique<State>(options)) {
  CHECK_GE(options.processes, 1u);
  if (options.scheme.empty()) return;
  const auto scheme = options.maker(options.scheme);
  CHECK(scheme.ok()) << scheme.error().message;
  state_->pacer = scheme.value()->make_pacer();
  state_->regrouping.plans(options.scheme);
}
Coordinator::~Coordinator() = default;

Status Coordinator::handle(std::uint32_t rank, const Message& message, Instant now,
                           std::vector<Dispatch>& out) {
  if (const auto* ping = std::get_if<Ping>(&message)) {
    heard(rank, ping->clock);
    return {};
  }
  const auto* ask = std::get_if<Ask>(&message);
  if (ask && ask->topic == Topic::kJoin) return state_->join(rank, *ask, now, out);
  if (state_->ended) return {};  // everybody has been told
  if (rank < state_->members.size() && state_->members[rank].left) return {};
  if (rank >= state_->members.size() || !state_->members[rank].joined)
    return broken(
        str("rank ", rank, " sends ", name_of(type_of(message)), " before it has joined"));
  if (const auto* directive = std::get_if<Directive>(&message);
      directive && directive->kind == DirectiveKind::kAbort) {
    const auto whose = static_cast<std::uint32_t>(directive->clock);
    if (whose == rank && !state_->members.is_founding(rank) && !state_->in_roster(rank))
      lost(rank, directive->code, directive->text, out);
    else if (whose == rank)
      state_->end(
          {directive->code, str(state_->members.name(rank), " has ended: ", directive->text)}, rank,
          out);
    else
      lost(whose, directive->code, directive->text, out);
    return {};
  }
  if (!state_->roster)
    return broken(str(state_->members.name(rank), " sends ", name_of(type_of(message)),
                      " before all have joined"));
  if (const auto* norm = std::get_if<Norm>(&message)) return state_->norms.take(rank, *norm, out);
  if (!ask)
    return broken(str(state_->members.name(rank), " sends ", name_of(type_of(message)),
                      " to the coordinator"));
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
  if (state_->roster)
    state_->pacing.use(std::move(pacer), now, out);
  else
    state_->pacer = std::move(pacer);
}

void Coordinator::regroup(const std::string& why, const std::string& scheme, Clock from,
                          std::vector<Dispatch>& out) {
  if (!state_->roster || state_->ended || state_->finished) return;
  if (state_->regrouping.want(why, scheme)) state_->agreement.want(Want::kRegroup, from, out);
}

void Coordinator::lost(std::uint32_t rank, Code code, const std::string& why,
                       std::vector<Dispatch>& out) {
  State& state = *state_;
  if (rank < state.members.size() && state.members[rank].left) return;
  // it had not joined yet
  if (rank < state.members.size() && !state.members.is_founding(rank) && !state.in_roster(rank)) {
    if (state.members[rank].joined)
      state.warn(str(state.members.name(rank), " wanted to join, and does not: ", why));
    state.members[rank].left = true;
    return;
  }
  state_->end({code, str("lost ", state_->members.name(rank), ": ", why)}, rank, out);
}

void Coordinator::heard(std::uint32_t rank, Clock clock) {
  if (rank < state_->members.size())
    state_->members[rank].clock = std::max(state_->members[rank].clock, clock);
}

const RosterBody* Coordinator::roster() const {
  return state_->roster ? &*state_->roster : nullptr;
}

std::vector<std::uint32_t> Coordinator::missing() const {
  std::vector<std::uint32_t> ranks =
      state_->members.which([](const Member& member) { return !member.joined; });
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
  if (const std::vector<std::uint32_t> absent = missing(); !absent.empty())
    return "start: waiting for " + members.names(absent);
  std::vector<std::string> lines = state_->rounds.waiting_for();
  for (std::string& line : state_->norms.waiting_for()) lines.push_back(std::move(line));
  if (std::string line = state_->agreement.waiting_for(); !line.empty())
    lines.push_back(std::move(line));
  if (std::string line = state_->pacing.waiting_for(); !line.empty())
    lines.push_back(std::move(line));
  if (!state_->done_at.empty())
    lines.push_back("end: waiting for " + members.names(members.active()));
  return join(lines, "; ");
}

bool Coordinator::finished() const { return state_->finished; }

const Error* Coordinator::ended() const { return state_->ended ? &*state_->ended : nullptr; }

std::string Coordinator::describe_pace() const { return state_->pacing.describe(); }

std::vector<std::string> Coordinator::take_warnings() {
  return std::exchange(state_->warnings, {});
}

}  // namespace shoal::table
