#include "shoal/table/link/table_over_tcp.h"

#include "shoal/base/log.h"
#include "shoal/base/try.h"
#include "shoal/table/link/handover.h"

namespace shoal::table {
namespace {

constexpr milliseconds kTick{1000};
constexpr std::size_t kPushedAtOnce = 16 * 1024;

}  // namespace

TableOverTcp::TableOverTcp(ProcessState& process, IoThreads& threads,
                           CoordinatorClient& coordinator, ShardHost& shard)
    : TableSession(true),
      process_(process),
      coordinator_(coordinator),
      shard_(shard),
      strand_(threads),
      peers_(process, strand_, Purpose::kRows, *this),
      worker_(process.roster()->processes[process.options.rank].worker) {}

// ---- the solver's thread: a generation ----

template <class Done>
Status TableOverTcp::wait_until(Done done, const char* late) {
  return process_.wait(done, [late](double seconds) {
    LOG(WARNING) << "has " << late << " for " << seconds << " s";
  });
}

Status TableOverTcp::connect(bool anew) {
  start_shard();
  // The second call comes after the links' handlers, which read and write the solver's memory.
  if (!strand_.call([this, anew] { dial_servers(anew); }) || (anew && !strand_.call([] {})))
    return Error{Code::kInternal, "the thread that moves rows does not answer"};
  const auto is_up = [this](Rank rank) REQUIRES(process_.mutex) {
    return rank == process_.options.rank || process_.is_gone_locked(rank) || peers_[rank].link();
  };
  return wait_until([&]() REQUIRES(process_.mutex) { return std::ranges::all_of(servers_, is_up); },
                    "tried to connect with all servers");
}

// Takes over the servers of the roster, and keeps the connections with those that stay, but for
// `anew`: rows of the last generation may be on their way in them.
void TableOverTcp::dial_servers(bool anew) {
  client_.reset();  // what an earlier generation has not heard is not waited for
  initial_.clear();
  std::vector<Rank> before;
  before.swap(servers_);
  for (const RosterBody::Process& process : roster().processes) {
    bool is_known = std::ranges::count(before, process.rank) > 0;
    if (anew && is_known && process.rank != process_.options.rank && process.server >= 0) {
      peers_[process.rank].close(false);
      is_known = false;
    }
    if (process.server >= 0) servers_.push_back(process.rank);
    if (process.rank == process_.options.rank || is_known == (process.server >= 0)) continue;
    if (is_known) {
      peers_[process.rank].close(true);
      continue;
    }
    if (!process_.is_gone(process.rank))
      peers_[process.rank].dial(process_.address_of(process.rank), process_.options.connect);
  }
}

Status TableOverTcp::create(const Plan& plan, const Source& initial,
                            const Destinations& destinations) {
  Status status;
  if (plan.servers != servers_.size())
    status = Error{Code::kConfig, str("the plan is for ", plan.servers,
                                      " servers, and the job has ", servers_.size())};
  else
    status = TableSession::create(plan, initial, destinations);
  if (!status.ok() && status.error().code == Code::kConfig) abort(status.error());
  return status;
}

void TableOverTcp::open(const Plan& plan, const Destinations& destinations) {
  {
    MutexLock lock(process_.mutex);
    ready_.clear();
    pending_.assign(plan.rows.size(), {.version = plan.start});
    missing_ = 0;
    needed_.clear();
    lost_.clear();
    if (has_messages(plan)) {
      needed_.insert(plan.ranks.begin(), plan.ranks.end());
      needed_.insert(plan.server_ranks.begin(), plan.server_ranks.end());
    }
    for (const Rank rank : needed_)
      if (process_.is_gone_locked(rank)) lost_.insert(rank);
    set_losses(lost_.size());
  }
  coordinator_.begin(generation_start());
  alone_ = plan.workers == 1;
  strand_.post([this, plan = plan, destinations, states = states()]() mutable {
    plan_ = std::move(plan);
    retired_.reset();
    client_ = std::make_unique<Client>(
        ClientOptions{.worker = worker_, .order = process_.options.order, .states = states}, plan_,
        destinations);
    for (const Rank rank : servers_)
      if (process_.is_gone(rank)) fail_over(number_of(rank));
    if (!std::exchange(ticks_, true)) tick();
  });
}

Status TableOverTcp::install(const Plan& plan, const Source& initial,
                             const Destinations& destinations) {
  strand_.post([this, first = initial_of(plan, initial), destinations]() mutable {
    initial_ = std::move(first);
    for (int server = 0; server < static_cast<int>(initial_.size()); ++server) {
      if (is_own(server))
        std::get<PlanMessage>(initial_[server][0]).in_place = [destinations](RowId row) {
          return destinations(row, Part::kWeights).numbers;
        };
      for (const Message& message : initial_[server]) send(server, message);
    }
  });
  const Status status =
      wait_until([this]() REQUIRES(process_.mutex) { return ready_.size() == servers_.size(); },
                 "waited for the servers to take the first weights");
  if (status.ok()) strand_.post([this] { initial_.clear(); });
  return status;
}

Result<bool> TableOverTcp::regroup(const SegmentBody& end) {
  const Result<bool> known = TableSession::regroup(end);
  TRY(known);
  const bool anew = was_interrupted();
  if (anew && !shard_.forget_pushes(worker_))
    return Error{Code::kInternal, "the thread that keeps rows does not answer"};
  worker_ = roster().processes[process_.options.rank].worker;
  if (worker_ < 0) {
    process_.leave();
    return false;
  }
  TRY(connect(anew));
  return true;
}

Result<bool> TableOverTcp::leave(Clock clock, std::string state) {
  TRY(settle());
  coordinator_.end(clock);
  const Result<std::string> answer =
      ask(Topic::kLeave, clock, encode(LeaveBody{true, std::move(state)}));
  TRY(answer);
  const bool may_go = decode_may_leave(answer.value());
  if (may_go) process_.leave();
  return may_go;
}

// Another server has the rows of the lost one from now on, or none.
void TableOverTcp::fail_over(int server) {
  {
    MutexLock lock(process_.mutex);
    ready_.insert(server);
    process_.changed.notify_all();
  }
  if (!client_) return;
  const auto heir_of = [&](int of) {
    const int copy = plan_.copy_of(of);
    return of == server && plan_.is_copied(of) && !process_.is_gone(servers_[copy])
               ? copy
               : Client::kNoServer;
  };
  const Result<std::vector<RowId>> arrived =
      client_->lose_server(server, heir_of, needs_no_rows(plan_.ranks, process_.options.rank));
  if (!arrived.ok()) return coordinator_.abort(arrived.error());
  for (const RowId row : arrived.value()) this->arrived(row);
  for (int other = 0; other < static_cast<int>(servers_.size()); ++other) pump(other);
}

void TableOverTcp::lose(Rank rank) {
  note_lost(rank);
  {
    MutexLock lock(process_.mutex);
    if (needed_.contains(rank)) lost_.insert(rank);
    set_losses(lost_.size());
    process_.changed.notify_all();
  }
  strand_.post([this, rank] {
    peers_[rank].close(true);
    if (client_ && client_->state_bytes() > 0 && std::ranges::binary_search(plan_.ranks, rank))
      LOG(WARNING) << "What codecs had left out of the pushes of " << process_.name_of(rank)
                   << " is lost with it: up to " << 1e-6 * client_->state_bytes() << " MB";
    if (number_of(rank) < static_cast<int>(servers_.size())) fail_over(number_of(rank));
  });
}

// ---- the solver's thread: rows ----

// Sends a short push at once: that costs no more than to wake a thread that sends it. So it does
// any push of a worker that is alone.
void TableOverTcp::push(std::span<const Push> together) {
  std::size_t bytes = 0;
  for (const Push& push : together) {
    bytes += push.payload.bytes.size();
    pushed(push.clock);
  }
  if (!add(together)) return;
  const auto visit = [this] {
    visited_ = alone_;
    drain();
    visited_ = false;
  };
  if ((bytes > kPushedAtOnce && !alone_) || !strand_.try_run(visit))
    strand_.post([this] { drain(); });
}

void TableOverTcp::get(RowId row, Clock clock, Part part) {
  const Push wanted{.row = row, .clock = clock};
  if (add({&wanted, 1}, true, part)) strand_.post([this] { drain(); });
}

// Returns whether the strand has yet to be told of them.
bool TableOverTcp::add(std::span<const Push> pushes, bool only_get, Part part) {
  MutexLock lock(process_.mutex);
  const bool first = requests_.empty();
  for (const Push& push : pushes) {
    requests_.push_back({push, only_get, part});
    pending_[push.row].is_asked = true;
  }
  return first && !pushes.empty();
}

bool TableOverTcp::has(std::span<const RowId> rows) {
  MutexLock lock(process_.mutex);
  return std::ranges::none_of(
      rows, [this](RowId row) REQUIRES(process_.mutex) { return pending_[row].is_asked; });
}

Status TableOverTcp::wait(std::span<const RowId> rows) {
  {
    MutexLock lock(process_.mutex);
    for (const RowId row : rows) {
      Pending& pending = pending_[row];
      if (!pending.is_asked || std::exchange(pending.is_awaited, true)) continue;
      ++missing_;
    }
  }
  bool has_come = false;
  const Status status = process_.wait(
      [&]() REQUIRES(process_.mutex) { return (has_come = missing_ == 0) || !interruption().ok(); },
      [this](double seconds) { strand_.post([this, seconds] { warn(seconds); }); });
  TRY(status);
  return has_come ? Status() : interruption();
}

// Leaves some of the memory for other payloads of links.
std::shared_ptr<float[]> TableOverTcp::memory(std::size_t floats) {
  constexpr std::size_t kForLinks = 1u << 30;
  std::shared_ptr<std::byte[]> piece;
  if (process_.handover)
    piece = process_.handover->memory().allocate(floats * sizeof(float), kForLinks);
  if (!piece) return std::make_shared_for_overwrite<float[]>(floats);
  return {piece, reinterpret_cast<float*>(piece.get())};
}

void TableOverTcp::release() {
  const auto forget = [this, in_order = process_.over()] {
    client_.reset();
    initial_.clear();
    peers_.close(in_order);
  };
  // The second call comes after the links' handlers.
  if (!strand_.call(forget) || !strand_.call([] {}) || !shard_.stop())
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
    const int server = client_->server_of(row);
    if (server != Client::kNoServer) concerned[server] = true;
    if (retired_ && !request.only_get && request.push.clock >= retired_->clock) retired_.reset();
    if (request.only_get)
      client_->get(row, request.push.clock, request.part, now());
    else
      client_->push(std::move(request.push), now());
    if (server == Client::kNoServer && !client_->is_written(row)) arrived(row);
  }
  for (std::size_t server = 0; server < concerned.size(); ++server)
    if (concerned[server]) pump(static_cast<int>(server));
}

void TableOverTcp::pump(int server) {
  if (!is_own(server)) return peers_[servers_[server]].wake();
  std::vector<Message> messages;
  while (std::optional<Message> message = client_->next(server)) {
    count_local(*message);
    messages.push_back(std::move(*message));
  }
  if (messages.empty()) return;
  if (visited_)
    shard_.hear_now(std::move(messages), parallel_for_);
  else
    shard_.hear(std::move(messages));
}

void TableOverTcp::send(int server, const Message& message) {
  if (is_own(server))
    shard_.hear({message});
  else if (!process_.is_gone(servers_[server]))
    peers_[servers_[server]].send(message);
}

void TableOverTcp::deliver(std::vector<Message> messages) {
  strand_.run([this, messages = std::move(messages)]() mutable {
    for (Message& message : messages) {
      count_local(message);
      if (const Status status = handle(number_of(process_.options.rank), message); !status.ok())
        process_.fail(status.error());
    }
  });
}

Status TableOverTcp::handle(int server, const Message& message) {
  if (!client_) return {};
  if (const Ready* ready = std::get_if<Ready>(&message)) {
    MutexLock lock(process_.mutex);
    if (ready->generation == plan_.generation) ready_.insert(server);
    process_.changed.notify_all();
    return {};
  }
  const Result<bool> taken = client_->take(server, message);
  TRY(taken);
  if (taken.value()) arrived(std::get<RowMessage>(message).row);
  if (std::holds_alternative<NeedPush>(message)) pump(server);
  return {};
}

void TableOverTcp::arrived(RowId row) {
  {
    MutexLock lock(process_.mutex);
    staleness_ = client_->staleness();
    const auto is_of_row = [row](const Request& request) { return request.push.row == row; };
    if (!client_->arrived(row) || std::ranges::any_of(requests_, is_of_row)) return;
    const Pending arrived{.version = client_->version(row)};
    if (!std::exchange(pending_[row], arrived).is_awaited || --missing_ > 0) return;
  }
  process_.changed.notify_all();  // the thread that wakes up finds the mutex free
}

void TableOverTcp::up(Peer& peer, bool again) {
  {
    MutexLock lock(process_.mutex);
    process_.changed.notify_all();
  }
  if (!again) return;
  const int server = number_of(peer.rank());
  if (!initial_.empty())
    for (const Message& message : initial_[server]) peer.send(message);
  if (retired_) peer.send(*retired_);
  if (client_) client_->link_up(server);
  peer.wake();
}

void TableOverTcp::tick() {
  ticks_ = client_ != nullptr;
  if (!ticks_) return;
  for (int server = 0; server < static_cast<int>(servers_.size()); ++server) pump(server);
  strand_.after(kTick, [this] { tick(); });
}

void TableOverTcp::warn(double seconds) {
  const std::optional<Client::Overdue> overdue = client_ ? client_->overdue() : std::nullopt;
  if (!overdue) return;
  std::string slowest;
  Clock least = kUnbounded;
  for (const Rank rank : servers_) {
    const bool works = !is_own(number_of(rank)) && roster().processes[rank].worker >= 0;
    const Clock clock = works ? peers_[rank].heard_clock() : kUnbounded;
    if (clock < 0 || clock >= least) continue;
    least = clock;
    slowest = str("; the slowest worker that it knows of is ", process_.name_of(rank, clock));
  }
  LOG(WARNING) << "has waited for rows for " << seconds << " s at clock " << process_.clock
               << ", longest for row " << overdue->row << " from "
               << (is_own(overdue->server) ? "its own server"
                                           : str("server ", overdue->server, ", ",
                                                 process_.name_of(servers_[overdue->server])))
               << slowest;
}

}  // namespace shoal::table
