// The next generation of a job: the one way in which who takes part, the scheme or its groups
// change while a job trains.
//
//   1  Somebody wants it: a worker (Want::kRegroup), the coordinator itself (Coordinator::regroup),
//   a process that joins or leaves; or a phase of
//      the solver ends, which all workers know by themselves.
//   2  All workers stop where they agree on: at one clock, or, where no bound holds them together,
//   each at the end of the task it is in. 3  Each has heard of all its pushes, the chief holds what
//   a snapshot would; each says so (Topic::kRegroup, a SegmentBody). 4  When all have, next() says
//   who is what from then on, and in whose words the plan is. All get the same; each builds its
//   solver anew,
//      over a plan of that generation with the chief's numbers.
//
// It gathers the changes until then; several wishes become one generation.
#pragma once

#include <map>

#include "shoal/table/coordinator/members.h"

namespace shoal::table {

class Regrouping {
 public:
  explicit Regrouping(Members& members) : members_(members) {}

  // The first roster of the job: all founding processes.
  RosterBody first(std::uint64_t seed);
  // `why`, for people; `scheme`, in words for the workers as they are numbered now: "": it stays.
  // False if the next generation is on its way already.
  bool want(const std::string& why, const std::string& scheme);
  bool is_wanted() const { return wanted_; }
  // The scheme with which worker 0 plans this generation.
  void plans(const SchemeSpec& scheme) {
    spec_ = scheme;
    roster_.scheme = spec_.words();
  }

  // The workers in `ends` are all there are, and at their ends. Who was leaving has left, and who
  // came since the last has joined, where the slowest is. `seconds`: of an iteration, of the
  // process with this rank; 0: not known. What the chief says of weights and bandwidths fits
  // (why_not).
  RosterBody next(const std::map<Rank, SegmentBody>& ends,
                  const std::function<double(Rank)>& seconds);
  // Returns why the chief's words are wrong; "" if they are not.
  std::string why_not(const SegmentBody& chief) const;
  const SchemeSpec& scheme() const { return spec_; }

 private:
  void take(const SegmentBody& chief);
  void weigh_new();
  double mean_bandwidth() const;
  bool knows_not_all() const;
  void number();
  void list(const std::map<Rank, Clock>& clocks, Clock least);
  std::vector<Rank> workers() const;  // ranks, by number

  Members& members_;
  RosterBody roster_;
  SchemeSpec spec_{.name = ""};  // the present one; no name: it was not said yet
  bool wanted_ = false;
  std::vector<std::string> whys_;
  std::vector<Rank> founders_;  // ranks of the first workers, by number
  std::string scheme_;          // wanted; "": as it is
};

}  // namespace shoal::table
