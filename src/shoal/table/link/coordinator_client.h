// A process's client of the coordinator: sends over a connection that is dialled again when it
// breaks (in process 0 without one), and lets the solver's thread wait for answers.
#pragma once

#include "shoal/table/link/coordinator_host.h"
#include "shoal/table/pending_answers.h"

namespace shoal::table {

class CoordinatorClient final : public PeerOwner {
 public:
  // `hear` gets, on the client's strand, what the coordinator says, and passes on to pending() what
  // is for the worker. `host` is that of process 0, null elsewhere.
  CoordinatorClient(ProcessState& process, IoThreads& threads, CoordinatorHost* host,
                    std::function<void(Message&&)> hear);

  // ---- on any thread ----
  void dial(const std::string& address);
  void send(Message message);
  void deliver(Message message);  // from the coordinator in this process
  // This process has lost that rank, for a reason that does not name it: ends the job here, and
  // tells the coordinator.
  void report(Rank rank, Clock clock, const Error& error);
  void abort(const Error& error);  // this process ends the job
  // All that was sent has arrived, if the coordinator is connected.
  bool idle() const { return idle_ && coming_ == 0; }
  std::string trouble() const;  // why there is no connection yet
  void close(bool with_bye);

  // ---- for the worker; the solver's thread waits in ask() and start() ----
  void pending(const Message& message);
  Result<std::string> ask(Ask question);
  Result<Want> start(Clock clock);
  std::vector<Answer> take_outputs();
  void begin(Clock first, bool paced, bool bounded);  // as PendingAnswers
  void end(Clock clock);

 private:
  Status received(Peer& peer, Message&& message) override;
  void up(Peer& peer, bool again) override;
  void down(Peer& peer) override;
  void lost(Peer& peer, const Error& error) override;
  void note();

  ProcessState& process_;
  const Strand strand_;
  CoordinatorHost* const host_;
  const std::function<void(Message&&)> hear_;
  // On the strand:
  Peer peer_;
  ReliableChannel channel_;
  bool heard_ = false;  // anything of the coordinator
  std::atomic<bool> idle_ = true;
  std::atomic<int> coming_ = 0;  // messages on their way to the strand
  std::string trouble_ GUARDED_BY(process_.mutex);
  PendingAnswers pending_ GUARDED_BY(process_.mutex);
};

}  // namespace shoal::table
