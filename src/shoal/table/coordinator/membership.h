// Decides which processes take part in a job: they join before it begins or while it goes on, are
// done, leave, or are lost. Keeps the roster of the generation.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shoal/table/coordinator/coordinator_parts.h"

namespace shoal::table {

class Membership {
 public:
  Membership(CoordinatorParts& parts, std::uint64_t seed)
      : parts_(parts), members_(parts.members), seed_(seed) {}

  Status join(std::uint32_t rank, const Ask& ask, Instant now, std::vector<Dispatch>& out);
  Status leave(std::uint32_t rank, const Ask& ask, Instant now, std::vector<Dispatch>& out);
  // The worker has finished its part of the job.
  Status done(std::uint32_t rank, const Ask& ask, Instant now, std::vector<Dispatch>& out);
  void lose(std::uint32_t rank, Code code, const std::string& why, std::vector<Dispatch>& out);
  // Tells all that have joined, `but` one, that the job ends now.
  void end(Error error, std::uint32_t but, std::vector<Dispatch>& out);
  // All workers are at the ends of their parts of a generation. Returns the next roster's bytes.
  Result<std::string> next_generation(const Rounds::Round& round, std::vector<Dispatch>& out);

  // Has joined a generation, and perhaps left since.
  bool in_roster(std::uint32_t rank) const;
  // null until all have joined
  const RosterBody* roster() const { return roster_ ? &*roster_ : nullptr; }
  bool finished() const { return finished_; }
  const Error* ended() const { return ended_ ? &*ended_ : nullptr; }
  bool any_done() const { return !done_at_.empty(); }
  void warn(std::string line) {
    if (!line.empty()) warnings_.push_back(std::move(line));
  }
  std::vector<std::string> take_warnings() { return std::exchange(warnings_, {}); }

 private:
  void join_late(std::uint32_t rank, std::vector<Dispatch>& out);
  Status join_again(std::uint32_t rank, const Ask& ask, std::vector<Dispatch>& out);
  std::string why_not(std::uint32_t rank, const JoinBody& body) const;
  std::string why_not_all() const;
  void refuse(std::uint32_t rank, const std::string& reason, std::vector<Dispatch>& out);
  void begin(Instant now, std::vector<Dispatch>& out);
  std::string why_it_stays(std::uint32_t rank) const;
  void let_go(std::uint32_t rank, std::vector<Dispatch>& out);
  void take_out(std::uint32_t rank, Instant now, std::vector<Dispatch>& out);
  void finish(std::vector<Dispatch>& out);
  void want_next(const std::string& why, std::vector<Dispatch>& out);
  Answer roster_answer(std::uint32_t rank) const {
    return {Topic::kJoin, members_[rank].incarnation, encode(*roster_)};
  }

  CoordinatorParts& parts_;
  Members& members_;
  const std::uint64_t seed_;
  std::optional<RosterBody> roster_;
  std::string configuration_;  // of all
  std::optional<Error> ended_;
  bool finished_ = false;
  std::map<std::uint32_t, Clock> done_at_;  // clocks of kDone, by rank
  std::vector<std::string> warnings_;
};

}  // namespace shoal::table
