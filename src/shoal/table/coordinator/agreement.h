// When all do what one of them wants: each worker says which iteration it will surely finish and
// goes no further until it hears the agreed clock, which is the largest of these. Nobody has passed
// it then, and everybody reaches it. Workers that no bound keeps together (they say so) agree on
// the clock that each has said, those that are in step with each other after as many iterations,
// and meet there (Topic::kMeet).
#pragma once

#include <map>
#include <set>

#include "shoal/table/coordinator/members.h"

namespace shoal::table {

class Agreement {
 public:
  // `scheme`: of the present generation.
  Agreement(Members& members, const SchemeSpec& scheme) : members_(members), scheme_(scheme) {}
  // A want that comes while an agreement is open becomes part of it: of two wants the more urgent
  // counts.
  Status want(Rank rank, const Ask& ask);
  // The coordinator's own: of workers that a bound keeps together the clock is at least `from`.
  void want(Want want, Clock from);
  Status paused(Rank rank, const Ask& ask);
  // The worker begins at this clock, and hears what was agreed on for later.
  void admit(Rank rank, Clock clock) const;
  // The next generation begins: what was put off until then is wanted now. One that `passes` by
  // itself is not stopped for anything.
  void begin_generation(bool passes);
  // Goes on without workers that are done now.
  void close();
  // A worker has ended the run at this clock. Where a bound keeps all together no generation ends
  // before it: the next one would have this worker in it.
  void ended(Clock clock) { ended_ = std::max(ended_, clock); }
  // Where a bound keeps the workers together: they stop before their iteration `clock`. Somebody
  // may yet be on its way to one stop when the next is agreed on.
  bool stops_at(Clock clock) const { return stops_.contains(clock); }
  // Not all have said yet where they pause.
  bool open() const { return open_; }
  // Workers apart are on their way to a meeting.
  bool is_due() const { return open_ || to_do_ != Want::kNothing; }
  // They have met: what they do.
  Want take() { return std::exchange(to_do_, Want::kNothing); }
  // "agreement on a stop: waiting for rank 2"; "" if there is nothing to agree on.
  std::string waiting_for() const;

 private:
  struct Wanted {
    Clock clock = -1;
    Want want = Want::kNothing;
    bool operator==(const Wanted&) const = default;
  };

  void align();

  Members& members_;
  const SchemeSpec& scheme_;
  std::map<Rank, Wanted> wanted_;  // last, by rank
  bool open_ = false;
  Want want_ = Want::kNothing;
  Want put_off_ = Want::kNothing;  // until the next generation, and is agreed on in that
  bool passes_ = false;            // this one does
  Clock from_ = 0, ended_ = 0;
  std::map<Rank, Clock> clocks_;  // said in this agreement
  // iterations of the generation, of workers that are apart
  std::map<Rank, Clock> done_;
  Directive agreed_{};  // the last one's; clocks of agreements rise
  // agreed on with a bound, at which somebody may still be
  std::set<Clock> stops_;
  bool apart_ = false;           // workers have clocks of their own
  Want to_do_ = Want::kNothing;  // at the next meeting
};

}  // namespace shoal::table
