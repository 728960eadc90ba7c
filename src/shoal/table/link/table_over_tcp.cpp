#include "shoal/table/link/table_over_tcp.h"

#include "shoal/base/log.h"

namespace shoal::table {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTick{1000};
constexpr std::size_t kPushedAtOnce = 16 * 1024;

}  // namespace

TableOverTcp::TableOverTcp(ProcessState& process, IoThreads& threads,
                           CoordinatorClient& coordinator, ShardHost* shard)
    : process_(process),
      coordinator_(coordinator),
      shard_(shard),
      strand_(threads),
      servers_(process, strand_, *this),
      worker_(process.roster()->processes[process.options.rank].worker) {}

// ---- the solver's thread: a generation ----

template <class Done>
Status TableOverTcp::wait_until(Done done, const char* late) {
  return process_.wait(done, [late](double seconds) {
    LOG(WARNING) << "has " << late << " for " << seconds << " s";
  });
}

Status TableOverTcp::connect() {
  const auto connect = [this] {
    client_.reset();  // what an earlier generation has not heard is not waited for
    servers_.connect(roster());
  };
  if (!strand_.call(connect))
    return Error{Code::kInternal, "the thread that moves rows does not answer"};
  return wait_until([this] { return servers_.all_are(&ServerPeers::Server::up); },
                    "tried to connect with all servers");
}

Status TableOverTcp::create(const Plan& plan, const Source& initial,
                            const Destination& destination) {
  Status status;
  if (static_cast<int>(plan.servers) != servers_.size())
    status = Error{Code::kConfig, str("the plan is for ", plan.servers,
                                      " servers, and the job has ", servers_.size())};
  else
    status = session_.create(plan, true, *this,
                             {.settle = [this] { return settle(); },
                              .open = [&] { open(plan, destination); },
                              .install = [&] { return install(plan, initial, destination); }});
  if (!status.ok() && status.error().code == Code::kConfig) abort(status.error());
  return status;
}

void TableOverTcp::open(const Plan& plan, const Destination& destination) {
  rows_ = plan.rows.size();
  servers_.none_is_ready();
  {
    MutexLock lock(process_.mutex);
    pending_.assign(plan.rows.size(), {});
  }
  coordinator_.begin(session_.first(), session_.paced(), session_.bounded());
  alone_ = plan.workers == 1;
  strand_.post([this, plan, destination]() mutable {
    plan_ = std::move(plan);
    retired_.reset();
    taken_.assign(plan_.rows.size(), 0);
    client_ = std::make_unique<Client>(
        ClientOptions{.worker = worker_, .order = process_.options.order}, plan_, destination);
    if (!std::exchange(ticks_, true)) tick();
  });
}

Status TableOverTcp::install(const Plan& plan, const Source& initial,
                             const Destination& destination) {
  strand_.post([this, first = initial_of(plan, initial), destination]() mutable {
    for (int server = 0; server < servers_.size(); ++server) {
      std::vector<Message>& messages = servers_[server].initial;
      messages = std::move(first[server]);
      if (server == servers_.own())
        std::get<PlanMessage>(messages[0]).in_place = [destination](RowId row) {
          return destination(row, Part::kWeights);
        };
      for (const Message& message : messages) send(server, message);
    }
  });
  const Status status = wait_until([this] { return servers_.all_are(&ServerPeers::Server::ready); },
                                   "waited for the servers to take the first weights");
  if (status.ok())
    strand_.post([this] {
      for (ServerPeers::Server& server : servers_.all()) server.initial.clear();
    });
  return status;
}

Result<bool> TableOverTcp::regroup(const SegmentBody& end) {
  if (Status status = settle(); !status.ok()) return status.error();
  const Result<std::string> answer = ask(Topic::kRegroup, roster().generation + 1, encode(end));
  if (!answer.ok()) return answer.error();
  Result<RosterBody> next = decode_roster(answer.value());
  if (!next.ok()) return next.error();
  process_.know(std::move(next).value());
  worker_ = roster().processes[process_.options.rank].worker;
  if (worker_ < 0) {
    process_.leave();
    return false;
  }
  if (Status status = connect(); !status.ok()) return status.error();
  return true;
}

Result<bool> TableOverTcp::leave(Clock clock, std::string state) {
  if (Status status = settle(); !status.ok()) return status.error();
  coordinator_.end(clock);
  const Result<std::string> answer =
      ask(Topic::kLeave, clock, encode(LeaveBody{true, std::move(state)}));
  if (!answer.ok()) return answer.error();
  const bool may_go = decode_may_leave(answer.value());
  if (may_go) process_.leave();
  return may_go;
}

Result<std::string> TableOverTcp::ask(Topic topic, Clock clock, std::string body) {
  Ask question{.topic = topic, .clock = clock, .body = std::move(body)};
  if (const auto before = session_.retires_before(question)) retire(*before);
  return coordinator_.ask(std::move(question));
}

void TableOverTcp::retire(const Retire& retire) {
  strand_.post([this, retire] {
    if (!client_) return;  // no server has heard of this worker
    retired_ = retire;
    for (int server = 0; server < servers_.size(); ++server) send(server, retire);
  });
}

// ---- the solver's thread: rows ----

// A short push is sent here and now: that costs no more than to wake a thread that sends it. So is
// any push of a worker that is alone.
void TableOverTcp::push(std::span<const Push> together) {
  std::size_t bytes = 0;
  for (const Push& push : together) {
    bytes += push.payload.bytes.size();
    session_.pushed(push.clock);
  }
  if (!add(together.size(), [&](std::size_t i) { return Request{.push = together[i]}; })) return;
  const auto visit = [this] {
    visited_ = alone_;
    drain();
    visited_ = false;
  };
  if ((bytes > kPushedAtOnce && !alone_) || !strand_.try_run(visit))
    strand_.post([this] { drain(); });
}

void TableOverTcp::get(RowId row, Clock clock, Part part) {
  const auto request = [&](std::size_t) {
    return Request{.push = {.row = row, .clock = clock}, .only_get = true, .part = part};
  };
  if (add(1, request)) strand_.post([this] { drain(); });
}

// Returns whether the strand has yet to be told of them.
template <class Make>
bool TableOverTcp::add(std::size_t count, const Make& request) {
  MutexLock lock(process_.mutex);
  const bool first = requests_.empty();
  for (std::size_t i = 0; i < count; ++i) {
    requests_.push_back(request(i));
    ++pending_[requests_.back().push.row].requests;
  }
  return first && count > 0;
}

Status TableOverTcp::wait(std::span<const RowId> rows) {
  {
    MutexLock lock(process_.mutex);
    for (const RowId row : rows) {
      Pending& pending = pending_[row];
      if (pending.requests == 0 || std::exchange(pending.is_awaited, true)) continue;
      ++missing_;
    }
  }
  return process_.wait(
      [this]() REQUIRES(process_.mutex) { return missing_ == 0; },
      [this](double seconds) { strand_.post([this, seconds] { warn(seconds); }); });
}

Status TableOverTcp::settle() {
  std::vector<RowId> all(rows_);
  std::iota(all.begin(), all.end(), RowId{0});
  return wait(all);
}

void TableOverTcp::release() {
  const auto forget = [this, in_order = process_.over()] {
    client_.reset();
    for (ServerPeers::Server& server : servers_.all()) server.initial.clear();
    servers_.close(in_order);
  };
  // the second comes after what the links had to do
  if (!strand_.call(forget) || !strand_.call([] {}) || (shard_ && !shard_->stop()))
    LOG(ERROR) << "the threads that move rows do not answer";
}

// ---- the strand ----

void TableOverTcp::drain() {
  std::vector<Request> requests;
  {
    MutexLock lock(process_.mutex);
    requests.swap(requests_);
  }
  if (!client_) return;
  std::vector<bool> concerned(servers_.size());
  for (Request& request : requests) {
    const RowId row = request.push.row;
    ++taken_[row];
    concerned[plan_.rows[row].server] = true;
    if (request.only_get)
      client_->get(row, request.push.clock, request.part, now());
    else
      push(std::move(request.push));
  }
  for (int server = 0; server < servers_.size(); ++server)
    if (concerned[server]) pump(server);
}

void TableOverTcp::push(Push push) {
  if (retired_ && push.clock >= retired_->clock) retired_.reset();
  client_->push(std::move(push), now());
}

void TableOverTcp::pump(int server) {
  if (server != servers_.own()) return servers_[server].peer->wake();
  std::vector<Message> messages;
  while (std::optional<Message> message = client_->next(server)) {
    if (const Payload* payload = payload_of(*message))
      process_.traffic->local_bytes += payload->bytes.size();
    messages.push_back(std::move(*message));
  }
  if (messages.empty()) return;
  if (visited_)
    shard_->hear_now(std::move(messages), parallel_for_);
  else
    shard_->hear(std::move(messages));
}

void TableOverTcp::send(int server, const Message& message) {
  if (server == servers_.own())
    shard_->hear({message});
  else
    servers_[server].peer->send(message);
}

void TableOverTcp::deliver(std::vector<Message> messages) {
  strand_.run([this, messages = std::move(messages)]() mutable {
    for (Message& message : messages) {
      if (const Payload* payload = payload_of(message))
        process_.traffic->local_bytes += payload->bytes.size();
      if (const Status status = handle(servers_.own(), message); !status.ok())
        process_.fail(status.error());
    }
  });
}

Status TableOverTcp::handle(int server, const Message& message) {
  if (!client_) return {};
  if (const Ready* ready = std::get_if<Ready>(&message)) {
    if (ready->generation == plan_.generation) servers_.note(server, &ServerPeers::Server::ready);
    return {};
  }
  const Result<bool> taken = client_->take(server, message, now());
  if (!taken.ok()) return taken.error();
  if (taken.value()) arrived(std::get<RowMessage>(message).row);
  if (std::holds_alternative<NeedPush>(message)) pump(server);
  return {};
}

void TableOverTcp::arrived(RowId row) {
  {
    MutexLock lock(process_.mutex);
    staleness_.pushes = client_->staleness().pushes;
    staleness_.drops = client_->staleness().drops;
    if (!client_->arrived(row)) return;  // parts of it are to come
    Pending& pending = pending_[row];
    pending.requests -= std::exchange(taken_[row], 0);
    if (pending.requests > 0 || !std::exchange(pending.is_awaited, false) || --missing_ > 0) return;
  }
  process_.changed.notify_all();  // the thread that wakes up finds the mutex free
}

Status TableOverTcp::received(Peer& peer, Message&& message) {
  return handle(servers_.number_of(peer), message);
}

void TableOverTcp::up(Peer& peer, bool again) {
  const int number = servers_.number_of(peer);
  servers_.note(number, &ServerPeers::Server::up);
  if (!again) return;
  for (const Message& message : servers_[number].initial) peer.send(message);
  if (retired_) peer.send(*retired_);
  if (client_) client_->link_up(number, now());
  peer.wake();
}

void TableOverTcp::tick() {
  ticks_ = client_ != nullptr;
  if (!ticks_) return;
  const Instant again = client_->on_time(now());
  for (int server = 0; server < servers_.size(); ++server) pump(server);
  const milliseconds until = std::chrono::duration_cast<milliseconds>(again - now());
  strand_.after(std::clamp(until, milliseconds(10), kTick), [this] { tick(); });
}

void TableOverTcp::warn(double seconds) {
  const std::optional<Client::Overdue> overdue = client_ ? client_->overdue() : std::nullopt;
  if (!overdue) return;
  LOG(WARNING) << "has waited for rows for " << seconds << " s at clock " << process_.clock
               << ", for longest for row " << overdue->row << " from server " << overdue->server
               << ", " << process_.name_of(servers_[overdue->server].rank)
               << servers_.slowest_worker();
}

}  // namespace shoal::table
