// One process of a job, from its port to its last word.
#include <algorithm>
#include <map>
#include <utility>
#include <variant>

#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/table/link/coordinator_host.h"
#include "shoal/table/link/envoy.h"
#include "shoal/table/link/shard_host.h"
#include "shoal/table/link/table_over_tcp.h"
#include "shoal/table/scheme.h"

namespace shoal::table {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLastWords{2'000}, kInterruption{200};

// Who has connected so far: a rank belongs to the process that had it first.
class Guests {
 public:
  // Empty, or why the process is not let in.
  std::string admit(const PeerName& peer) {
    MutexLock lock(mutex_);
    const auto [found, first] = known_.try_emplace(peer.rank, peer);
    if (first || found->second.incarnation == peer.incarnation) return {};
    return str("rank ", peer.rank, " is in the job already, from ", found->second.address,
               ": two processes with one rank, or one that was started again, which cannot come "
               "back into a running job");
  }

 private:
  Mutex mutex_;
  std::map<std::uint32_t, PeerName> known_ GUARDED_BY(mutex_);
};

class ServiceOverTcp final : public Service {
 public:
  explicit ServiceOverTcp(const ServiceOptions& options);
  ~ServiceOverTcp() override;
  Status begin();

  const RosterBody& roster() const override { return *job_.roster(); }
  std::uint16_t port() const override { return listener_->port(); }
  Table* table() override { return table_.get(); }
  Status serve(const std::function<bool()>& interrupted) override;

 private:
  Result<LinkOwner*> admit(const PeerName& peer);
  void opened(std::shared_ptr<Link> link);
  Status join();
  std::string absent() const;
  void hear(Message&& message);
  void directed(const Directive& directive);
  void let_go(std::uint32_t rank);
  void leave(const Answer& answer);
  bool left() const override { return job_.left(); }
  std::string advertised() const;

  Job job_;
  IoThreads threads_;
  Guests guests_;
  std::unique_ptr<CoordinatorHost> coordinator_;  // in process 0
  std::unique_ptr<Envoy> envoy_;
  Talks talks_;
  std::unique_ptr<ShardHost> shard_;     // in servers
  std::unique_ptr<TableOverTcp> table_;  // in workers, once the roster is known
  std::unique_ptr<Listener> listener_;
};

ServiceOverTcp::ServiceOverTcp(const ServiceOptions& options)
    : job_(options),
      threads_(options.threads),
      coordinator_(
          options.rank != 0
              ? nullptr
              : std::make_unique<CoordinatorHost>(
                    job_, threads_, [this](Message message) { envoy_->take(std::move(message)); })),
      envoy_(std::make_unique<Envoy>(job_, threads_, coordinator_.get(),
                                     [this](Message&& message) { hear(std::move(message)); })),
      talks_(job_, *envoy_) {
  if (options.server) shard_ = std::make_unique<ShardHost>(job_, threads_, *envoy_);
}

// What was said last arrives, if the job has ended; a job that goes on without this process sees
// its connections break. Then the threads end, and only then what they touch.
ServiceOverTcp::~ServiceOverTcp() {
  const bool in_order = job_.over();
  if (in_order) {
    MutexLock lock(job_.mutex);
    job_.changed.wait_for(job_.mutex, kLastWords,
                          [this] { return coordinator_ ? coordinator_->idle() : envoy_->idle(); });
  }
  listener_.reset();
  if (table_) table_->close(in_order);
  if (shard_) shard_->close(in_order);
  if (coordinator_) coordinator_->close(in_order);
  envoy_->close(in_order);
  if (in_order) let_run(threads_);
  threads_.stop();
  job_.forget_links();
}

Status ServiceOverTcp::begin() {
  const ServiceOptions& options = job_.options;
  Result<std::unique_ptr<Listener>> listener = Listener::create(
      threads_, options.bind, options.port, job_.self, job_.link_options(),
      [this](const PeerName& peer) { return admit(peer); },
      [this](std::shared_ptr<Link> link) { opened(std::move(link)); });
  if (!listener.ok()) return listener.error();
  listener_ = std::move(listener).value();
  if (!coordinator_) envoy_->open(options.coordinator);
  if (Status status = join(); !status.ok()) return status;
  if (options.worker) {
    table_ = std::make_unique<TableOverTcp>(job_, threads_, *envoy_, talks_, shard_.get());
    if (shard_)
      shard_->start(roster(),
                    [this](std::vector<Message> messages) { table_->take(std::move(messages)); });
    return table_->connect();
  }
  shard_->start(roster(), [](std::vector<Message>) {});
  return {};
}

Status ServiceOverTcp::join() {
  const ServiceOptions& options = job_.options;
  const JoinBody body{.rank = options.rank,
                      .worker = options.worker,
                      .server = options.server,
                      .host = options.host,
                      .address = advertised(),
                      .configuration = options.configuration};
  envoy_->send(Ask{.topic = Topic::kJoin,
                   .clock = static_cast<Clock>(job_.self.incarnation),
                   .body = encode(body)});
  const auto late = [this](double seconds) {
    LOG(INFO) << "after " << seconds << " s: " << absent();
  };
  // The coordinator, which knows who is missing, is to be the first to say so.
  const milliseconds limit = coordinator_ ? options.start : options.start + options.reconnect;
  const Status status = job_.wait(
      limit, options.stall_warn, [this] { return job_.known(); }, late);
  if (status.ok() || job_.over()) return status;
  const Error error{Code::kTimeout,
                    str("the job did not start within ",
                        std::chrono::duration<double>(options.start).count(), " s: ", absent())};
  envoy_->abort(error);
  return error;
}

// Who or what the start waits for.
std::string ServiceOverTcp::absent() const {
  if (!coordinator_) {
    const std::string trouble = envoy_->trouble();
    if (trouble.empty())
      return str("rank ", job_.options.rank, " is connected with the coordinator at ",
                 job_.options.coordinator, ", which waits for others");
    return str("no coordinator at ", job_.options.coordinator, " (", trouble, ")");
  }
  std::vector<std::string> ranks;
  for (const std::uint32_t rank : coordinator_->missing()) ranks.push_back(std::to_string(rank));
  return str(ranks.size() == 1 ? "rank " : "ranks ", shoal::join(ranks), " of ",
             job_.options.processes, ranks.size() == 1 ? " has" : " have", " not joined");
}

std::string ServiceOverTcp::advertised() const {
  const std::string& given = job_.options.advertise;
  const HostPort address = split_address(given.empty() ? job_.options.bind : given);
  return join_address(address.host,
                      address.port.empty() ? std::to_string(listener_->port()) : address.port);
}

Result<LinkOwner*> ServiceOverTcp::admit(const PeerName& peer) {
  const std::uint32_t own = job_.options.rank, processes = job_.options.processes;
  const auto refused = [](const std::string& why) { return Error{Code::kPeer, why}; };
  if (const Status status = job_.status(); !status.ok())
    return refused("the job has failed: " + status.error().message);
  const bool to_coordinator = peer.purpose == Purpose::kCoordination && coordinator_;
  if (peer.rank == kNoRank && to_coordinator) return coordinator_->desk();
  const bool joins =
      peer.rank != kNoRank && (coordinator_ ? coordinator_->knows(peer.rank) : job_.known());
  if (peer.rank >= processes && !joins)
    return refused(str("rank ", peer.rank, " cannot be in this job of ", processes, " processes"));
  if (peer.rank == own)
    return refused(str("rank ", own, " is this process itself: two processes have that rank"));
  if (std::string why = guests_.admit(peer); !why.empty()) return refused(why);
  if (to_coordinator) return coordinator_->seat(peer.rank);
  if (peer.purpose == Purpose::kRows && shard_) return shard_->seat(peer.rank);
  return refused(str(
      "rank ", own,
      peer.purpose == Purpose::kRows ? " is no server" : " is not process 0, which coordinates"));
}

void ServiceOverTcp::opened(std::shared_ptr<Link> link) {
  if (link->peer().rank == kNoRank)
    coordinator_->greet(std::move(link));
  else if (link->peer().purpose == Purpose::kCoordination)
    coordinator_->take(std::move(link));
  else
    shard_->take(std::move(link));
}

// What the coordinator says, on the envoy's strand.
void ServiceOverTcp::hear(Message&& message) {
  if (const auto* total = std::get_if<NormTotal>(&message); total && shard_)
    return shard_->total(*total);
  if (const auto* directive = std::get_if<Directive>(&message)) return directed(*directive);
  auto* answer = std::get_if<Answer>(&message);
  if (!answer)
    return job_.fail({Code::kPeer, str("the coordinator sent a ", name_of(type_of(message)),
                                       ", which is not for this process")});
  if (answer->topic == Topic::kDone) job_.finish();
  if (answer->topic == Topic::kLeave && !job_.options.worker) return leave(*answer);
  if (answer->topic != Topic::kJoin && (answer->topic != Topic::kRegroup || job_.options.worker))
    return talks_.answer(std::move(*answer));
  Result<RosterBody> roster = decode_roster(answer->body);
  if (!roster.ok()) return job_.fail(roster.error());
  job_.know(std::move(roster).value());
}

void ServiceOverTcp::directed(const Directive& directive) {
  switch (directive.kind) {
    case DirectiveKind::kAbort: return job_.fail({directive.code, directive.text});
    case DirectiveKind::kPause: return envoy_->send(talks_.pause());
    case DirectiveKind::kAgreed: return talks_.agreed(directive.clock, directive.want);
    case DirectiveKind::kFinished: return job_.finish();
    case DirectiveKind::kLeft: return let_go(static_cast<std::uint32_t>(directive.clock));
  }
}

void ServiceOverTcp::let_go(std::uint32_t rank) {
  job_.let_go(rank);
  if (shard_) shard_->let_go(rank);
}

// Of a server alone: a worker's table hears of it where it waits.
void ServiceOverTcp::leave(const Answer& answer) {
  if (answer.body == "\1") job_.leave();
}

Status ServiceOverTcp::serve(const std::function<bool()>& interrupted) {
  for (bool asked = false; !job_.finished();) {
    if (const Status status = job_.wait(
            kInterruption, kForever, [this] { return job_.finished(); }, [](double) {});
        !status.ok() && job_.over())
      return status;
    if (asked || !interrupted || !interrupted() || job_.finished()) continue;
    asked = true;
    envoy_->send(Ask{.topic = Topic::kLeave, .clock = 0, .body = encode(LeaveBody())});
  }
  return {};
}

}  // namespace

std::string validate(const ServiceOptions& options) {
  using std::chrono::milliseconds;
  if (options.processes < 1) return "a job has at least one process";
  if (options.rank >= options.processes)
    return str("rank ", options.rank, " of ", options.processes, " processes: ranks count from 0");
  if (!options.worker && !options.server) return "a process is a worker, a server, or both";
  if (options.rank != 0 && (split_address(options.coordinator).host.empty() ||
                            split_address(options.coordinator).port.empty()))
    return str("\"", options.coordinator, "\" is no host:port of process 0");
  if (options.bind.empty()) return "no address to listen on";
  if (options.threads < 1)
    return str(options.threads, " threads for input and output; at least 1 is needed");
  if (!options.scheme.empty())
    if (const auto scheme = make_scheme(options.scheme); !scheme.ok())
      return scheme.error().message;
  if (options.window < 1) return "a window of 0 bytes lets nothing through";
  if (options.throttle < 0) return str("a throttle of ", options.throttle, " bytes a second");
  for (const milliseconds time :
       {options.start, options.connect, options.reconnect, options.stall_warn, options.stall_abort})
    if (time <= milliseconds(0))
      return "times for start, connect, reconnect, stall_warn and stall_abort are above 0";
  return {};
}

Result<std::unique_ptr<Service>> Service::create(const ServiceOptions& options) {
  if (const std::string wrong = validate(options); !wrong.empty())
    return Error{Code::kUsage, wrong};
  auto service = std::make_unique<ServiceOverTcp>(options);
  if (const Status status = service->begin(); !status.ok()) return status.error();
  return std::unique_ptr<Service>(std::move(service));
}

}  // namespace shoal::table
