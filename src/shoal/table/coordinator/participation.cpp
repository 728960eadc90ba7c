#include "shoal/table/coordinator/participation.h"

#include "shoal/base/timer.h"

namespace shoal::table {

// Adds the time since the last event to the parts' times.
void Participation::pass() {
  const Instant since = std::exchange(at_, members_.now);
  if (!begun_at_) return;
  const bool paused = this->paused();
  for (auto& [rank, part] : parts_) {
    if (part.place == Place::kGone) continue;
    const bool trains = part.place == Place::kHere && !paused;
    (trains ? part.trained : part.lost) += at_ - since;
  }
}

void Participation::regroup(const RosterBody& roster, const std::map<Rank, SegmentBody>& ends) {
  pass();
  Clock least = kUnbounded;
  for (const auto& [rank, said] : ends) {
    least = std::min(least, said.clock);
    if (Part* const part = here(rank)) end(*part, said.clock);
  }
  settle_lost(least);
  for (Fault& fault : faults_)
    if (!fault.resumed && !fault.stopped) fault.stopped = at_;
  for (const RosterBody::Process& process : roster.processes) {
    const auto known = parts_.find(process.rank);
    if (process.worker < 0) {
      if (Part* const part = here(process.rank)) part->place = Place::kGone;
    } else if (known == parts_.end()) {
      parts_[process.rank].begin = parts_[process.rank].clock = process.clock;
      replaces_ = replace() || replaces_;
    } else if (known->second.place == Place::kHere) {
      known->second.begin = known->second.clock = process.clock;
    }
  }
  generation_ = roster.generation;
  trains_ = interrupted_ = false;
  if (lost_at_)
    members_.warn(str("the job goes on ", to_seconds(at_ - *std::exchange(lost_at_, {})),
                      " s after the loss"));
}

// Puts a process that joins into the place of the one that was lost first. Returns whether there
// is one.
bool Participation::replace() {
  Part* first = nullptr;
  for (auto& [rank, part] : parts_)
    if (part.place == Place::kLost && (!first || part.fault < first->fault)) first = &part;
  if (!first) return false;
  first->place = Place::kGone;
  for (Fault& fault : faults_)
    if (fault.number == first->fault) fault.back = at_;
  return true;
}

void Participation::begins(Rank rank, Clock clock) {
  if (Part* const part = here(rank); part && !trains_) part->begin = part->clock = clock;
}

void Participation::train() {
  if (std::exchange(trains_, true)) return;
  pass();
  if (!begun_at_) begun_at_ = at_;
  trained_at_ = at_;
  replaces_ = false;
  for (Fault& fault : faults_)
    if (!fault.resumed && fault.generation != generation_) fault.resumed = at_;
}

void Participation::heard(Rank rank, Clock clock, bool lockstep) {
  if (Part* const part = here(rank)) part->clock = std::max(part->clock, clock);
  for (auto& [other, part] : parts_)
    if (lockstep && part.place == Place::kHere) part.clock = std::max(part.clock, clock);
}

void Participation::reunites(Rank rank, Clock clock) {
  if (Part* const part = here(rank)) part->interrupted_at = std::max(part->interrupted_at, clock);
}

void Participation::lose(Rank rank, const Error& why, bool interrupts,
                         const std::optional<SchemeSpec>& scheme) {
  pass();
  lost_at_ = lost_at_.value_or(at_);
  Fault fault{.number = ++losses_,
              .rank = rank,
              .host = members_[rank].body.host,
              .why = why.message,
              .generation = generation_,
              .since = why.code == Code::kTimeout ? at_ - silence_ : at_};
  const auto made = scheme ? scheme->make() : broken("no scheme is known");
  const Scheme* const known = made.ok() ? made.value().get() : nullptr;
  const Instant from = this_generation(fault.since);
  Part* const lost = here(rank);
  // The others have stood still since then where a bound keeps them near the lost one.
  const bool stops = interrupts || !known || known->bounded();
  for (auto& [other, part] : parts_)
    if (part.place == Place::kHere && (stops || &part == lost)) take_back(part, from);
  if (stops) fault.stopped = from;
  if (lost) {
    lost->clock = std::max(lost->clock, members_[rank].clock);
    lost->by_others = trains_ && (interrupts || !known || known->lockstep);
    lost->fault = losses_;
    lost->place = Place::kLost;
    if (trains_ && !interrupted_) lost->discarded += 1, fault.steps += 1;
  }
  if (interrupts && trains_ && !std::exchange(interrupted_, true))
    for (auto& [other, part] : parts_)
      if (part.place == Place::kHere) part.discarded += 1, fault.steps += 1;
  if (faults_.size() == kMostFaults) faults_.erase(faults_.begin());
  faults_.push_back(std::move(fault));
}

// Returns that instant, or the first after it at which this generation trained.
Instant Participation::this_generation(Instant from) const {
  return trains_ ? std::clamp(from, trained_at_, at_) : at_;
}

// Counts the time from then on as lost, as far as another loss has not done so.
void Participation::take_back(Part& part, Instant from) const {
  Instant until = at_;
  for (const Fault& fault : faults_)
    if (!fault.resumed) until = std::min(until, fault.stopped.value_or(until));
  const Instant moved = std::clamp(until - from, Instant(), part.trained);
  part.trained -= moved;
  part.lost += moved;
}

void Participation::end(Part& part, Clock clock) {
  part.clock = clock;
  if (const Clock again = std::exchange(part.interrupted_at, 0) - clock; again > 0) {
    part.discarded += again;
    if (!faults_.empty()) faults_.back().steps += again;
  }
  part.settle();
}

// Decides how far the workers came that were lost in this generation. `least`: of the others.
void Participation::settle_lost(Clock least) {
  for (auto& [rank, part] : parts_) {
    if (part.place != Place::kLost) continue;
    if (std::exchange(part.by_others, false) && least != kUnbounded)
      part.clock = std::max(part.clock, least - 1);
    part.settle();
  }
}

void Participation::done(Rank rank, Clock clock) {
  pass();
  Part* const part = here(rank);
  if (!part) return;
  end(*part, clock);
  part->place = Place::kGone;
}

void Participation::finish() {
  pass();
  Clock least = kUnbounded;
  for (const auto& [rank, part] : parts_)
    if (part.place == Place::kGone && members_[rank].done && !members_[rank].left)
      least = std::min(least, part.clock);
  settle_lost(least);
  ended_ = true;
  if (losses_ > 0)
    members_.warn(str(losses_, losses_ == 1 ? " process was" : " processes were",
                      " lost, and the job has ended well"));
}

AccountBody Participation::account() {
  pass();
  const auto seconds = [](Instant from, std::optional<Instant> to) {
    return to ? to_seconds(*to - from) : -1;
  };
  const auto is_here = [](const Member& member) { return member.works() && !member.left; };
  AccountBody body{.alive = static_cast<std::uint32_t>(members_.here().size()),
                   .taking_part = static_cast<std::uint32_t>(members_.which(is_here).size()),
                   .losses = losses_,
                   .ended = ended_};
  const Instant start = begun_at_.value_or(at_);
  body.seconds = seconds(start, at_);
  double trained = 0, computed = 0, without_a_step = 0;
  for (const auto& [rank, part] : parts_) {
    const auto steps = static_cast<double>(part.computed());
    body.computed += part.computed();
    body.in_params += part.computed() - part.discarded;
    if (steps > 0 && part.trained > Instant()) {
      body.possible += steps * (to_seconds(part.trained + part.lost) / to_seconds(part.trained));
      trained += to_seconds(part.trained);
      computed += steps;
    } else {
      body.possible += steps;
      without_a_step += to_seconds(part.trained + part.lost);
    }
  }
  if (losses_ > 0 && trained > 0) body.possible += without_a_step * computed / trained;
  for (const Fault& fault : faults_)
    body.faults.push_back({.number = fault.number,
                           .rank = fault.rank,
                           .host = fault.host,
                           .why = fault.why,
                           .since = seconds(start, fault.since),
                           .stopped = seconds(fault.stopped.value_or(at_), fault.resumed),
                           .back = seconds(fault.since, fault.back),
                           .steps = fault.steps});
  return body;
}

}  // namespace shoal::table
