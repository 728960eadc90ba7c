#include "shoal/table/coordinator.h"

#include "shoal/base/log.h"

namespace shoal::table {

// Returns why a worker cannot ask this question where it is.
Status Coordinator::check(Rank rank, const Ask& ask) {
  const bool about_task = ask.topic == Topic::kBegin || ask.topic == Topic::kJudge;
  if (!about_task && !Rounds::is_one(ask.topic)) return {};
  const auto wrong = [&](const char* verb, const char* where) {
    return members.broken(rank, verb, "asks for ", name_of(ask.topic), ' ', ask.clock, where);
  };
  if (members[rank].done) return wrong(" is done and ", "");
  if (ask.topic != Topic::kBegin && pacing.waits(rank))
    return wrong(" ", " while it waits for the start of a task");
  if (about_task && rounds.waits(rank)) return wrong(" ", " while it waits in a round");
  return {};
}

Status Coordinator::ask(Rank rank, const Ask& ask) {
  const Member& member = members[rank];
  if (ask.topic == Topic::kLeave) return leave(rank, ask);
  if (ask.topic == Topic::kPause && !member.works() && ask.body != encode(Want::kRegroup))
    return finished() ? Status() : agreement.want(rank, ask);
  if (!member.works())
    return members.broken(rank, " is a server alone and asks for ", name_of(ask.topic),
                          ", which is for workers");
  if (ask.topic == Topic::kDone) return done(rank, ask);
  const bool round = Rounds::is_one(ask.topic);
  if (!member.done) {
    if (ask.topic == Topic::kMeet)
      pacing.stop_asking(rank, decode_meeting(ask.body) == Meeting::kEnd);
    if (round && is_to_stop(rank)) pacing.stop_asking(rank, false);
  }
  if (Status status = check(rank, ask); !status.ok()) return status;
  if (round) return rounds.ask(rank, ask);
  if (member.done) return {};
  switch (ask.topic) {
    case Topic::kOutputs: return outputs.tell(rank, ask);
    case Topic::kPause:
      if (ask.body == encode(Want::kRegroup)) regrouping.want(members.name(rank) + " asks for it");
      return agreement.want(rank, ask);
    case Topic::kPaused: {
      const Status status = agreement.paused(rank, ask);
      rounds.close();
      return status;
    }
    case Topic::kBegin: return pacing.begin(rank, ask);
    case Topic::kJudge: return pacing.judge(rank, ask);
    case Topic::kScheme: return next_scheme(rank, ask);
    case Topic::kReport: return stragglers.take(rank, ask.body);
    default:
      return members.broken(rank, " asks for topic ", static_cast<int>(ask.topic),
                            ", which is not known here");
  }
}

Status Coordinator::next_scheme(Rank rank, const Ask& ask) {
  if (members[rank].worker != 0)
    return members.broken(rank, " says what scheme is next, and only worker 0 may");
  if (ask.clock <= scheme_generation_) return {};
  const auto scheme = maker_(ask.body);
  if (!scheme.ok()) return scheme.error();
  scheme_generation_ = ask.clock;
  regrouping.plans(scheme.value()->spec());
  if (std::exchange(paced_, ask.body) == ask.body && ask.clock > 0)
    pacing.go_on();
  else
    pacing.use(scheme.value()->make_pacer());
  return {};
}

// It waits for the start of a task before which all stop: it has been told, and asks for something
// else next.
bool Coordinator::is_to_stop(Rank rank) {
  const std::optional<Clock> task = pacing.waits_for(rank);
  return task && agreement.stops_at(*task);
}

// Why the workers can never go on, if they cannot.
std::optional<Error> Coordinator::stuck() {
  if (rounds.mismatch()) return rounds.mismatch();
  const std::vector<Rank> active = members.active();
  const auto waits = [&](Rank rank) {
    return rounds.waits(rank) || (pacing.waits(rank) && !is_to_stop(rank));
  };
  if (active.empty() || agreement.is_due() || !std::ranges::all_of(active, waits))
    return std::nullopt;
  Lines places;
  rounds.places(places);
  pacing.places(places);
  return broken("the workers wait for each other in different places and none can go on: ",
                shoal::join(places, "; "), ". Do all run the same program, solver and iterations?");
}

Coordinator::Coordinator(const CoordinatorOptions& options)
    : Membership(options.processes, options.seed), maker_(options.maker) {
  CHECK_GE(options.processes, 1u);
  if (options.ranks_by_order) members.give_ranks();
  if (options.scheme.empty()) return;
  const auto scheme = maker_(options.scheme);
  CHECK(scheme.ok()) << scheme.error().message;
  pacing.use(scheme.value()->make_pacer());
  regrouping.plans(scheme.value()->spec());
}

Status Coordinator::handle(Rank rank, const Message& message) {
  const auto* ask = std::get_if<Ask>(&message);
  if (ask && ask->topic == Topic::kJoin) return join(rank, *ask);
  if (ended()) return {};  // all have been told
  if (rank < members.size() && members[rank].left) return {};
  if (rank >= members.size() || !members[rank].joined)
    return broken("rank ", rank, " sends ", name_of(message), " before it has joined");
  if (const auto* directive = std::get_if<Directive>(&message);
      directive && directive->kind == DirectiveKind::kAbort) {
    abort(rank, *directive);
    return {};
  }
  const auto wrong = [&](const char* when) {
    return members.broken(rank, " sends ", name_of(message), when);
  };
  if (!roster()) return wrong(" before all have joined");
  if (const auto* norm = std::get_if<Norm>(&message)) return norms.take(rank, *norm);
  if (!ask) return wrong(" to the coordinator");
  const Status status = this->ask(rank, *ask);
  if (std::optional<Error> fault = stuck()) end(*std::move(fault), kNoRank);
  return status;
}

// The process has lost another, or ends by itself.
void Coordinator::abort(Rank rank, const Directive& directive) {
  const auto whose = static_cast<Rank>(directive.clock);
  if (whose != rank || (!members.is_founding(rank) && !in_roster(rank)))
    lose(whose, directive.code, directive.text);
  else
    end({directive.code, str(members.name(rank), " has ended: ", directive.text)}, rank);
}

Status Coordinator::handle(Rank rank, const Message& message, Instant now,
                           std::vector<Dispatch>& out) {
  if (const auto* ping = std::get_if<Ping>(&message)) {
    heard(rank, ping->clock);
    return {};
  }
  members.now = now;
  const Status status = handle(rank, message);
  members.move_messages_to(out);
  return status;
}

void Coordinator::lost(Rank rank, Code code, const std::string& why, std::vector<Dispatch>& out) {
  lose(rank, code, why);
  members.move_messages_to(out);
}

std::string Coordinator::waiting_for() {
  if (ended() || finished()) return {};
  if (const std::vector<Rank> absent = missing(); !absent.empty())
    return "start: waiting for " + members.names(absent);
  Lines lines;
  rounds.waiting_for(lines);
  norms.waiting_for(lines);
  agreement.waiting_for(lines);
  pacing.waiting_for(lines);
  if (any_done()) lines.push_back("end: waiting for " + members.names(members.active()));
  return shoal::join(lines, "; ");
}

}  // namespace shoal::table
