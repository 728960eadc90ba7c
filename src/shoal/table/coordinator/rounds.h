// Rounds in which every worker that is not done takes part, and waits for the others: barrier, sum,
// gather, share, meet, regroup.
#pragma once

#include "shoal/table/coordinator/agreement.h"

namespace shoal::table {

class Rounds {
 public:
  // Bodies by rank, which is the order of workers.
  using Round = std::map<Rank, std::string>;
  // Makes the answer to a round of regroup.
  using Regroup = std::function<Result<std::string>(const Round&)>;
  Rounds(Members& members, Agreement& agreement, Regroup regroup)
      : members_(members), agreement_(agreement), regroup_(std::move(regroup)) {}
  static bool is_one(Topic topic) {
    return topic == Topic::kBarrier || topic == Topic::kSum || topic == Topic::kGather ||
           topic == Topic::kShare || topic == Topic::kMeet || topic == Topic::kRegroup ||
           topic == Topic::kReunite;
  }

  Status ask(Rank rank, const Ask& ask) {
    const Key key{ask.topic, ask.clock};
    Worker& worker = workers_[rank];
    if (ask.topic == Topic::kReunite) {
      interrupted_.erase(rank);
      take_back(rank);
    }
    // It does not know yet that the generation has begun in vain.
    if (in_vain_ && ask.topic != Topic::kRegroup) return {};
    // Until then it does not know of the loss.
    if (interrupted_.contains(rank) && ask.topic != Topic::kBarrier) return {};
    if (worker.answer && worker.last == key) {
      members_.say(rank, Answer{ask.topic, ask.clock, *worker.answer});
      return {};
    }
    const auto before = worker.answered.find(ask.topic);
    if (before != worker.answered.end() && ask.clock <= before->second) return {};
    if (worker.waits == key) return {};
    // It has heard of another loss since.
    if (worker.waits && worker.waits->first == Topic::kReunite && ask.topic == Topic::kReunite)
      take_back(rank);
    if (worker.waits)
      return members_.broken(rank, " asks for ", name_of(key), " while it waits in ",
                             name_of(*worker.waits), "; a worker waits in one round at a time");
    if (ask.topic == Topic::kSum && !whole_numbers(ask.body))
      return members_.broken(rank, " sends ", ask.body.size(), " bytes for ", name_of(key),
                             ", which are no float64s");
    worker.waits = key;
    open_[key][rank] = ask.body;
    close();
    return {};
  }
  // Sets what a worker that is done contributes to every gather, until the next generation.
  void stand_in(Rank rank, std::string body) { stand_ins_[rank] = std::move(body); }
  // Returns whether the barrier with this clock, or a later one, was answered.
  bool is_past(Clock barrier) const { return barrier_ >= barrier; }
  void begin_generation() {
    stand_ins_.clear();
    interrupted_.clear();
    in_vain_ = false;
  }
  // Takes the workers back out of all rounds: the generation has no chief that could begin it. From
  // here on none is answered but the one that begins the next.
  void end_in_vain() {
    in_vain_ = true;
    interrupted_.clear();
    for (const Rank rank : members_.active()) take_back(rank);
  }
  // Takes the workers back out of all rounds but barriers, which begin a generation: a loss
  // interrupts them, and they are heard again when they reunite. No round of before is answered
  // from here on.
  void interrupt() {
    for (const Rank rank : members_.active()) {
      interrupted_.insert(rank);
      if (const auto& waits = workers_[rank].waits; waits && waits->first != Topic::kBarrier)
        take_back(rank);
    }
  }
  // Takes a worker that is lost out of the rounds in which it waits.
  void forget(Rank rank) {
    take_back(rank);
    interrupted_.erase(rank);
    workers_.erase(rank);
  }
  // Closes rounds that only waited for workers that are done now, or for an agreement.
  void close() {
    std::erase_if(open_, [this](const auto& entry) {
      const auto& [key, round] = entry;
      if (!complete(key, round)) return false;
      answer(key, round);
      return true;
    });
  }
  bool waits(Rank rank) { return workers_[rank].waits.has_value(); }
  // Returns whether workers reunite after different losses: those that have not heard of the last
  // one will, and ask again.
  bool reunite_apart() const {
    return std::ranges::count_if(
               open_, [](const auto& entry) { return entry.first.first == Topic::kReunite; }) > 1;
  }
  void state(auto& io) {
    io(open_, stand_ins_, interrupted_, workers_, barrier_, mismatch_, in_vain_);
  }
  // Returns why a complete round has no answer, if it has none.
  const std::optional<Error>& mismatch() const { return mismatch_; }
  // Adds "rank 2 (host b) in barrier 500", one line for each open round.
  void places(Lines& lines) const {
    for (const auto& [key, round] : open_) {
      std::vector<Rank> ranks;
      for (const auto& [rank, body] : round) ranks.push_back(rank);
      lines.push_back(str(members_.names(ranks), " in ", name_of(key)));
    }
  }
  // Adds "barrier 500: waiting for rank 2", one line for each open round.
  void waiting_for(Lines& lines) const {
    for (const auto& [key, round] : open_)
      lines.push_back(members_.waiting_for(name_of(key), members_.active(), round));
  }

 private:
  using Key = std::pair<Topic, Clock>;
  struct Worker {
    std::optional<Key> waits;
    Key last{Topic::kJoin, 0};  // answered, with this body
    std::shared_ptr<const std::string> answer;
    std::map<Topic, Clock> answered;  // the last clock of each topic
    void state(auto& io) { io(waits, last, answer, answered); }
  };
  bool complete(const Key& key, const Round& round) const {
    if ((key.first == Topic::kMeet || key.first == Topic::kRegroup) && agreement_.open())
      return false;
    return std::ranges::all_of(members_.active(), [&](Rank rank) { return round.contains(rank); });
  }
  void take_back(Rank rank) {
    for (auto& [key, round] : open_) round.erase(rank);
    std::erase_if(open_, [](const auto& entry) { return entry.second.empty(); });
    workers_[rank].waits.reset();
  }
  // Returns the answer to all; of a gather, to that worker alone.
  Result<std::string> made(const Key& key, const Round& round) {
    const Rank chief = members_.rank_of_worker(0);
    const auto chiefs = round.find(chief);
    switch (key.first) {
      case Topic::kMeet: return encode(agreement_.take());
      case Topic::kRegroup: return regroup_(round);
      case Topic::kGather: return gathered(round, stand_ins_);
      case Topic::kReunite: return gathered(round, {});
      case Topic::kSum: return sum(key, round);
      default: break;
    }
    if (chiefs != round.end()) return chiefs->second;
    if (key.first == Topic::kBarrier) return std::string();
    // The next worker goes on for a chief that is lost. If that shares nothing, the workers go to
    // the next generation.
    if (members_[chief].left) return round.begin()->second;
    return broken(name_of(key), " cannot be answered: worker 0, ", members_.name(chief),
                  ", has finished");
  }
  // Returns whether the worker gets the answer to all: of a gather the chief alone, and of a share
  // the one that shares and those that say nothing.
  bool is_for(Rank rank, Topic topic, bool says_nothing, const Round& round) const {
    if (topic == Topic::kGather) return rank == members_.chief();
    return topic != Topic::kShare || says_nothing || rank == round.begin()->first;
  }
  void answer(const Key& key, const Round& round) {
    Result<std::string> made = this->made(key, round);
    if (!made.ok()) {
      mismatch_ = made.error();
      return;
    }
    if (key.first == Topic::kBarrier) barrier_ = std::max(barrier_, key.second);
    const auto body = std::make_shared<const std::string>(std::move(made).value());
    const auto nothing = std::make_shared<const std::string>();
    for (const auto& [rank, said] : round) {
      Worker& worker = workers_[rank];
      worker.waits.reset();
      worker.last = key;
      worker.answered[key.first] = key.second;
      worker.answer = is_for(rank, key.first, said.empty(), round) ? body : nothing;
      members_.say(rank, Answer{key.first, key.second, *worker.answer});
    }
  }
  // Sums in the order of workers, so that the same numbers give the same bits in whatever order
  // they came.
  Result<std::string> sum(const Key& key, const Round& round) const {
    std::vector<double> total = bytes_to_numbers(round.begin()->second);
    for (auto next = std::next(round.begin()); next != round.end(); ++next) {
      const std::vector<double> numbers = bytes_to_numbers(next->second);
      if (numbers.size() != total.size())
        return broken("in ", name_of(key), " ", members_.name(next->first), " has ", numbers.size(),
                      " numbers where ", members_.name(round.begin()->first), " has ", total.size(),
                      "; do both train the same net?");
      for (std::size_t i = 0; i < total.size(); ++i) total[i] += numbers[i];
    }
    return numbers_to_bytes(total);
  }
  Result<std::string> gathered(const Round& round, const Round& others) const {
    std::string bytes;
    for (const Rank rank : members_.workers()) {
      const auto body = round.find(rank), stands_in = others.find(rank);
      std::string_view part;
      if (body != round.end())
        part = body->second;
      else if (stands_in != others.end())
        part = stands_in->second;
      put_le(bytes, static_cast<std::uint32_t>(part.size()));
      bytes += part;
    }
    if (bytes.size() > kMaxBodyBytes)
      return broken("the workers' states have ", bytes.size(), " bytes together; at most ",
                    kMaxBodyBytes, " can be sent");
    return bytes;
  }

  static std::string name_of(const Key& key) {
    return str(table::name_of(key.first), ' ', key.second);
  }

  Members& members_;
  Agreement& agreement_;
  const Regroup regroup_;
  std::map<Key, Round> open_;
  Round stand_ins_;
  std::map<Rank, Worker> workers_;                     // by rank
  Clock barrier_ = std::numeric_limits<Clock>::min();  // the last that was answered
  std::set<Rank> interrupted_;                         // by a loss, and not reunited yet
  std::optional<Error> mismatch_;
  bool in_vain_ = false;  // the generation is
};

}  // namespace shoal::table
