// A solver's team whose members are threads of a test.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "shoal/base/mutex.h"
#include "shoal/solver/team.h"

namespace shoal::test {

// Exchanges a string of each member in every round.
class TeamRounds {
 public:
  explicit TeamRounds(int size) : size_(size) {}
  int size() const { return size_; }
  // Returns the strings of all members in this round, by member. Returns an error (kPeer) once one
  // has left, and (kTimeout) after half a minute.
  Result<std::vector<std::string>> meet(int index, std::string mine);
  // Makes all rounds fail from now on.
  void leave();
  // Collects numbers of an iteration; take() returns the means of those that all have reported.
  void report(std::int64_t iteration, double weight, std::span<const double> numbers);
  std::vector<Team::Average> take();

 private:
  struct Round {
    std::map<int, std::string> said;
  };
  struct Sum {
    int members = 0;
    double weight = 0;
    std::vector<double> numbers;
  };
  const int size_;
  Mutex mutex_;
  Condition all_here_;
  bool left_ = false;
  std::map<int, std::int64_t> rounds_;  // by member
  std::map<std::int64_t, Round> open_;
  std::map<std::int64_t, Sum> sums_;
};

class ThreadsTeam final : public Team {
 public:
  ThreadsTeam(TeamRounds& rounds, int index) : rounds_(rounds), index_(index) {}
  int index() const override { return index_; }
  int size() const override { return rounds_.size(); }
  Result<Action> agree(std::int64_t iteration, Action mine) override;  // the most urgent wish
  Status sum(std::span<double> numbers) override;
  Result<std::vector<std::string>> gather(std::string mine) override;
  Result<std::string> share(std::string chiefs) override;
  void report(std::int64_t iteration, double weight, std::span<const double> numbers) override {
    rounds_.report(iteration, weight, numbers);
  }
  std::vector<Average> take_averages() override {
    return chief() ? rounds_.take() : std::vector<Average>();
  }

 private:
  TeamRounds& rounds_;
  int index_;
};

// Runs body(team) for each of `size` members on a thread of its own. A member that throws leaves.
// Returns the text that each threw, or "".
std::vector<std::string> run_team(int size, const std::function<void(ThreadsTeam&)>& body);

}  // namespace shoal::test
