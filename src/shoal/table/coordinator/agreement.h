// Finds the clock at which all workers do what one of them requests, a snapshot for example. Each
// worker reports the iteration that it will surely finish, and goes no further until it gets the
// agreed clock, which is the largest of these. No worker has passed it then, and every worker
// reaches it. Workers that no bound keeps together (they report that) agree on the clock that each
// has reported, those in step with each other after as many iterations, and meet there
// (Topic::kMeet).
#pragma once

#include <map>
#include <set>

#include "shoal/base/bytes.h"
#include "shoal/table/coordinator/members.h"

namespace shoal::table {

class Agreement {
 public:
  // `scheme`: that of the present generation.
  Agreement(Members& members, const std::optional<SchemeSpec>& scheme)
      : members_(members), scheme_(scheme) {}
  // Adds a worker's want. While an agreement is open it becomes part of it: of two wants the more
  // urgent counts.
  Status want(Rank rank, const Ask& ask) {
    const Result<Want> want = decode<Want>(ask.body);
    if (!want.ok() || want.value() == Want::kNothing)
      return members_.broken(rank, " asks for a pause, but its ", ask.body.size(),
                             " bytes name no reason for it");
    const std::pair wanted(ask.clock, want.value());
    if (std::exchange(wanted_[rank], wanted) == wanted) return {};
    this->want(wanted.second);
    return {};
  }
  // Adds the coordinator's own want.
  void want(Want want) {
    if (passes_) {
      if (want != Want::kRegroup) put_off_ = more_urgent(put_off_, want);
      return;
    }
    const Want both = open_ ? more_urgent(want_, want) : want;
    if (open_ && both == Want::kRegroup && (want == Want::kSnapshot || want_ == Want::kSnapshot))
      put_off_ = Want::kSnapshot;
    want_ = both;
    if (std::exchange(open_, true)) return;
    apart_ = false;
    pauses_.clear();
    for (const Rank worker : members_.active())
      members_.say(worker, Directive{.kind = DirectiveKind::kPause, .want = want_, .text = {}});
  }
  Status paused(Rank rank, const Ask& ask) {
    const bool apart = ask.body.size() == sizeof(Clock);
    if (!apart && !ask.body.empty())
      return members_.broken(rank, " says where it pauses, with ", ask.body.size(),
                             " bytes for its clock; they must be 0 or 8");
    if (!open_ && agreed_.want == Want::kNothing)
      return members_.broken(rank, " says where it pauses, but was not asked to");
    if (!open_) {
      if (!apart_) members_.say(rank, agreed_);
      return {};
    }
    pauses_.try_emplace(rank, Pause{ask.clock, apart ? get_le<Clock>(ask.body) : 0});
    apart_ = apart_ || apart;
    close();
    return {};
  }
  // Admits a worker that begins at this clock, and tells it the agreements for later clocks.
  void admit(Rank rank, Clock clock) const {
    const bool due =
        apart_ ? to_do_ != Want::kNothing : agreed_.want != Want::kNothing && agreed_.clock > clock;
    if (!due) return;
    Directive directive = agreed_;
    if (apart_) directive.clock = clock, directive.want = to_do_;
    members_.say(rank, directive);
  }
  // Begins the next generation: wants that were put off until then count now. A generation that
  // `passes` by itself is not stopped for anything.
  void begin_generation(bool passes) {
    passes_ = passes;
    // It has come about, perhaps before the agreed clock (Topic::kReunite).
    if (agreed_.want == Want::kRegroup) agreed_.want = Want::kNothing;
    if (put_off_ != Want::kNothing && !passes_) want(std::exchange(put_off_, Want::kNothing));
  }
  // Goes on without workers that are done now.
  void close() {
    const std::vector<Rank> active = members_.active();
    if (!open_ || !std::ranges::all_of(active, [&](Rank rank) { return pauses_.contains(rank); }))
      return;
    open_ = false;
    if (active.empty()) return;
    requeues_ = requeues_ || want_ == Want::kRequeue;
    if (apart_) align();
    Clock agreed = want_ == Want::kRegroup && !apart_ ? ended_ : 0;
    if (agreed_.want != Want::kNothing) agreed = std::max(agreed, agreed_.clock + 1);
    Clock least = kUnbounded;
    for (const Rank rank : active)
      agreed = std::max(agreed, pauses_[rank].clock), least = std::min(least, pauses_[rank].clock);
    agreed_ = Directive{.kind = DirectiveKind::kAgreed, .clock = agreed, .want = want_, .text = {}};
    if (apart_) to_do_ = more_urgent(to_do_, want_);
    stops_.erase(stops_.begin(), stops_.lower_bound(least));
    if (!apart_) stops_.insert(agreed);
    for (const Rank rank : active) {
      Directive directive = agreed_;
      if (apart_) directive.clock = pauses_[rank].clock;
      members_.say(rank, directive);
    }
  }
  // Notes that a worker has ended the run at this clock. Where a bound keeps all together no
  // generation ends before it: the next one would have this worker in it.
  void ended(Clock clock) { ended_ = std::max(ended_, clock); }
  // Returns whether the workers stop before their iteration `clock`, where a bound keeps them
  // together. A worker may yet be on its way to one stop when the next is agreed on.
  bool stops_at(Clock clock) const { return stops_.contains(clock); }
  // Returns whether all stop, to be continued.
  bool requeues() const { return requeues_; }
  void state(auto& io) {
    io(wanted_, open_, requeues_, want_, put_off_, passes_, ended_, pauses_, agreed_, stops_,
       apart_, to_do_);
  }
  // Returns whether some workers have yet to report where they pause.
  bool open() const { return open_; }
  // Returns whether workers apart are on their way to a meeting.
  bool is_due() const { return open_ || to_do_ != Want::kNothing; }
  // Returns what the workers that have met do.
  Want take() { return std::exchange(to_do_, Want::kNothing); }
  // Adds "agreement on a stop: waiting for rank 2", if an agreement is open.
  void waiting_for(Lines& lines) const {
    constexpr const char* kNames[] = {"nothing", "a snapshot", "a stop", "a stop to be continued",
                                      "the next generation"};
    if (open_)
      lines.push_back(members_.waiting_for(str("agreement on ", kNames[static_cast<int>(want_)]),
                                           members_.active(), pauses_));
  }

 private:
  // A worker's report in this agreement.
  struct Pause {
    Clock clock = 0;
    Clock done = 0;  // iterations of the generation, of workers that are apart
    void state(auto& io) { io(clock, done); }
  };

  // Aligns workers in step: one of them that has begun an iteration waits at its end for the
  // others'. Their clocks differ as they did when the generation began.
  void align() {
    if (!scheme_ || !scheme_->groups) return;
    for (const std::vector<int>& workers : *scheme_->groups) {
      Clock most = 0;
      std::vector<Pause*> pauses;
      for (const int worker : workers)
        if (const auto said = pauses_.find(members_.rank_of_worker(worker)); said != pauses_.end())
          pauses.push_back(&said->second);
      for (const Pause* pause : pauses) most = std::max(most, pause->done);
      for (Pause* const pause : pauses) pause->clock += most - pause->done;
    }
  }

  Members& members_;
  const std::optional<SchemeSpec>& scheme_;
  std::map<Rank, std::pair<Clock, Want>> wanted_;  // last, and at which clock, by rank
  bool open_ = false;
  bool requeues_ = false;
  Want want_ = Want::kNothing;
  Want put_off_ = Want::kNothing;  // until the next generation, and is agreed on in that
  bool passes_ = false;            // this one does
  Clock ended_ = 0;
  std::map<Rank, Pause> pauses_;  // said in this agreement
  Directive agreed_{};            // the last one's; clocks of agreements rise
  // Agreed stops, under a bound, that a worker may not have reached yet.
  std::set<Clock> stops_;
  bool apart_ = false;           // workers have clocks of their own
  Want to_do_ = Want::kNothing;  // at the next meeting
};

}  // namespace shoal::table
