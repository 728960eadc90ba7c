#include "shoal/table/link/coordinator_client.h"

#include "shoal/base/log.h"

namespace shoal::table {

CoordinatorClient::CoordinatorClient(ProcessState& process, IoThreads& threads,
                                     CoordinatorHost* host, std::function<void(Message&&)> hear)
    : process_(process),
      strand_(threads),
      host_(host),
      hear_(std::move(hear)),
      peer_(process, strand_, Purpose::kCoordination, 0, *this) {}

void CoordinatorClient::dial(const std::string& address) {
  // The wait for all to join ends before that, with a better error. A job that goes on is there.
  const auto within = process_.options.joins
                          ? process_.options.connect
                          : process_.options.start + 2 * process_.options.reconnect;
  strand_.post([this, address, within] { peer_.dial(address, within); });
}

void CoordinatorClient::send(Message message) {
  if (host_) return host_->hear(0, std::move(message));
  strand_.post([this, message = std::move(message)]() mutable {
    peer_.send_surely(std::move(message));
    paused();
  });
}

void CoordinatorClient::report(Rank rank, Clock clock, const Error& error) {
  send(Directive{
      .kind = DirectiveKind::kAbort, .clock = rank, .code = error.code, .text = error.message});
  process_.fail({error.code, str(process_.name_of(rank, clock), " is lost: ", error.message)});
}

void CoordinatorClient::report_lost(Rank rank, Clock clock, const Error& error) {
  if (!process_.options.losses.goes_on) return report(rank, clock, error);
  send(Directive{
      .kind = DirectiveKind::kLost, .clock = rank, .code = error.code, .text = error.message});
  strand_.after(process_.options.stall_abort, [this, rank, clock, error] {
    if (!process_.is_gone(rank))
      process_.fail({error.code, str(process_.name_of(rank, clock),
                                     " is lost, and process 0 has "
                                     "not said how the job goes on: ",
                                     error.message)});
  });
}

void CoordinatorClient::abort(const Error& error) {
  if (process_.over()) return;
  send(Directive{.kind = DirectiveKind::kAbort,
                 .clock = process_.options.rank,
                 .code = error.code,
                 .text = error.message});
  process_.fail(error);
}

// ---- the connection ----

Status CoordinatorClient::received(Peer&, Message&& message) {
  hear_(std::move(message));
  return {};
}

void CoordinatorClient::lost(Peer& peer, const Error& error) {
  const std::string coordinator =
      heard_
          ? str(process_.name_of(0, peer.heard_clock()), ", which holds the coordinator, is lost: ")
          : str(process_.options.joins ? "the job that gave this process its rank is gone: " : "",
                "no coordinator at ", process_.options.coordinator, ": ");
  process_.fail({error.code, coordinator + error.message});
}

void CoordinatorClient::paused() {
  MutexLock lock(process_.mutex);
  process_.idle = peer_.idle();
  trouble_ = peer_.link() ? "" : peer_.trouble().empty() ? kNoAnswer : peer_.trouble();
  process_.changed.notify_all();
}

// ---- the worker's questions ----

void CoordinatorClient::pending(const Message& message) {
  std::optional<Ask> reply;
  {
    MutexLock lock(process_.mutex);
    reply = pending_.hear(message);
    process_.changed.notify_all();
  }
  if (reply) send(*std::move(reply));
}

Status CoordinatorClient::wait_to_hear(const std::function<bool(PendingAnswers&)>& done,
                                       const char* whom, const char* why) {
  return process_.wait([&]() REQUIRES(process_.mutex) { return done(pending_); },
                       [&](double seconds) {
                         LOG(WARNING) << "has waited " << whom << ' ' << seconds << " s, at clock "
                                      << process_.clock << why;
                       });
}

}  // namespace shoal::table
