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
  // The wait for all to join ends before that, with better words.
  const auto within = process_.options.start + 2 * process_.options.reconnect;
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
          : str("no coordinator at ", process_.options.coordinator, ": ");
  process_.fail({error.code, coordinator + error.message});
}

void CoordinatorClient::paused() {
  MutexLock lock(process_.mutex);
  process_.idle = peer_.idle();
  trouble_ = peer_.link() ? "" : peer_.trouble();
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

Result<std::string> CoordinatorClient::ask(Ask question) {
  if (Status status = process_.status(); !status.ok()) return status.error();
  const std::uint32_t part = part_of(question.topic, question.body);
  const Topic topic = question.topic;
  const Clock clock = question.clock;
  send(std::move(question));
  std::optional<std::string> answer;
  const auto answered = [&]() REQUIRES(process_.mutex) {
    answer = pending_.take_answer(topic, clock, part);
    return answer.has_value();
  };
  const auto late = [&](double seconds) {
    LOG(WARNING) << "has waited for the other workers for " << seconds << " s, at clock "
                 << process_.clock;
  };
  const Status status = process_.wait(answered, late);
  if (!status.ok()) return status.error();
  return *std::move(answer);
}

Result<Want> CoordinatorClient::start(Clock clock) {
  process_.clock = clock;
  std::optional<Want> want;
  const auto may_start = [&]() REQUIRES(process_.mutex) {
    want = pending_.start(clock);
    return want.has_value();
  };
  const auto late = [&](double seconds) {
    LOG(WARNING) << "has waited for " << seconds << " s, at clock " << clock
                 << ", for all workers to agree on a pause";
  };
  const Status status = process_.wait(may_start, late);
  if (!status.ok()) return status.error();
  return *want;
}

}  // namespace shoal::table
