// A coordinator with processes that say what a test tells them to, and keep what they are told.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
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
                          const std::string& scheme = "")
      : coordinator(
            {.processes = processes,
             .seed = seed,
             .scheme = scheme.empty() ? std::nullopt : std::optional(table::scheme_of(scheme))}),
        told(processes + 2) {}
  // All of them workers and servers, on hosts a, b, c ..., joined in the order of ranks; what they
  // are told of it is forgotten.
  static CoordinatorRig joined(std::uint32_t processes) {
    return CoordinatorRig(std::vector<Process>(processes));
  }
  explicit CoordinatorRig(const std::vector<Process>& processes);

  Status say(std::uint32_t rank, const table::Message& message);
  Status ask(std::uint32_t rank, table::Topic topic, table::Clock clock, std::string body = {}) {
    return say(rank, table::Ask{topic, clock, std::move(body)});
  }
  Status join(std::uint32_t rank, const Process& process);
  void lose(std::uint32_t rank, Code code, const std::string& why);

  // Returns what the process was told since the last call: "answer sum 5 'body'", "abort 6: text",
  // "refuse 6: text" ...
  std::vector<std::string> take(std::uint32_t rank);

  table::Instant now{};  // that it is told
  table::Coordinator coordinator;
  std::vector<std::vector<table::Message>> told;  // by rank

 private:
  void deliver(const std::vector<table::Dispatch>& out);
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
