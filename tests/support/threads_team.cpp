#include "support/threads_team.h"

#include <algorithm>
#include <cstring>

namespace shoal::test {
namespace {

std::string bytes_of(std::span<const double> numbers) {
  return std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes());
}

}  // namespace

Result<std::vector<std::string>> TeamRounds::meet(int index, std::string mine) {
  MutexLock lock(mutex_);
  const std::int64_t number = rounds_[index]++;
  open_[number].said[index] = std::move(mine);
  all_here_.notify_all();
  const auto ready = [&] { return left_ || static_cast<int>(open_[number].said.size()) == size_; };
  if (!all_here_.wait_for(mutex_, std::chrono::seconds(30), ready))
    return Error{Code::kTimeout, str("round ", number, ": not all came")};
  if (static_cast<int>(open_[number].said.size()) < size_)
    return Error{Code::kPeer, "a member has left"};
  std::vector<std::string> all;
  for (const auto& [member, words] : open_[number].said) all.push_back(words);
  if (std::ranges::all_of(rounds_, [&](const auto& at) { return at.second > number + 1; }))
    open_.erase(number);
  return all;
}

void TeamRounds::leave() {
  MutexLock lock(mutex_);
  left_ = true;
  all_here_.notify_all();
}

void TeamRounds::report(std::int64_t iteration, double weight, std::span<const double> numbers) {
  MutexLock lock(mutex_);
  Sum& sum = sums_[iteration];
  ++sum.members;
  sum.weight += weight;
  sum.numbers.resize(numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) sum.numbers[i] += weight * numbers[i];
}

std::vector<Team::Average> TeamRounds::take() {
  MutexLock lock(mutex_);
  std::vector<Team::Average> averages;
  for (auto at = sums_.begin(); at != sums_.end();) {
    if (at->second.members < size_) {
      ++at;
      continue;
    }
    for (double& number : at->second.numbers) number /= at->second.weight;
    averages.push_back({at->first, std::move(at->second.numbers)});
    at = sums_.erase(at);
  }
  return averages;
}

Result<Action> ThreadsTeam::agree(std::int64_t iteration, Action mine) {
  const auto all = rounds_.meet(index_, str(static_cast<int>(mine), " ", iteration));
  if (!all.ok()) return all.error();
  Action most = Action::kNone;
  for (const std::string& wish : all.value()) {
    const Action action = static_cast<Action>(wish[0] - '0');
    if (wish.substr(2) != std::to_string(iteration))
      return Error{Code::kInternal, "members agree before different iterations"};
    if (action != Action::kNone) most = action;
  }
  return most;
}

Status ThreadsTeam::sum(std::span<double> numbers) {
  const auto all = rounds_.meet(index_, bytes_of(numbers));
  if (!all.ok()) return all.error();
  std::ranges::fill(numbers, 0);
  for (const std::string& part : all.value()) {
    if (part.size() != numbers.size_bytes())
      return Error{Code::kInternal, "members sum up different numbers of numbers"};
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      double number = 0;
      std::memcpy(&number, part.data() + i * sizeof number, sizeof number);
      numbers[i] += number;
    }
  }
  return {};
}

Result<std::vector<std::string>> ThreadsTeam::gather(std::string mine) {
  auto all = rounds_.meet(index_, std::move(mine));
  if (all.ok() && !chief()) return std::vector<std::string>();
  return all;
}

Result<std::string> ThreadsTeam::share(std::string chiefs) {
  auto all = rounds_.meet(index_, chief() ? std::move(chiefs) : "");
  if (!all.ok()) return all.error();
  return all.value()[0];
}

std::vector<std::string> run_team(int size, const std::function<void(ThreadsTeam&)>& body) {
  TeamRounds rounds(size);
  std::vector<std::string> thrown(static_cast<std::size_t>(size));
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < size; ++i)
      threads.emplace_back([&, i] {
        ThreadsTeam team(rounds, i);
        try {
          body(team);
        } catch (const ConfigError& error) {
          thrown[static_cast<std::size_t>(i)] = error.what();
          rounds.leave();
        }
      });
  }
  return thrown;
}

}  // namespace shoal::test
