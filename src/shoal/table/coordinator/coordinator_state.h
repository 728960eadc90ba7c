// What the coordinator knows. Its functions are in two files: who comes and goes (membership.cpp),
// and what is asked (coordinator.cpp).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shoal/table/coordinator.h"
#include "shoal/table/coordinator/agreement.h"
#include "shoal/table/coordinator/members.h"
#include "shoal/table/coordinator/norms.h"
#include "shoal/table/coordinator/outputs.h"
#include "shoal/table/coordinator/pacing.h"
#include "shoal/table/coordinator/regrouping.h"
#include "shoal/table/coordinator/rounds.h"
#include "shoal/table/coordinator/stragglers.h"

namespace shoal::table {

struct Coordinator::State {
  explicit State(const CoordinatorOptions& given) : options(given), members(given.processes) {}

  Status join(std::uint32_t rank, const Ask& ask, Instant now, std::vector<Dispatch>& out);
  void join_late(std::uint32_t rank, std::vector<Dispatch>& out);
  bool in_roster(std::uint32_t rank) const;
  Status join_again(std::uint32_t rank, const Ask& ask, std::vector<Dispatch>& out);
  std::string why_not(std::uint32_t rank, const JoinBody& body) const;
  std::string why_not_all() const;
  void refuse(std::uint32_t rank, const std::string& reason, std::vector<Dispatch>& out);
  void call_the_roll(Instant now, std::vector<Dispatch>& out);
  Result<std::string> next_generation(const Rounds::Round& round, std::vector<Dispatch>& out);
  Answer roster_answer(std::uint32_t rank) const {
    return {Topic::kJoin, members[rank].incarnation, encode(*roster)};
  }
  void end(Error error, std::uint32_t but, std::vector<Dispatch>& out);

  Status ask(std::uint32_t rank, const Ask& ask, Instant now, std::vector<Dispatch>& out);
  Status done(std::uint32_t rank, const Ask& ask, Instant now, std::vector<Dispatch>& out);
  void take_out(std::uint32_t rank, Instant now, std::vector<Dispatch>& out);
  Status leave(std::uint32_t rank, const Ask& ask, Instant now, std::vector<Dispatch>& out);
  std::string why_it_stays(std::uint32_t rank) const;
  void let_go(std::uint32_t rank, std::vector<Dispatch>& out);
  void want_next_generation(const std::string& why, std::vector<Dispatch>& out);
  bool is_to_stop(std::uint32_t rank) const;
  std::optional<Error> stuck() const;
  std::vector<std::vector<int>> in_step() const;
  Status next_scheme(std::uint32_t rank, const Ask& ask, Instant now, std::vector<Dispatch>& out);
  std::unique_ptr<Pacer> pacer;     // until all have joined
  Clock scheme_of_generation = -1;  // the last that worker 0 said
  std::string paced;                // the scheme whose pacer decides
  void finish(std::vector<Dispatch>& out);
  void warn(std::string line) {
    if (!line.empty()) warnings.push_back(std::move(line));
  }

  const CoordinatorOptions options;
  Members members;
  std::optional<RosterBody> roster;
  std::string configuration;  // of all
  std::optional<Error> ended;
  bool finished = false;
  std::map<std::uint32_t, Clock> done_at;  // clocks of kDone, by rank
  std::vector<std::string> warnings;
  Outputs outputs{members};
  Agreement agreement{members, [this] { return in_step(); }};
  Rounds rounds{members, agreement, [this](const Rounds::Round& round, std::vector<Dispatch>& out) {
                  return next_generation(round, out);
                }};
  Regrouping regrouping{members};
  Norms norms{members};
  Stragglers stragglers{members};
  Pacing pacing{members};
};

inline constexpr std::uint32_t kNobody = ~std::uint32_t{0};

inline Error broken(const std::string& words) { return {Code::kPeer, words}; }

}  // namespace shoal::table
