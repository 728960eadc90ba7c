#include "shoal/table/coordinator.h"

#include "shoal/base/log.h"
#include "shoal/base/try.h"

namespace shoal::table {

// Returns why a worker cannot ask this question where it is.
Status Coordinator::check(Rank rank, const Ask& ask) {
  const bool about_task = ask.topic == Topic::kBegin || ask.topic == Topic::kJudge;
  if (!about_task && !Rounds::is_one(ask.topic)) return {};
  const auto wrong = [&](const char* verb, const char* where) {
    return job_.members.broken(rank, verb, "asks for ", name_of(ask.topic), ' ', ask.clock, where);
  };
  if (job_.members[rank].done) return wrong(" is done and ", "");
  if (ask.topic != Topic::kBegin && job_.pacing.waits(rank))
    return wrong(" ", " while it waits for the start of a task");
  if (about_task && job_.rounds.waits(rank)) return wrong(" ", " while it waits in a round");
  return {};
}

Status Coordinator::ask(Rank rank, const Ask& ask) {
  const Member& member = job_.members[rank];
  if (ask.topic == Topic::kLeave) return membership_.leave(rank, ask);
  if (ask.topic == Topic::kPause && !member.works() && ask.body != encode(Want::kRegroup))
    return membership_.finished() ? Status() : job_.agreement.want(rank, ask);
  if (!member.works())
    return job_.members.broken(rank, " is a server and no worker, but asks for ",
                               name_of(ask.topic), ", which is for workers");
  if (ask.topic == Topic::kDone) return membership_.done(rank, ask);
  const bool round = Rounds::is_one(ask.topic);
  if (!member.done) {
    if (ask.topic == Topic::kMeet)
      job_.pacing.stop_asking(rank, decode_meeting(ask.body) == Meeting::kEnd);
    if (round && is_to_stop(rank)) job_.pacing.stop_asking(rank, false);
  }
  TRY(check(rank, ask));
  if (!member.done) take_part(rank, ask);
  if (round) return job_.rounds.ask(rank, ask);
  if (member.done) return {};
  switch (ask.topic) {
    case Topic::kOutputs: return job_.outputs.tell(rank, ask);
    case Topic::kPause:
      if (ask.body == encode(Want::kRegroup))
        job_.regrouping.want(job_.members.name(rank) + " asks for it");
      return job_.agreement.want(rank, ask);
    case Topic::kPaused: {
      const Status status = job_.agreement.paused(rank, ask);
      job_.rounds.close();
      return status;
    }
    case Topic::kBegin: return job_.pacing.begin(rank, ask);
    case Topic::kJudge: return job_.pacing.judge(rank, ask);
    case Topic::kScheme: return next_scheme(rank, ask);
    case Topic::kTolerances: return membership_.tolerances(rank, ask);
    case Topic::kReport: return report(rank, ask);
    default:
      return job_.members.broken(rank, " asks for topic ", static_cast<int>(ask.topic),
                                 ", which is not known here");
  }
}

// Notes how far the question shows the worker to be.
void Coordinator::take_part(Rank rank, const Ask& ask) {
  const bool begins = ask.topic == Topic::kBarrier && ask.clock == rows_exist(roster()->generation);
  if (ask.topic == Topic::kOutputs) job_.participation.heard(rank, ask.clock, false);
  if (ask.body.size() < sizeof(Clock)) return;
  if (begins) job_.participation.begins(rank, get_le<Clock>(ask.body));
  if (ask.topic == Topic::kReunite) job_.participation.reunites(rank, get_le<Clock>(ask.body));
}

// Takes a worker's times. The chief's are answered with the account.
Status Coordinator::report(Rank rank, const Ask& ask) {
  TRY(job_.stragglers.take(rank, ask.body));
  const auto& scheme = job_.regrouping.scheme();
  const bool is_chief = rank == job_.members.chief();
  const auto made = scheme && is_chief ? scheme->make() : broken("not asked for");
  job_.participation.heard(rank, ask.clock, made.ok() && made.value()->lockstep);
  if (is_chief) membership_.tell_account(rank, ask.clock);
  return {};
}

Status Coordinator::next_scheme(Rank rank, const Ask& ask) {
  if (job_.members[rank].worker != 0)
    return job_.members.broken(rank, " sends the next scheme, which only worker 0 may send");
  if (ask.clock <= scheme_generation_) return {};
  const Result<SchemeSpec> said = parse_scheme(ask.body);
  TRY(said);
  const auto scheme = maker_(said.value());
  TRY(scheme);
  scheme_generation_ = ask.clock;
  job_.regrouping.plans(scheme.value()->spec());
  if (std::exchange(paced_, said.value()) == said.value() && ask.clock > 0)
    job_.pacing.go_on();
  else
    job_.pacing.use(scheme.value()->make_pacer());
  return {};
}

// Returns whether the process waits for the start of a task before which all stop: it has been
// told, and asks something else next.
bool Coordinator::is_to_stop(Rank rank) {
  const std::optional<Clock> task = job_.pacing.waits_for(rank);
  return task && job_.agreement.stops_at(*task);
}

// Returns why the workers can never go on, if they cannot.
std::optional<Error> Coordinator::stuck() {
  if (job_.rounds.mismatch()) return job_.rounds.mismatch();
  const std::vector<Rank> active = job_.members.active();
  const auto waits = [&](Rank rank) {
    return job_.rounds.waits(rank) || (job_.pacing.waits(rank) && !is_to_stop(rank));
  };
  if (active.empty() || job_.agreement.is_due() || job_.rounds.reunite_apart() ||
      !std::ranges::all_of(active, waits))
    return std::nullopt;
  Lines places;
  job_.rounds.places(places);
  job_.pacing.places(places);
  return broken("the workers wait for each other in different places and none can go on: ",
                shoal::join(places, "; "), ". Do all run the same program, solver and iterations?");
}

Coordinator::Coordinator(const CoordinatorOptions& options)
    : job_(options.processes, options.silence,
           [this](const Rounds::Round& round) { return membership_.next_generation(round); }),
      membership_(job_, options.seed, options.losses),
      maker_(options.maker) {
  CHECK_GE(options.processes, 1u);
  if (options.ranks_by_order) job_.members.give_ranks();
  if (!options.scheme) return;
  const auto scheme = maker_(*options.scheme);
  CHECK(scheme.ok()) << scheme.error().message;
  paced_ = options.scheme;
  job_.pacing.use(scheme.value()->make_pacer());
  job_.regrouping.plans(scheme.value()->spec());
}

std::string Coordinator::save() {
  StateWriter io;
  state(io);
  job_.pacing.state(io);
  return io.take();
}

Status Coordinator::load(std::string_view bytes) {
  StateReader io(bytes);
  state(io);
  std::unique_ptr<Pacer> pacer;
  if (paced_) {
    const auto scheme = maker_(*paced_);
    TRY(scheme);
    pacer = scheme.value()->make_pacer();
  }
  job_.pacing.state(io, std::move(pacer));
  if (!io.ok())
    return broken("a coordinator's state of ", bytes.size(),
                  " bytes cannot be read: do all processes run the same program?");
  return {};
}

Status Coordinator::handle(Rank rank, const Message& message) {
  const auto* ask = std::get_if<Ask>(&message);
  if (ask && ask->topic == Topic::kJoin) return membership_.join(rank, *ask);
  if (membership_.ended()) return {};  // all have been told
  if (rank < job_.members.size() && job_.members[rank].left) return {};
  if (rank >= job_.members.size() || !job_.members[rank].joined)
    return broken("rank ", rank, " sends ", name_of(message), " before it has joined");
  if (const auto* directive = std::get_if<Directive>(&message)) {
    if (directive->kind == DirectiveKind::kAbort) abort(rank, *directive);
    // A process that had lost this one, while it was stopped, may say so after all.
    const bool is_own = directive->clock == static_cast<Clock>(membership_.coordinator());
    if (directive->kind == DirectiveKind::kLost && !is_own)
      membership_.lose(static_cast<Rank>(directive->clock), directive->code, directive->text);
    return {};
  }
  const auto wrong = [&](const char* when) {
    return job_.members.broken(rank, " sends ", name_of(message), when);
  };
  if (!membership_.roster()) return wrong(" before all have joined");
  if (const auto* norm = std::get_if<Norm>(&message)) return job_.norms.take(rank, *norm);
  if (!ask) return wrong(" to the coordinator");
  const Status status = this->ask(rank, *ask);
  if (std::optional<Error> fault = stuck()) membership_.end(*std::move(fault), kNoRank);
  return status;
}

// Handles a process that ends by itself, or that found another to break the protocol.
void Coordinator::abort(Rank rank, const Directive& directive) {
  const auto whose = static_cast<Rank>(directive.clock);
  if (whose != rank || (!job_.members.is_founding(rank) && !membership_.in_roster(rank)))
    membership_.lose(whose, directive.code, directive.text, false);
  else
    membership_.end({directive.code, str(job_.members.name(rank), " has ended: ", directive.text)},
                    rank);
}

Status Coordinator::handle(Rank rank, const Message& message, Instant now,
                           std::vector<Dispatch>& out) {
  if (const auto* ping = std::get_if<Ping>(&message)) {
    heard(rank, ping->clock);
    return {};
  }
  job_.members.now = now;
  const Status status = handle(rank, message);
  look_for_training();
  job_.members.move_messages_to(out);
  return status;
}

void Coordinator::lost(Rank rank, Code code, const std::string& why, Instant now,
                       std::vector<Dispatch>& out) {
  job_.members.now = now;
  membership_.lose(rank, code, why);
  look_for_training();
  job_.members.move_messages_to(out);
}

std::string Coordinator::waiting_for() {
  if (membership_.ended() || membership_.finished()) return {};
  if (const std::vector<Rank> absent = membership_.missing(); !absent.empty())
    return "start: waiting for " + job_.members.names(absent);
  Lines lines;
  job_.rounds.waiting_for(lines);
  job_.norms.waiting_for(lines);
  job_.agreement.waiting_for(lines);
  job_.pacing.waiting_for(lines);
  if (membership_.any_done())
    lines.push_back("end: waiting for " + job_.members.names(job_.members.active()));
  return shoal::join(lines, "; ");
}

}  // namespace shoal::table
