#include "shoal/table/coordinator.h"

#include <algorithm>
#include <utility>

#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/table/coordinator/membership.h"
#include "shoal/table/scheme.h"

namespace shoal::table {

// Answers the questions of workers, each by the part that it concerns.
struct Coordinator::State {
  explicit State(const CoordinatorOptions& options)
      : parts(options.processes,
              [this](const Rounds::Round& round, std::vector<Dispatch>& out) {
                return membership.next_generation(round, out);
              }),
        membership(parts, options.seed),
        maker(options.maker) {}

  Status ask(std::uint32_t rank, const Ask& ask, Instant now, std::vector<Dispatch>& out);
  Status check(std::uint32_t rank, const Ask& ask);
  Status next_scheme(std::uint32_t rank, const Ask& ask, Instant now, std::vector<Dispatch>& out);
  bool is_to_stop(std::uint32_t rank);
  std::optional<Error> stuck();

  CoordinatorParts parts;
  Membership membership;
  Members& members = parts.members;
  const SchemeMaker maker;
  Clock scheme_generation = -1;  // the last that worker 0 said
  std::string paced;             // the scheme whose pacer decides
};

// Returns why a worker cannot ask this question where it is.
Status Coordinator::State::check(std::uint32_t rank, const Ask& ask) {
  const bool about_task = ask.topic == Topic::kBegin || ask.topic == Topic::kJudge;
  if (!about_task && !Rounds::is_one(ask.topic)) return {};
  const auto wrong = [&](const char* verb, const char* where) {
    return broken(
        str(members.name(rank), verb, "asks for ", name_of(ask.topic), ' ', ask.clock, where));
  };
  if (members[rank].done) return wrong(" is done and ", "");
  if (ask.topic != Topic::kBegin && parts.pacing.waits(rank))
    return wrong(" ", " while it waits for the start of a task");
  if (about_task && parts.rounds.waits(rank)) return wrong(" ", " while it waits in a round");
  return {};
}

Status Coordinator::State::ask(std::uint32_t rank, const Ask& ask, Instant now,
                               std::vector<Dispatch>& out) {
  const Member& member = members[rank];
  if (ask.topic == Topic::kLeave) return membership.leave(rank, ask, now, out);
  if (member.worker < 0)
    return members.broken(rank, " is a server alone and asks for ", name_of(ask.topic),
                          ", which is for workers");
  if (ask.topic == Topic::kDone) return membership.done(rank, ask, now, out);
  const bool round = Rounds::is_one(ask.topic);
  if (!member.done) {
    if (ask.topic == Topic::kMeet)
      parts.pacing.stop_asking(rank, decode_meeting(ask.body) == Meeting::kEnd, now, out);
    if (round && is_to_stop(rank)) parts.pacing.stop_asking(rank, false, now, out);
  }
  if (Status status = check(rank, ask); !status.ok()) return status;
  if (round) return parts.rounds.ask(rank, ask, out);
  if (member.done) return {};
  switch (ask.topic) {
    case Topic::kOutputs: return parts.outputs.tell(rank, ask, out);
    case Topic::kPause:
      if (ask.body == encode(Want::kRegroup))
        parts.regrouping.want(members.name(rank) + " asks for it", "");
      return parts.agreement.want(rank, ask, out);
    case Topic::kPaused: {
      const Status status = parts.agreement.paused(rank, ask, out);
      parts.rounds.close(out);
      return status;
    }
    case Topic::kBegin: return parts.pacing.begin(rank, ask, now, out);
    case Topic::kJudge: return parts.pacing.judge(rank, ask, now, out);
    case Topic::kScheme: return next_scheme(rank, ask, now, out);
    case Topic::kReport: {
      Result<std::string> line = parts.stragglers.take(rank, ask.body);
      if (!line.ok()) return line.error();
      membership.warn(std::move(line).value());
      return {};
    }
    default:
      return members.broken(rank, " asks for topic ", static_cast<int>(ask.topic),
                            ", which is not known here");
  }
}

Status Coordinator::State::next_scheme(std::uint32_t rank, const Ask& ask, Instant now,
                                       std::vector<Dispatch>& out) {
  if (members[rank].worker != 0)
    return members.broken(rank, " says what scheme is next, and only worker 0 may");
  if (ask.clock <= scheme_generation) return {};
  const auto scheme = maker(ask.body);
  if (!scheme.ok()) return scheme.error();
  scheme_generation = ask.clock;
  parts.regrouping.plans(scheme.value()->spec());
  if (std::exchange(paced, ask.body) == ask.body && ask.clock > 0)
    parts.pacing.go_on(now, out);
  else
    parts.pacing.use(scheme.value()->make_pacer(), now, out);
  return {};
}

// It waits for the start of a task before which all stop: it has been told, and asks for something
// else next.
bool Coordinator::State::is_to_stop(std::uint32_t rank) {
  const std::optional<Clock> task = parts.pacing.waits_for(rank);
  return task && parts.agreement.stops_at(*task);
}

// Why the workers can never go on, if they cannot.
std::optional<Error> Coordinator::State::stuck() {
  if (parts.rounds.mismatch()) return parts.rounds.mismatch();
  const std::vector<std::uint32_t> active = members.active();
  const auto waits = [&](std::uint32_t rank) {
    return parts.rounds.waits(rank) || (parts.pacing.waits(rank) && !is_to_stop(rank));
  };
  if (active.empty() || parts.agreement.is_due() || !std::ranges::all_of(active, waits))
    return std::nullopt;
  std::vector<std::string> places = parts.rounds.places();
  for (std::string& place : parts.pacing.places()) places.push_back(std::move(place));
  return broken("the workers wait for each other in different places and none can go on: ",
                shoal::join(places, "; "), ". Do all run the same program, solver and iterations?");
}

Coordinator::Coordinator(const CoordinatorOptions& options)
    : state_(std::make_unique<State>(options)) {
  CHECK_GE(options.processes, 1u);
  if (options.scheme.empty()) return;
  const auto scheme = options.maker(options.scheme);
  CHECK(scheme.ok()) << scheme.error().message;
  std::vector<Dispatch> nobody_waits;
  state_->parts.pacing.use(scheme.value()->make_pacer(), {}, nobody_waits);
  state_->parts.regrouping.plans(scheme.value()->spec());
}
Coordinator::~Coordinator() = default;

Status Coordinator::handle(std::uint32_t rank, const Message& message, Instant now,
                           std::vector<Dispatch>& out) {
  if (const auto* ping = std::get_if<Ping>(&message)) {
    heard(rank, ping->clock);
    return {};
  }
  const auto* ask = std::get_if<Ask>(&message);
  if (ask && ask->topic == Topic::kJoin) return state_->membership.join(rank, *ask, now, out);
  if (ended()) return {};  // all have been told
  if (rank < state_->members.size() && state_->members[rank].left) return {};
  if (rank >= state_->members.size() || !state_->members[rank].joined)
    return broken(
        str("rank ", rank, " sends ", name_of(type_of(message)), " before it has joined"));
  if (const auto* directive = std::get_if<Directive>(&message);
      directive && directive->kind == DirectiveKind::kAbort) {
    const auto whose = static_cast<std::uint32_t>(directive->clock);
    if (whose == rank && !state_->members.is_founding(rank) && !state_->membership.in_roster(rank))
      lost(rank, directive->code, directive->text, out);
    else if (whose == rank)
      state_->membership.end(
          {directive->code, str(state_->members.name(rank), " has ended: ", directive->text)}, rank,
          out);
    else
      lost(whose, directive->code, directive->text, out);
    return {};
  }
  if (!roster())
    return broken(state_->members.name(rank), " sends ", name_of(type_of(message)),
                  " before all have joined");
  if (const auto* norm = std::get_if<Norm>(&message))
    return state_->parts.norms.take(rank, *norm, out);
  if (!ask)
    return broken(state_->members.name(rank), " sends ", name_of(type_of(message)),
                  " to the coordinator");
  const Status status = state_->ask(rank, *ask, now, out);
  state_->membership.warn(state_->parts.outputs.take_warning());
  for (std::string& line : state_->parts.pacing.take_remarks())
    state_->membership.warn(std::move(line));
  if (std::optional<Error> fault = state_->stuck())
    state_->membership.end(*std::move(fault), kNoOne, out);
  return status;
}

void Coordinator::regroup(const std::string& why, const std::string& scheme, Clock from,
                          std::vector<Dispatch>& out) {
  if (!roster() || ended() || finished()) return;
  if (state_->parts.regrouping.want(why, scheme))
    state_->parts.agreement.want(Want::kRegroup, from, out);
}

void Coordinator::lost(std::uint32_t rank, Code code, const std::string& why,
                       std::vector<Dispatch>& out) {
  state_->membership.lose(rank, code, why, out);
}

void Coordinator::heard(std::uint32_t rank, Clock clock) {
  if (rank < state_->members.size())
    state_->members[rank].clock = std::max(state_->members[rank].clock, clock);
}

const RosterBody* Coordinator::roster() const { return state_->membership.roster(); }

std::vector<std::uint32_t> Coordinator::missing() const {
  std::vector<std::uint32_t> ranks =
      state_->members.which([](const Member& member) { return !member.joined; });
  std::erase_if(ranks, [this](std::uint32_t rank) { return !state_->members.is_founding(rank); });
  return ranks;
}

std::uint32_t Coordinator::processes() const { return state_->members.size(); }

std::uint32_t Coordinator::enroll() { return state_->members.enroll(); }

std::string Coordinator::waiting_for() const {
  if (ended() || finished()) return {};
  const Members& members = state_->members;
  if (const std::vector<std::uint32_t> absent = missing(); !absent.empty())
    return "start: waiting for " + members.names(absent);
  std::vector<std::string> lines = state_->parts.rounds.waiting_for();
  for (std::string& line : state_->parts.norms.waiting_for()) lines.push_back(std::move(line));
  if (std::string line = state_->parts.agreement.waiting_for(); !line.empty())
    lines.push_back(std::move(line));
  if (std::string line = state_->parts.pacing.waiting_for(); !line.empty())
    lines.push_back(std::move(line));
  if (state_->membership.any_done())
    lines.push_back("end: waiting for " + members.names(members.active()));
  return join(lines, "; ");
}

bool Coordinator::finished() const { return state_->membership.finished(); }

const Error* Coordinator::ended() const { return state_->membership.ended(); }

std::string Coordinator::describe_pace() const { return state_->parts.pacing.describe(); }

std::vector<std::string> Coordinator::take_warnings() { return state_->membership.take_warnings(); }

}  // namespace shoal::table
