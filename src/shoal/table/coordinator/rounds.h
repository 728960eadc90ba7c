// Rounds in which every worker that is not done takes part, and waits for the others: barrier, sum,
// gather, share, meet, regroup.
#pragma once

#include "shoal/table/coordinator/agreement.h"

namespace shoal::table {

class Rounds {
 public:
  // bodies, by rank, which is the order of workers
  using Round = std::map<Rank, std::string>;
  // Makes the answer to a round of regroup.
  using Regroup = std::function<Result<std::string>(const Round&)>;
  Rounds(Members& members, Agreement& agreement, Regroup regroup)
      : members_(members), agreement_(agreement), regroup_(std::move(regroup)) {}
  static bool is_one(Topic topic);

  Status ask(Rank rank, const Ask& ask);
  // Sets what a worker that is done contributes to every gather, until the next generation.
  void stand_in(Rank rank, std::string body) { stand_ins_[rank] = std::move(body); }
  void begin_generation() { stand_ins_.clear(); }
  // Closes what only waited for workers that are done now, or for an agreement.
  void close();
  bool waits(Rank rank) { return workers_[rank].waits.has_value(); }
  // Why a round that is complete has no answer, if that is so.
  const std::optional<Error>& mismatch() const { return mismatch_; }
  // "rank 2 (host b) in barrier 500", one line for each open round.
  std::vector<std::string> places() const;
  // "barrier 500: waiting for rank 2", one line for each open round.
  std::vector<std::string> waiting_for() const;

 private:
  using Key = std::pair<Topic, Clock>;
  struct Worker {
    std::optional<Key> waits;
    Key last{Topic::kJoin, 0};  // answered, with this body
    std::shared_ptr<const std::string> answer;
    std::map<Topic, Clock> answered;  // the last clock of each topic
  };
  bool complete(const Key& key, const Round& round) const;
  void answer(const Key& key, const Round& round);
  std::optional<std::string> sum(const Key& key, const Round& round);
  std::string gathered(const Round& round) const;

  Members& members_;
  Agreement& agreement_;
  const Regroup regroup_;
  std::map<Key, Round> open_;
  Round stand_ins_;
  std::map<Rank, Worker> workers_;  // by rank
  std::optional<Error> mismatch_;
};

}  // namespace shoal::table
