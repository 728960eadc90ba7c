#include "shoal/table/link/coordinator_host.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "shoal/base/bytes.h"
#include "shoal/base/log.h"

namespace shoal::table {
namespace {

// The address in a Join, with where its connection comes from in the place of a host that says
// nothing.
void complete(Message& message, const std::string& from) {
  Ask* ask = std::get_if<Ask>(&message);
  if (!ask || ask->topic != Topic::kJoin) return;
  Result<JoinBody> join = decode_join(ask->body);
  if (!join.ok()) return;  // the coordinator says so
  const HostPort address = split_address(join.value().address);
  if (!is_anywhere(address.host)) return;
  join.value().address = join_address(from, address.port);
  ask->body = encode(join.value());
}

}  // namespace

CoordinatorHost::CoordinatorHost(Job& job, IoThreads& threads, std::function<void(Message)> own)
    : job_(job),
      strand_(threads),
      own_(std::move(own)),
      coordinator_({.processes = job.options.processes,
                    .seed = job.options.seed,
                    .scheme = job.options.scheme}),
      seats_(job, strand_, Purpose::kCoordination, *this),
      ranks_(job.options.processes),
      missing_(coordinator_.missing()) {
  strand_.after(job.options.stall_warn, [this] { watch(); });
}

void CoordinatorHost::take(std::shared_ptr<Link> link) { seats_[link->peer().rank].take(link); }

void CoordinatorHost::hear(std::uint32_t rank, Message message) {
  ++coming_;
  strand_.post([this, rank, message = std::move(message)]() mutable {
    handle(rank, std::move(message));
    MutexLock lock(job_.mutex);
    --coming_;
    job_.changed.notify_all();
  });
}

std::vector<std::uint32_t> CoordinatorHost::missing() const {
  MutexLock lock(job_.mutex);
  return missing_;
}

void CoordinatorHost::close(bool with_bye) {
  seats_.close(with_bye);
  strand_.post([this, with_bye] {
    for (const auto& [known, link] : at_desk_) link->close(with_bye);
  });
}

// ---- the desk ----

void CoordinatorHost::greet(std::shared_ptr<Link> link) {
  strand_.post([this, link = std::move(link)] { at_desk_[link.get()] = link; });
}

Status CoordinatorHost::received(Link& link, Message&& message) {
  const Ask* ask = std::get_if<Ask>(&message);
  if (!ask || ask->topic != Topic::kEnroll)
    return Error{Code::kPeer,
                 str("A ", name_of(type_of(message)), " came from a process without a rank.")};
  strand_.post([this, known = &link, clock = ask->clock] {
    const auto found = at_desk_.find(known);
    if (found == at_desk_.end()) return;
    std::string rank;
    put_le(rank, coordinator_.enroll());
    ranks_ = coordinator_.processes();
    found->second->send(Answer{Topic::kEnroll, clock, rank});
  });
  return {};
}

void CoordinatorHost::closed(Link& link, Status) {
  strand_.post([this, known = &link] { at_desk_.erase(known); });
}

void CoordinatorHost::opened(Seat& seat, const std::shared_ptr<Link>& link) {
  from_[seat.rank()] = split_address(link->peer().address).host;
  conversations_[seat.rank()].opened(link);
  note();
}

void CoordinatorHost::received(Seat& seat, Message&& message) {
  const Result<bool> said = conversations_[seat.rank()].received(message);
  if (!said.ok()) return lose(seat.rank(), said.error().code, said.error().message);
  if (said.value())
    handle(seat.rank(), std::move(message));
  else
    note();
}

void CoordinatorHost::closed(Seat& seat) {
  conversations_[seat.rank()].closed();
  note();
}

void CoordinatorHost::lost(Seat& seat, const Error& error) {
  lose(seat.rank(), error.code, error.message);
}

// A server that is to come into a job which goes on: were it not to be reached, the job would end
// with it. What it said is handled when it was.
bool CoordinatorHost::is_looked_for(std::uint32_t rank, const Message& message) {
  const Ask* ask = std::get_if<Ask>(&message);
  if (!ask || ask->topic != Topic::kJoin || coordinator_.roster() == nullptr) return false;
  const Result<JoinBody> join = decode_join(ask->body);
  if (!join.ok() || !join.value().server) return false;
  const auto [known, is_new] = reached_.try_emplace(rank, false);
  if (!is_new) return !known->second;
  reach(
      strand_, join.value().address, job_.options.connect,
      [this, rank, message](const Status& status) {
        if (reached_[rank] = status.ok(); status.ok()) return handle(rank, message);
        std::vector<Dispatch> out{
            {rank, Refuse{Code::kPeer, str("process 0 cannot reach the server that wants to join: ",
                                           status.error().message,
                                           " Give an address that all others reach (--advertise), "
                                           "or join with --role=worker.")}}};
        dispatch(out);
      });
  return true;
}

void CoordinatorHost::handle(std::uint32_t rank, Message message) {
  complete(message, from_[rank]);
  if (is_looked_for(rank, message)) return;
  hear_clocks();
  std::vector<Dispatch> out;
  const Status status = coordinator_.handle(rank, message, now(), out);
  if (const Directive* directive = std::get_if<Directive>(&message))
    tell_too(static_cast<std::uint32_t>(directive->clock), rank, out);
  dispatch(out);
  for (const std::string& line : coordinator_.take_warnings()) LOG(WARNING) << line;
  if (!status.ok()) return lose(rank, status.error().code, status.error().message);
  MutexLock lock(job_.mutex);
  missing_ = coordinator_.missing();
}

void CoordinatorHost::lose(std::uint32_t rank, Code code, const std::string& why) {
  hear_clocks();
  std::vector<Dispatch> out;
  coordinator_.lost(rank, code, why, out);
  tell_too(rank, ranks_, out);  // reported by nobody
  dispatch(out);
}

void CoordinatorHost::hear_clocks() {
  coordinator_.heard(0, job_.clock);
  for (const Seat* const seat : seats_.all()) coordinator_.heard(seat->rank(), seat->heard_clock());
}

// A process that is lost to one may still hear others.
void CoordinatorHost::tell_too(std::uint32_t lost, std::uint32_t reporter,
                               std::vector<Dispatch>& out) const {
  if (out.empty() || lost == reporter || !knows(lost)) return;
  if (std::none_of(out.begin(), out.end(), [&](const Dispatch& one) { return one.rank == lost; }))
    out.push_back({lost, out.front().message});
}

void CoordinatorHost::dispatch(std::vector<Dispatch>& out) {
  for (Dispatch& one : out) {
    if (const Refuse* refuse = std::get_if<Refuse>(&one.message))
      one.message =
          Directive{.kind = DirectiveKind::kAbort, .code = refuse->code, .text = refuse->reason};
    if (one.rank == 0)
      own_(std::move(one.message));
    else
      conversations_[one.rank].send(std::move(one.message));
  }
  note();
}

void CoordinatorHost::note() {
  const bool idle = std::all_of(conversations_.begin(), conversations_.end(), [](const auto& one) {
    return one.second.idle() || !one.second.open();
  });
  MutexLock lock(job_.mutex);
  idle_ = idle;
  job_.changed.notify_all();
}

// Names who is waited for, if it is the same as stall_warn ago.
void CoordinatorHost::watch() {
  hear_clocks();
  std::string waited_for = job_.roster() ? coordinator_.waiting_for() : "";
  if (!waited_for.empty() && waited_for == waited_for_ && !job_.over()) LOG(WARNING) << waited_for;
  waited_for_ = std::move(waited_for);
  strand_.after(job_.options.stall_warn, [this] { watch(); });
}

}  // namespace shoal::table
