#include "shoal/table/link/coordinator_client.h"

#include "shoal/base/log.h"

namespace shoal::table {
CoordinatorClient::CoordinatorClient(ProcessState& process, IoThreads& threads,
                                     CoordinatorHost& host, std::function<void(Message&&)> hear)
    : process_(process),
      strand_(threads),
      host_(host),
      is_direct_(process.options.rank == 0),
      hear_(std::move(hear)),
      peer_(process, strand_, Purpose::kCoordination, process.options.coordinator_rank, *this) {}

void CoordinatorClient::dial(const std::string& address) {
  // The wait for all to join ends before that, with a better error. A job that goes on is there.
  const auto within = process_.options.joins
                          ? process_.options.connect
                          : process_.options.start + 2 * process_.options.reconnect;
  strand_.post([this, address, within] { peer_.dial(address, within); });
}

void CoordinatorClient::send(Message message) {
  if (is_direct_) return host_.hear(0, std::move(message));
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
  if (says_removed(error.message))
    return process_.fail(
        {error.code, str(process_.name_of(process_.options.rank), kRemoved, ": ", error.message)});
  send(Directive{
      .kind = DirectiveKind::kLost, .clock = rank, .code = error.code, .text = error.message});
  expect_word_of(rank, clock, error);
}

// The coordinator may have to be found first: that search has deadlines of its own.
void CoordinatorClient::expect_word_of(Rank rank, Clock clock, const Error& error) {
  strand_.after(4 * process_.options.stall_abort, [this, rank, clock, error] {
    if (process_.over() || process_.is_gone(rank)) return;
    if (!is_direct_ && !peer_.link()) return expect_word_of(rank, clock, error);
    // Without proof of its end the process at the other end may go on, without this one.
    process_.fail(
        {proves_end(error.message) ? error.code : Code::kRequeue,
         str(process_.name_of(rank, clock),
             " is lost, and the coordinator has not said how the job goes on: ", error.message)});
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

// Looks for the process that takes the coordinator's place.
bool CoordinatorClient::follow(const Error& why) {
  const RosterBody* const roster = process_.roster();
  if (!roster || !process_.options.losses.goes_on) return false;
  has_proof_ = has_proof_ && proves_end(why.message);
  lost_.insert(peer_.rank());
  for (const Rank rank : successors(*roster)) {
    if (lost_.contains(rank) || process_.is_gone(rank)) continue;
    if (rank == process_.options.rank) {
      if (!host_.may_succeed()) return false;
      host_.succeed(process_.coordinator, why, has_proof_);
    } else {
      LOG(WARNING) << process_.name_of(peer_.rank())
                   << ", which coordinates the job, is lost: " << why.message
                   << " Looking for it at " << process_.name_of(rank);
      process_.coordinator = rank;
    }
    peer_.redirect(rank, process_.address_of(rank), 3 * process_.options.stall_abort, why);
    return true;
  }
  return false;
}

void CoordinatorClient::lost(Peer& peer, const Error& error) {
  if (heard_ && follow(error)) return;
  const std::string coordinator =
      heard_
          ? str(process_.name_of(0, peer.heard_clock()), ", which holds the coordinator, is lost: ")
          : str(process_.options.joins ? "the job that gave this process its rank is gone: " : "",
                "no coordinator at ", process_.options.coordinator, ": ");
  const bool may_go_on_elsewhere = heard_ && process_.options.losses.goes_on && !has_proof_;
  if (!may_go_on_elsewhere) return process_.fail({error.code, coordinator + error.message});
  process_.fail(
      {Code::kRequeue,
       str(coordinator, error.message, " No process that could take its place was ",
           "reached. The others may go on without this one, which can join them again.")});
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
