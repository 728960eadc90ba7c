// A coordinator with processes that say what a test tells them to, and keep what they are told.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "shoal/table/coordinator.h"
#include "support/schemes.h"

namespace shoal::test {

class CoordinatorRig {
 public:
  struct Process {
    bool worker = true, server = true;
    std::string host{}, configuration = "net", address{};
    std::int64_t incarnation = 0;
  };

  explicit CoordinatorRig(std::uint32_t processes, std::uint64_t seed = 7,
                          const std::string& scheme = "", const table::LossPolicy& losses = {})
      : options{.processes = processes,
                .seed = seed,
                .scheme = scheme.empty() ? std::nullopt : std::optional(table::scheme_of(scheme)),
                .losses = losses},
        coordinator(options),
        told(processes + 40) {}
  // All of them workers and servers, on hosts a, b, c ..., joined in the order of ranks; what they
  // are told of it is forgotten.
  static CoordinatorRig joined(std::uint32_t processes, const std::string& scheme = "") {
    return CoordinatorRig(std::vector<Process>(processes), scheme);
  }
  explicit CoordinatorRig(const std::vector<Process>& processes, const std::string& scheme = "");

  Status say(std::uint32_t rank, const table::Message& message);
  Status ask(std::uint32_t rank, table::Topic topic, table::Clock clock, std::string body = {}) {
    return say(rank, table::Ask{topic, clock, std::move(body)});
  }
  // Each of these asks, in this order, and nothing is wrong with that.
  void all_ask(const std::vector<std::uint32_t>& ranks, table::Topic topic, table::Clock clock,
               const std::string& body = {},
               std::source_location where = std::source_location::current());
  Status begin(std::uint32_t rank, table::Clock clock, table::Clock until = 0);
  Status judge(std::uint32_t rank, table::Clock clock, std::uint32_t steps);
  Status join(std::uint32_t rank, const Process& process);
  void lose(std::uint32_t rank, Code code, const std::string& why);

  // Returns what the process was told since the last call: "answer sum 5 'body'", "abort 6: text",
  // "refuse 6: text"; of tasks "begin 5 with 1 steps", "begin 5 with 1 steps as 3" where they are
  // shared, "begin 5 over", "judge 5: push" ...
  std::vector<std::string> take(std::uint32_t rank);
  // The same of ranks 0 to `processes` - 1.
  std::vector<std::vector<std::string>> take_all(std::uint32_t processes);
  // The same after something that was right.
  std::vector<std::string> hears(std::uint32_t rank, const Status& status);
  void forget();  // what all were told
  // These come to the ends of their segments; returns the roster that the first of them hears.
  table::RosterBody regroup(const std::vector<std::pair<std::uint32_t, table::SegmentBody>>& ends,
                            table::Clock generation = 1);

  table::Instant now{};  // that it is told
  table::CoordinatorOptions options;
  table::Coordinator coordinator;
  std::vector<std::vector<table::Message>> told;  // by rank

 private:
  void deliver(const std::vector<table::Dispatch>& out);
  // Another coordinator takes this one's place, with its state, as at a standby.
  void succeed();
};

// Calls `run(order)` with every order of 0 .. n-1.
template <class Run>
void in_every_order(std::uint32_t n, Run run) {
  std::vector<std::uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  do {
    SCOPED_TRACE(testing::PrintToString(order));
    run(order);
  } while (std::ranges::next_permutation(order).found && !testing::Test::HasFailure());
}

inline std::string body_of(const table::Message& message) {
  return std::get<table::Answer>(message).body;
}
inline std::string body_of(table::Want want) { return std::string(1, static_cast<char>(want)); }

// Bodies of kSum and kOutputs.
std::string numbers(const std::vector<double>& values);
std::vector<double> numbers_of(const std::string& bytes);

}  // namespace shoal::test
