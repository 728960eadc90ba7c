// Implements Service over TCP: one process of a job, from its listener to its last message.

#include "shoal/base/log.h"
#include "shoal/base/try.h"
#include "shoal/table/broken.h"
#include "shoal/table/link/handover.h"
#include "shoal/table/link/table_over_tcp.h"

namespace shoal::table {
namespace {

constexpr milliseconds kLastWords{2'000}, kInterruption{200};

class ServiceOverTcp final : public Service {
 public:
  explicit ServiceOverTcp(const ServiceOptions& options);
  ~ServiceOverTcp() override;
  Status begin();

  const RosterBody& roster() const override { return *process_.roster(); }
  std::uint16_t port() const override { return listener_.port; }
  Table* table() override { return table_.get(); }
  Status serve(const std::function<Wish()>& wish) override;

 private:
  Result<LinkOwner*> admit(const PeerName& peer);
  Result<bool> has_its_rank(const PeerName& peer, bool coordinates);
  bool serves() const {
    const RosterBody* const known = process_.roster();
    return process_.options.server ||
           (known && known->processes[process_.options.rank].server >= 0);
  }
  Status join();
  std::string absent() const;
  void hear(Message&& message);
  void directed(const Directive& directive);
  bool left() const override { return process_.left(); }
  bool requeued() const override { return process_.requeued(); }
  std::vector<std::string> where_to_rejoin() const override;
  std::string advertised() const;

  ProcessState process_;
  IoThreads threads_;
  // The addresses that processes have first connected from, by rank.
  std::map<Rank, std::string> known_ GUARDED_BY(process_.mutex);
  // Any process may come to coordinate, and any worker to hold rows.
  std::unique_ptr<CoordinatorHost> host_;
  std::unique_ptr<CoordinatorClient> coordinator_;
  std::unique_ptr<ShardHost> shard_;
  std::unique_ptr<TableOverTcp> table_;              // in workers, once the roster is known
  std::atomic<TableOverTcp*> known_table_{nullptr};  // the same, for the client's strand
  Listener listener_;
};

ServiceOverTcp::ServiceOverTcp(const ServiceOptions& options)
    : process_(options), threads_(options.threads) {
  if (options.local_transport == LocalTransport::kAuto && options.throttle == 0) {
    Result<std::shared_ptr<Handover>> handover = Handover::create(threads_, options.token);
    if (handover.ok())
      process_.handover = std::move(handover).value();
    else
      LOG(INFO) << handover.error().message << "; rows go over TCP";
  }
  host_ = std::make_unique<CoordinatorHost>(
      process_, threads_, [this](Message message) { coordinator_->deliver(std::move(message)); });
  coordinator_ = std::make_unique<CoordinatorClient>(
      process_, threads_, *host_, [this](Message&& message) { hear(std::move(message)); });
  shard_ = std::make_unique<ShardHost>(process_, threads_, *coordinator_);
}

// If the job has ended, waits until the last messages have arrived, and the Byes have left; if it
// goes on, its processes see the connections break. Then ends the threads, and only then the
// objects that they use.
ServiceOverTcp::~ServiceOverTcp() {
  const bool in_order = process_.over();
  if (in_order) {
    coordinator_->flush();
    MutexLock lock(process_.mutex);
    process_.changed.wait_for(process_.mutex, kLastWords, [this]() REQUIRES(process_.mutex) {
      return process_.idle && process_.host_idle;
    });
  }
  listener_ = {};
  if (table_) table_->close(in_order);
  shard_->close(in_order);
  host_->close(in_order);
  coordinator_->close(in_order);
  if (in_order) {
    let_run(threads_);
    process_.last_words->wait(kLastWords);
  }
  threads_.stop();
}

Status ServiceOverTcp::begin() {
  const ServiceOptions& options = process_.options;
  Result<Listener> listener = Listener::create(
      threads_, options.bind, options.port, process_.self, process_.link_options(),
      [this](const PeerName& peer) { return admit(peer); },
      [this] {
        const RosterBody* const known = process_.roster();
        return std::max<std::size_t>(process_.options.processes,
                                     known ? known->processes.size() : 0);
      });
  TRY(listener);
  listener_ = std::move(listener).value();
  process_.on_keys(listener_.ask_again);
  if (options.rank != 0) coordinator_->dial(options.coordinator);
  TRY(join());
  if (options.worker) {
    table_ = std::make_unique<TableOverTcp>(process_, threads_, *coordinator_, *shard_);
    known_table_ = table_.get();
    return table_->connect();
  }
  shard_->start(roster(), [](std::vector<Message>) {});
  return {};
}

Status ServiceOverTcp::join() {
  const ServiceOptions& options = process_.options;
  const JoinBody body{.rank = options.rank,
                      .worker = options.worker,
                      .server = options.server,
                      .host = options.host,
                      .address = advertised(),
                      .configuration = options.configuration};
  coordinator_->send(Ask{.topic = Topic::kJoin,
                         .clock = static_cast<Clock>(process_.self.incarnation),
                         .body = encode(body)});
  if (options.rank != 0)
    LOG(INFO) << "rank " << options.rank << " looks for process 0 at " << options.coordinator;
  const auto late = [this](double seconds) {
    LOG(INFO) << "after " << seconds << " s: " << absent();
  };
  // The coordinator, which knows the missing ranks, is to be the first to report them.
  const milliseconds limit = options.rank == 0 ? options.start : options.start + options.reconnect;
  const Status status = process_.wait([this] { return process_.roster(); }, late, limit);
  if (status.ok() || process_.over()) return process_.status();
  const Error error{Code::kTimeout, str("the job did not start within ", to_seconds(options.start),
                                        " s: ", absent())};
  coordinator_->abort(error);
  return error;
}

// Returns the processes that the start waits for, in words.
std::string ServiceOverTcp::absent() const {
  if (process_.options.rank != 0) {
    const std::string trouble = coordinator_->trouble();
    if (trouble.empty())
      return str("rank ", process_.options.rank, " is connected with the coordinator at ",
                 process_.options.coordinator, ", which waits for others");
    return str("no coordinator at ", process_.options.coordinator, " (", trouble, ")");
  }
  std::vector<std::string> ranks;
  for (const Rank rank : host_->missing()) ranks.push_back(std::to_string(rank));
  return str(ranks.size() == 1 ? "rank " : "ranks ", shoal::join(ranks), " of ",
             process_.options.processes, ranks.size() == 1 ? " has" : " have", " not joined");
}

std::string ServiceOverTcp::advertised() const {
  const std::string& given = process_.options.advertise;
  const HostPort address = split_address(given.empty() ? process_.options.bind : given);
  return join_address(address.host,
                      address.port.empty() ? std::to_string(listener_.port) : address.port);
}

// Returns whether the process has the key of its rank. False: this one has not yet heard of the
// rank, whose process knows where this one is from a roster that comes here, too.
Result<bool> ServiceOverTcp::has_its_rank(const PeerName& peer, bool coordinates) {
  // A rank that a launcher gave belongs to the first that comes with it.
  if (coordinates && peer.purpose == Purpose::kCoordination && !process_.roster() &&
      !process_.options.ranks_by_order)
    process_.bind(peer.rank, peer.key);
  const std::optional<PublicKey> key = process_.key_of(peer.rank);
  if (!key) return false;
  std::string from;
  {
    MutexLock lock(process_.mutex);
    if (*key == peer.key) return known_.try_emplace(peer.rank, peer.address), true;
    if (const auto known = known_.find(peer.rank); known != known_.end())
      from = ", which came from " + known->second;
  }
  return broken(process_.name_of(peer.rank), " is another process's", from,
                ": two processes with one rank, or one that was started again, which cannot come "
                "back into a running job");
}

Result<LinkOwner*> ServiceOverTcp::admit(const PeerName& peer) {
  const std::uint32_t own = process_.options.rank, processes = process_.options.processes;
  if (const Status status = process_.status(); !status.ok())
    return broken("the job has failed: ", status.error().message);
  const bool coordinates = host_->coordinates();
  const bool to_coordinator =
      peer.purpose == Purpose::kCoordination && (coordinates || host_->may_succeed());
  // A process that does not coordinate names the one that does.
  if (peer.rank == kNoRank && peer.purpose == Purpose::kCoordination) return host_->enrollment();
  if (peer.rank == kNoRank)
    return broken("a process without a rank asks for rows: it joins the job at first");
  // One that joins may not know yet who joins with it.
  const bool joins = coordinates ? host_->knows(peer.rank)
                                 : process_.roster() != nullptr || process_.options.joins;
  if (peer.rank >= processes && !joins)
    return broken("rank ", peer.rank, " cannot be in this job of ", processes, " processes");
  if (peer.rank == own && !(to_coordinator && own != 0))  // a standby that takes over
    return broken("rank ", own, " is this process itself: two processes have that rank");
  if (process_.is_gone(peer.rank)) return broken("rank ", peer.rank, kRemoved);
  const Result<bool> is_its_own = has_its_rank(peer, coordinates);
  TRY(is_its_own);
  if (!is_its_own.value()) return nullptr;
  if (to_coordinator) return &host_->peers()[peer.rank];
  if (peer.purpose == Purpose::kStandby && own != 0) return &host_->leaders()[peer.rank];
  if (peer.purpose != Purpose::kRows && peer.purpose != Purpose::kCopies)
    return broken("rank ", own, " does not coordinate the job");
  // Others may know sooner that this process is a server from now on.
  if (!serves()) return nullptr;
  return &(peer.purpose == Purpose::kRows ? shard_->peers() : shard_->leaders())[peer.rank];
}

std::vector<std::string> ServiceOverTcp::where_to_rejoin() const {
  const Status status = process_.status();
  std::vector<std::string> addresses;
  if (status.ok() || !says_removed(status.error().message) || !process_.roster()) return addresses;
  for (Rank rank = 0; rank < roster().processes.size(); ++rank)
    if (rank != process_.options.rank && !roster().processes[rank].address.empty())
      addresses.push_back(process_.address_of(rank));
  return addresses;
}

// Handles the coordinator's messages, on the client's strand.
void ServiceOverTcp::hear(Message&& message) {
  if (const auto* total = std::get_if<NormTotal>(&message)) return shard_->hear({*total});
  if (const auto* directive = std::get_if<Directive>(&message)) return directed(*directive);
  auto* answer = std::get_if<Answer>(&message);
  if (!answer)
    return process_.fail(
        broken("the coordinator sent a ", name_of(message), ", which is not for this process"));
  if (answer->topic == Topic::kDone) process_.finish();
  if (answer->topic == Topic::kLeave && !process_.options.worker) {
    // The answer to a server alone. A worker's table waits for its own.
    if (decode_may_leave(answer->body)) process_.leave();
    return;
  }
  if (answer->topic != Topic::kJoin &&
      (answer->topic != Topic::kRegroup || process_.options.worker))
    return coordinator_->pending(message);
  Result<RosterBody> roster = decode<RosterBody>(answer->body);
  if (!roster.ok()) return process_.fail(roster.error());
  process_.know(std::move(roster).value());
  host_->regrouped();
  shard_->dial_copy();
}

void ServiceOverTcp::directed(const Directive& directive) {
  switch (directive.kind) {
    case DirectiveKind::kAbort: return process_.fail({directive.code, directive.text});
    case DirectiveKind::kPause:
    case DirectiveKind::kAgreed: return coordinator_->pending(directive);
    case DirectiveKind::kFinished: return process_.finish(directive.want);
    case DirectiveKind::kLeft:
    case DirectiveKind::kLost: break;
  }
  const auto rank = static_cast<Rank>(directive.clock);
  const bool is_lost = directive.kind == DirectiveKind::kLost;
  if (rank == process_.options.rank)
    return process_.fail(
        {Code::kPeer,
         str("this process was removed from the job, which goes on without it: ", directive.text)});
  if (is_lost && !host_->coordinates())
    LOG(WARNING) << process_.name_of(rank)
                 << " is lost, and the job goes on without it: " << directive.text;
  process_.let_go(rank);
  shard_->let_go(rank);
  if (host_->coordinates()) host_->let_go(rank, is_lost);
  if (!is_lost) return;
  if (TableOverTcp* const table = known_table_) table->lose(rank);
}

Status ServiceOverTcp::serve(const std::function<Wish()>& wish) {
  Clock wishes = 0;
  for (bool is_last = false; !process_.finished();) {
    if (const Status status =
            process_.wait([this] { return process_.finished(); }, [](double) {}, kInterruption);
        !status.ok() && process_.over())
      return process_.status();
    if (is_last || !wish || process_.finished()) continue;
    const Wish now = wish();
    is_last = now.leaves || now.want == Want::kRequeue;
    if (now.leaves)
      coordinator_->send(Ask{.topic = Topic::kLeave, .clock = 0, .body = encode(LeaveBody())});
    else if (now.want != Want::kNothing)
      coordinator_->send(Ask{.topic = Topic::kPause, .clock = ++wishes, .body = encode(now.want)});
  }
  return {};
}

}  // namespace

std::string validate(const ServiceOptions& options) {
  if (options.processes < 1) return "a job has at least one process";
  if (options.rank >= options.processes)
    return str("rank is ", options.rank, "; with ", options.processes,
               " processes it must be 0 to ", options.processes - 1);
  if (!options.worker && !options.server) return "a process is a worker, a server, or both";
  if (options.rank != 0 && (split_address(options.coordinator).host.empty() ||
                            split_address(options.coordinator).port.empty()))
    return str("\"", options.coordinator, "\" is no host:port of process 0");
  if (options.bind.empty()) return "no address to listen on";
  if (options.threads < 1)
    return str(options.threads, " threads for input and output; at least 1 is needed");
  if (options.scheme)
    if (const auto scheme = options.scheme->make(); !scheme.ok()) return scheme.error().message;
  if (options.encrypt == Encrypt::kAlways && options.token.size() < kShortestToken)
    return str("a token of ", options.token.size(), " bytes: encrypted connections need one of at ",
               "least ", kShortestToken, " bytes");
  if (options.certificates && options.encrypt == Encrypt::kNever)
    return "certificates are given, and nothing is encrypted: leave out --tls_cert, --tls_key and "
           "--tls_ca, or --encrypt=never and --insecure";
  if (options.window < 1) return "window is 0 bytes; it must be 1 or more";
  if (options.throttle < 0)
    return str("throttle is ", options.throttle,
               " bytes a second; it must be 0 (no limit) or more");
  for (const milliseconds time :
       {options.start, options.connect, options.reconnect, options.stall_warn, options.stall_abort})
    if (time <= milliseconds(0))
      return "start, connect, reconnect, stall_warn and stall_abort must be above 0 s";
  return {};
}

Result<std::unique_ptr<Service>> Service::create(const ServiceOptions& options) {
  if (const std::string wrong = validate(options); !wrong.empty())
    return Error{Code::kUsage, wrong};
  auto service = std::make_unique<ServiceOverTcp>(options);
  TRY(service->begin());
  return std::unique_ptr<Service>(std::move(service));
}

}  // namespace shoal::table
