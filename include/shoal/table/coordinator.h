// Process 0's second duty: who is in the job, and what all must agree on. A pure state machine: message in, messages out.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/table/messages.h"

namespace shoal::table {

struct CoordinatorOptions {
  std::uint32_t processes = 1;            // that are to join
  std::uint64_t seed = 0;                 // of the job
};

// A message to the process with this rank.
struct Dispatch {
  std::uint32_t rank = 0;
  Message message;
};

class Coordinator {
 public:
  explicit Coordinator(const CoordinatorOptions& options);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;

  // Takes a message of the process with this rank. A Join that cannot be (a rank twice, another configuration: said with the first
  // differing line and both its values; no server or no worker at all) is answered by a Refuse to it and an Abort to those who joined.
  // An error is a broken protocol: the connection is to end with it.
  Status handle(std::uint32_t rank, const Message& message, std::vector<Dispatch>& out);
  // The process is lost, or was silent too long: everybody else is told to end, with a message that names its rank, host, last clock and `why`.
  // Nothing is said twice, and nothing after the job is done.
  void lost(std::uint32_t rank, Code code, const std::string& why, std::vector<Dispatch>& out);
  // The last clock heard of a process, for that message.
  void heard(std::uint32_t rank, Clock clock);

  const RosterBody* roster() const;            // null until all have joined
  std::vector<std::uint32_t> missing() const;  // ranks that have not joined yet
  // Who is asked for and has not answered: "barrier 500: waiting for rank 2 (host b, clock 498)"; "" if nobody is waited for.
  std::string waiting_for() const;
  bool finished() const;                       // every worker is done

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shoal::table
