// A process's client of the coordinator: sends over a connection that is dialled again when it
// breaks (in process 0 without one), and lets the solver's thread wait for answers.
#pragma once

#include "shoal/table/link/coordinator_host.h"
#include "shoal/table/pending_answers.h"

namespace shoal::table {

class CoordinatorClient final : public PeerOwner {
 public:
  // `hear` gets the coordinator's messages, on the client's strand, and passes those for the worker
  // on to pending(). `host` is that of this process.
  CoordinatorClient(ProcessState& process, IoThreads& threads, CoordinatorHost& host,
                    std::function<void(Message&&)> hear);

  // ---- on any thread ----
  void dial(const std::string& address);
  void send(Message message);
  // Delivers a message from the coordinator in this process.
  void deliver(Message message) {
    strand_.post([this, message = std::move(message)]() mutable { hear_(std::move(message)); });
  }
  // Ends the job here, and tells the coordinator: this process has lost that rank, for a reason
  // that does not name it.
  void report(Rank rank, Clock clock, const Error& error);
  // Tells the coordinator that this process has lost that one, and fails if it does not decide in
  // time whether the job goes on.
  void report_lost(Rank rank, Clock clock, const Error& error);
  // Tells the coordinator in this process, if there is one, that the roster is new.
  void regrouped() { host_.regrouped(); }
  void abort(const Error& error);  // this process ends the job
  // Returns when ProcessState::idle knows of all that was sent.
  void flush() const {
    if (is_direct_) return host_.flush();
    (void)strand_.call([] {});
  }
  // Returns why there is no connection yet.
  std::string trouble() const {
    MutexLock lock(process_.mutex);
    return trouble_;
  }
  void close(bool with_bye) {
    strand_.post([this, with_bye] { peer_.close(with_bye); });
  }

  // ---- for the worker; the solver's thread waits in wait_to_hear(), as TableSession's ----
  void pending(const Message& message);
  Status wait_to_hear(const std::function<bool(PendingAnswers&)>& done, const char* whom,
                      const char* why);
  std::vector<Answer> take_outputs() {
    MutexLock lock(process_.mutex);
    return pending_.take_outputs();
  }
  std::optional<AccountBody> account() const {
    MutexLock lock(process_.mutex);
    return pending_.account();
  }
  // As PendingAnswers::begin.
  void begin(const GenerationStart& generation) {
    process_.clock = generation.first;
    MutexLock lock(process_.mutex);
    pending_.begin(generation);
  }
  void end(Clock clock) {
    process_.clock = clock;
    MutexLock lock(process_.mutex);
    pending_.end(clock);
  }

 private:
  Status received(Peer& peer, Message&& message) override;
  void up(Peer&, bool) override {
    heard_ = true;
    paused();
  }
  void paused() override;
  void lost(Peer& peer, const Error& error) override;
  bool follow(const Error& why);
  void expect_word_of(Rank rank, Clock clock, const Error& error);

  ProcessState& process_;
  const Strand strand_;
  CoordinatorHost& host_;
  const bool is_direct_;  // in process 0: the host is reached without a connection
  const std::function<void(Message&&)> hear_;
  // On the strand:
  Peer peer_;
  bool heard_ = false;     // anything of the coordinator
  std::set<Rank> lost_;    // processes that coordinated, or were asked to
  bool has_proof_ = true;  // that all of these are dead
  static constexpr const char* kNoAnswer = "it has not answered";
  std::string trouble_ GUARDED_BY(process_.mutex) = kNoAnswer;
  PendingAnswers pending_ GUARDED_BY(process_.mutex);
};

}  // namespace shoal::table
