// Keeps the account of a job's compute: which workers take part, how many steps are in the params,
// what each loss cost, and how much of the compute was useful. A step is a task of one worker (its
// clock): a forward and a backward pass, or, under schemes with local steps, several.
//
//   in the params   the steps that the workers have finished, as each says exactly at the end of
//                   its generation or of the job. Where all run in lockstep a lost worker's steps
//                   are those of the slowest other at the end of that generation, less one; under
//                   other schemes those of the last clock heard of it, at most a second old.
//   computed        these, and those that are in no params: the step that a lost worker was in,
//                   and, where the loss interrupts all, the step of each other and what it makes
//                   again.
//   could have been computed   for each process its steps computed, divided by the time that it
//                   trained, times that time and the time that losses took: from a stop to the
//                   moment at which all train again (a loss, or the joining of a process in a lost
//                   one's place), and of a lost process until another, which joins, begins in its
//                   place, or until the job's end. A process without a step counts as the mean.
//
// The account does not know of pushes that the scheme throws away (sync_backup, weed_out), nor of
// updates that went with the only copy of a row: it counts their steps as in the params.
#pragma once

#include <map>

#include "shoal/table/coordinator/members.h"

namespace shoal::table {

class Participation {
 public:
  static constexpr std::size_t kMostFaults = 64;  // that are named, the last ones

  // `silence`: after which a process that says nothing is lost.
  Participation(Members& members, Instant silence) : members_(members), silence_(silence) {}

  // Begins a generation. `ends` says where the workers of the last one have stopped.
  void regroup(const RosterBody& roster, const std::map<Rank, SegmentBody>& ends);
  // Notes that a worker begins the generation at this clock, if that is not the roster's: the first
  // one may go on from a snapshot.
  void begins(Rank rank, Clock clock);
  // Notes that the rows exist, and all workers train.
  void train();
  // Notes that the worker has finished so many steps; where all are in lockstep, so have all.
  void heard(Rank rank, Clock clock, bool lockstep);
  // Notes how many steps the worker had finished when a loss interrupted it.
  void reunites(Rank rank, Clock clock);
  // Notes the loss of a process of this generation. `interrupts`: no other finishes its step.
  // Without a scheme all are taken to be in lockstep.
  void lose(Rank rank, const Error& why, bool interrupts, const std::optional<SchemeSpec>& scheme);
  void done(Rank rank, Clock clock);
  void finish();
  // Returns the account up to now.
  AccountBody account();
  void state(auto& io) {
    io(parts_, faults_, losses_, generation_, begun_at_, at_, trained_at_, lost_at_, trains_,
       interrupted_, replaces_, ended_);
  }

 private:
  enum class Place : std::uint8_t {
    kHere,  // it trains, or waits for others to train with
    kLost,  // and nobody is in its place
    kGone,  // it has left or is done, or another is in its place
  };
  struct Part {
    Place place = Place::kHere;
    Clock begin = 0, clock = 0;  // finished steps: when the generation began, now
    Clock steps = 0;             // in the params, of earlier generations
    Clock discarded = 0;         // computed, and not in the params
    Clock interrupted_at = 0;    // finished steps then, in this generation; 0: it was not
    std::uint32_t fault = 0;     // that has lost it; 0: none
    bool by_others = false;      // in this generation, and the others' clocks will tell its own
    Instant trained{}, lost{};   // times, up to at_
    void state(auto& io) {
      io(place, begin, clock, steps, discarded, interrupted_at, fault, by_others, trained, lost);
    }
    Clock computed() const { return steps + clock - begin + discarded; }
    void settle() { steps += clock - std::exchange(begin, clock); }
  };
  struct Fault {
    std::uint32_t number = 0;  // from 1
    Rank rank = 0;
    std::string host, why;
    Generation generation = 0;                 // in which it was lost
    Instant since{};                           // it was heard last
    std::optional<Instant> stopped{};          // the others
    std::optional<Instant> resumed{}, back{};  // all train again; another begins in its place
    Clock steps = 0;                           // computed, and lost with it
    void state(auto& io) {
      io(number, rank, host, why, generation, since, stopped, resumed, back, steps);
    }
  };

  Part* here(Rank rank) {
    const auto found = parts_.find(rank);
    return found != parts_.end() && found->second.place == Place::kHere ? &found->second : nullptr;
  }
  // Returns whether the others wait because of a loss.
  bool paused() const {
    return replaces_ || std::ranges::any_of(faults_, [](const Fault& fault) {
             return fault.stopped && !fault.resumed;
           });
  }
  void pass();
  Instant this_generation(Instant from) const;
  void take_back(Part& part, Instant from) const;
  bool replace();
  void end(Part& part, Clock clock);
  void settle_lost(Clock least);

  Members& members_;
  const Instant silence_;
  std::map<Rank, Part> parts_;  // of all that have worked
  std::vector<Fault> faults_;   // the last ones
  std::uint32_t losses_ = 0;    // of processes that others went on without
  Generation generation_ = 0;
  std::optional<Instant> begun_at_;  // training
  Instant at_{};                     // the parts' times are of until then
  Instant trained_at_{};             // since then this generation trains
  std::optional<Instant> lost_at_;   // the first loss that the next generation is to be without
  bool trains_ = false;              // this generation
  bool interrupted_ = false;         // it, by a loss
  bool replaces_ = false;            // it has a process in a lost one's place, and trains not yet
  bool ended_ = false;
};

}  // namespace shoal::table
