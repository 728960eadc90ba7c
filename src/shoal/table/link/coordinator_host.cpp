#include "shoal/table/link/coordinator_host.h"

#include "shoal/base/log.h"
#include "shoal/table/wire/layout.h"

namespace shoal::table {
namespace {

// Connections at a time of processes that ask for a rank.
constexpr std::size_t kMostEnrolling = 4096;

}  // namespace

CoordinatorHost::CoordinatorHost(ProcessState& process, IoThreads& threads,
                                 std::function<void(Message)> own)
    : process_(process),
      strand_(threads),
      own_(std::move(own)),
      coordinator_({.processes = process.options.processes,
                    .seed = process.options.seed,
                    .ranks_by_order = process.options.ranks_by_order,
                    .scheme = process.options.scheme,
                    .losses = process.options.losses}),
      peers_(process, strand_, Purpose::kCoordination, *this),
      ranks_(process.options.processes),
      missing_(coordinator_.missing()) {
  strand_.after(process.options.stall_warn, [this] { watch(); });
}

void CoordinatorHost::close(bool with_bye) {
  peers_.close(with_bye);
  strand_.post([this, with_bye] {
    for (const auto& [known, link] : enrolling_) link->close(with_bye);
  });
}

// ---- processes without a rank ----

void CoordinatorHost::opened(std::shared_ptr<Link> link) {
  strand_.post([this, link = std::move(link)] {
    if (enrolling_.size() < kMostEnrolling) enrolling_[link.get()] = link;
  });
}

Status CoordinatorHost::received(Link& link, Message&& message) {
  const Ask* ask = std::get_if<Ask>(&message);
  if (!ask || ask->topic != Topic::kEnroll)
    return broken("A ", name_of(message), " came from a process without a rank.");
  if (ask->clock != static_cast<Clock>(link.peer().incarnation))
    return broken("A process asked for the rank of another: a connection gets one rank.");
  strand_.post([this, known = &link, clock = ask->clock] {
    const auto found = enrolling_.find(known);
    if (found == enrolling_.end()) return;
    // A process that asks again, after its connection broke, has its rank.
    const bool is_new = !enrolled_.contains(clock);
    if (is_new && coordinator_.processes() >= wire::kMaxProcesses) {
      LOG(WARNING) << "a job has at most " << wire::kMaxProcesses
                   << " processes: one more is refused";
      return found->second->close(true);
    }
    if (is_new) enrolled_[clock] = coordinator_.enroll();
    ranks_ = coordinator_.processes();
    std::string rank;
    put_le(rank, enrolled_.at(clock));
    found->second->send(Answer{Topic::kEnroll, clock, rank});
  });
  return {};
}

// ---- peers ----

// Puts the host that a connection comes from into the address of its Join, if that names none.
// Dials a server that the job did not begin with: if the workers could not reach it, the job would
// end with it. Its message is handled once it was reached.
bool CoordinatorHost::waits_until_reached(Rank rank, Message& message) {
  Ask* const ask = std::get_if<Ask>(&message);
  if (!ask || ask->topic != Topic::kJoin) return false;
  Result<JoinBody> join = decode<JoinBody>(ask->body);
  if (!join.ok()) return false;  // the coordinator says so
  if (const auto [host, port] = split_address(join.value().address); is_anywhere(host)) {
    join.value().address = join_address(hosts_[rank], port);
    ask->body = encode(join.value());
  }
  if (rank < process_.options.processes || !join.value().server) {
    reach(strand_, join.value().address, process_.options.connect,
          [this, rank](const Status& status) {
            if (status.ok()) process_.note_reached(rank);
          });
    return false;
  }
  const auto [known, is_new] = reached_.try_emplace(rank, false);
  if (!is_new) return !known->second;
  reach(
      strand_, join.value().address, process_.options.connect,
      [this, rank, message](const Status& status) {
        if (reached_[rank] = status.ok(); status.ok()) {
          process_.note_reached(rank);
          return handle(rank, message);
        }
        std::vector<Dispatch> out{
            {rank, Refuse{Code::kPeer, str("process 0 cannot reach the server that wants to join: ",
                                           status.error().message,
                                           " Give an address that all others reach (--advertise), "
                                           "or join with --role=worker.")}}};
        dispatch(out);
      });
  return true;
}

void CoordinatorHost::handle(Rank rank, Message message) {
  if (waits_until_reached(rank, message)) return;
  hear_clocks();
  std::vector<Dispatch> out;
  const Status status = coordinator_.handle(rank, message, now(), out);
  if (const Directive* directive = std::get_if<Directive>(&message))
    tell_too(static_cast<Rank>(directive->clock), rank, out);
  dispatch(out);
  for (const std::string& line : coordinator_.take_warnings()) LOG(WARNING) << line;
  if (process_.options.on_round)
    if (const std::string round = coordinator_.take_round(); !round.empty())
      process_.options.on_round(round);
  if (!status.ok()) return lose(rank, status.error().code, status.error().message);
  MutexLock lock(process_.mutex);
  missing_ = coordinator_.missing();
}

void CoordinatorHost::lose(Rank rank, Code code, const std::string& why) {
  hear_clocks();
  std::vector<Dispatch> out;
  coordinator_.lost(rank, code, why, out);
  tell_too(rank, ranks_, out);  // no process reported it
  dispatch(out);
}

void CoordinatorHost::hear_clocks() {
  coordinator_.heard(0, process_.clock);
  for (const Peer* const peer : peers_.all())
    coordinator_.heard(peer->rank(), process_.heard(peer->rank(), peer->heard_clock()));
}

// Tells a process that another has lost, if it is still connected with the coordinator.
void CoordinatorHost::tell_too(Rank lost, Rank reporter, std::vector<Dispatch>& out) const {
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
      peers_[one.rank].send_surely(std::move(one.message));
  }
  paused();
}

void CoordinatorHost::paused() {
  const bool idle = std::ranges::all_of(peers_.all(), &Peer::idle);
  MutexLock lock(process_.mutex);
  process_.idle = idle;
  process_.changed.notify_all();
}

// Warns of what the job waits for, if that is the same as stall_warn ago.
void CoordinatorHost::watch() {
  hear_clocks();
  std::string waited_for = process_.roster() ? coordinator_.waiting_for() : "";
  if (!waited_for.empty() && waited_for == waited_for_ && !process_.over())
    LOG(WARNING) << waited_for;
  waited_for_ = std::move(waited_for);
  strand_.after(process_.options.stall_warn, [this] { watch(); });
}

}  // namespace shoal::table
