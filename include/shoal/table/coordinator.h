// Process 0's second duty: who is in the job, and what all must agree on. A pure state machine: message in, messages out.
//
// Every Ask may be repeated: it counts once, and where an answer was given already it is given again. Clocks of a topic rise with a worker's
// rounds; a repeat from before its last round is passed over. A worker waits in one round (barrier, sum, gather, share) at a time. Workers
// that are done take part in no further round. When no worker can go on, because they wait in different rounds, all are told to end, and why.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
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

// The body of kReport: what a worker did since its last one. Times are seconds.
struct ReportBody {
  double iterations = 0;
  double compute = 0, data = 0, rows = 0, other = 0;   // rows: waiting for them, which is no fault of the one who waits
  bool operator==(const ReportBody&) const = default;
};
std::string encode(const ReportBody& body);
Result<ReportBody> decode_report(std::string_view bytes);

class Coordinator {
 public:
  explicit Coordinator(const CoordinatorOptions& options);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;

  // Takes a message of the process with this rank. A Join's Ask carries the incarnation of its process as clock, and in its address a host
  // (whoever drives this knows where the connection comes from). A Join that cannot be (another configuration: said with the first differing
  // line and both its values; a rank outside the job; no server or no worker at all) is answered by a Refuse to it and, while not all
  // have joined, an Abort to those who have. An error is a broken protocol, or a rank that another process has: the connection is to end with it.
  Status handle(std::uint32_t rank, const Message& message, std::vector<Dispatch>& out);
  // The process is lost, or was silent too long: everybody else is told to end, with a message that names its rank, host, last clock and `why`.
  // Nothing is said twice, and nothing after the job is done.
  void lost(std::uint32_t rank, Code code, const std::string& why, std::vector<Dispatch>& out);
  // The last clock heard of a process, for messages.
  void heard(std::uint32_t rank, Clock clock);

  const RosterBody* roster() const;            // null until all have joined
  std::vector<std::uint32_t> missing() const;  // ranks that have not joined yet
  // Who is asked for and has not answered: "barrier 500: waiting for rank 2 (host b, last clock 498)"; "" if nobody is waited for.
  std::string waiting_for() const;
  bool finished() const;                       // every worker is done
  // Why the job was ended for all; null if it was not.
  const Error* ended() const;
  // Lines for the log since the last call: stragglers, and outputs that were averaged without some worker.
  std::vector<std::string> take_warnings();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shoal::table
