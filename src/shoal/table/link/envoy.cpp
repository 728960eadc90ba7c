#include "shoal/table/link/envoy.h"

#include <chrono>
#include <utility>

namespace shoal::table {

Envoy::Envoy(Job& job, IoThreads& threads, CoordinatorHost* host,
             std::function<void(Message&&)> hear)
    : job_(job),
      strand_(threads),
      host_(host),
      hear_(std::move(hear)),
      line_(job, strand_, Purpose::kCoordination, 0, *this) {}

void Envoy::open(const std::string& address) {
  // The wait for all to join ends before that, with better words.
  strand_.post(
      [this, address] { line_.open(address, job_.options.start + 2 * job_.options.reconnect); });
}

void Envoy::send(Message message) {
  if (host_) return host_->hear(0, std::move(message));
  ++coming_;
  strand_.post([this, message = std::move(message)]() mutable {
    conversation_.send(std::move(message));
    --coming_;
    note();
  });
}

void Envoy::take(Message message) {
  strand_.post([this, message = std::move(message)]() mutable { hear_(std::move(message)); });
}

void Envoy::report(std::uint32_t rank, Clock clock, const Error& error) {
  send(Directive{
      .kind = DirectiveKind::kAbort, .clock = rank, .code = error.code, .text = error.message});
  job_.fail({error.code, str(job_.name_of(rank, clock), " is lost: ", error.message)});
}

void Envoy::abort(const Error& error) {
  if (job_.over()) return;
  send(Directive{.kind = DirectiveKind::kAbort,
                 .clock = job_.options.rank,
                 .code = error.code,
                 .text = error.message});
  job_.fail(error);
}

std::string Envoy::trouble() const {
  MutexLock lock(job_.mutex);
  return trouble_;
}

void Envoy::close(bool with_bye) {
  strand_.post([this, with_bye] { line_.close(with_bye); });
}

Status Envoy::received(Line& line, Message&& message) {
  const Result<bool> said = conversation_.received(message);
  if (!said.ok()) {
    lost(line, said.error());
    return said.error();
  }
  joined_ = true;
  if (said.value()) hear_(std::move(message));
  note();
  return {};
}

void Envoy::up(Line& line, bool) {
  conversation_.opened(line.link());
  note();
}

void Envoy::down(Line&) {
  conversation_.closed();
  note();
}

void Envoy::lost(Line& line, const Error& error) {
  if (joined_) {
    job_.fail({error.code, str(job_.name_of(0, line.heard_clock()),
                               ", which holds the coordinator, is lost: ", error.message)});
  } else {
    job_.fail(
        {error.code, str("no coordinator at ", job_.options.coordinator, ": ", error.message)});
  }
}

void Envoy::note() {
  MutexLock lock(job_.mutex);
  idle_ = conversation_.idle() || !conversation_.open();
  trouble_ = line_.link() ? "" : line_.trouble();
  job_.changed.notify_all();
}

}  // namespace shoal::table
