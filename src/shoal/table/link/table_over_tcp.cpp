#include "shoal/table/link/table_over_tcp.h"

#include <algorithm>
#include <future>
#include <numeric>
#include <variant>

#include "shoal/base/log.h"

namespace shoal::table {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTick{1000};
constexpr std::size_t kAtOnce = 16 * 1024;

}  // namespace

// ---- the solver's thread ----

// A little is sent here and now: that costs no more than to wake a thread that does. So is all that
// nobody else has a part in.
void TableOverTcp::push(std::span<const Push> together) {
  std::size_t bytes = 0;
  for (const Push& push : together) bytes += push.payload.bytes.size(), pushed_ = push.clock + 1;
  if (!add(together.size(), [&](std::size_t i) { return Request{.push = together[i]}; })) return;
  const auto visit = [this] {
    visited_ = alone_;
    drain();
    visited_ = false;
  };
  if ((bytes > kAtOnce && !alone_) || !strand_.try_run(visit)) strand_.post([this] { drain(); });
}

void TableOverTcp::get(RowId row, Clock clock, Part part) {
  const auto request = [&](std::size_t) {
    return Request{.push = {.row = row, .clock = clock}, .only_get = true, .part = part};
  };
  if (add(1, request)) strand_.post([this] { drain(); });
}

// Whether nobody comes for them yet.
template <class Make>
bool TableOverTcp::add(std::size_t count, const Make& request) {
  MutexLock lock(job_.mutex);
  const bool first = requests_.empty();
  for (std::size_t i = 0; i < count; ++i) {
    requests_.push_back(request(i));
    ++requested_[requests_.back().push.row];
  }
  return first && count > 0;
}

Status TableOverTcp::wait(std::span<const RowId> rows) {
  {
    MutexLock lock(job_.mutex);
    for (const RowId row : rows) {
      if (arrived_[row] >= requested_[row] || awaited_[row] != 0) continue;
      awaited_[row] = requested_[row];
      ++missing_;
    }
  }
  return job_.wait(
      kForever, job_.options.stall_warn, [this]() REQUIRES(job_.mutex) { return missing_ == 0; },
      [this](double seconds) { strand_.post([this, seconds] { warn(seconds); }); });
}

void TableOverTcp::tell(Topic topic, Clock clock, std::string body) {
  envoy_.send(Ask{.topic = topic, .clock = clock, .body = std::move(body)});
}

Status TableOverTcp::settle() {
  std::vector<RowId> all(requested_.size());
  std::iota(all.begin(), all.end(), RowId{0});
  return wait(all);
}

Status TableOverTcp::finish(Clock clock) {
  if (Status status = settle(); !status.ok()) return status;
  talks_.end(clock);
  retire(pushed_);
  const Result<std::string> done = talks_.ask(Topic::kDone, clock, {});
  return done.ok() ? Status() : Status(done.error());
}

// Who goes to a meeting (kMeet) at its end, or because of what ends the generation, pushes no more,
// and nobody is to wait for it; nor until it is back.
Result<std::string> TableOverTcp::ask(Topic topic, Clock clock, std::string body) {
  if (topic == Topic::kMeet && (waited_for_ || body == "\1" || body == "\2")) retire(pushed_);
  return talks_.ask(topic, clock, std::move(body));
}

void TableOverTcp::retire(Clock clock) {
  strand_.post([this, clock] {
    // no server has heard of this worker
    if (!client_) return;
    retired_ = clock;
    for (int server = 0; server < static_cast<int>(servers_.size()); ++server)
      say(server, Retire{.clock = clock, .generation = plan_.generation});
  });
}

void TableOverTcp::release() {
  const auto client_gone = std::make_shared<std::promise<void>>(),
             shard_stopped = std::make_shared<std::promise<void>>();
  const bool in_order = job_.over();
  strand_.post([this, in_order, client_gone] {
    client_.reset();
    for (Server& server : servers_) {
      server.initial.clear();
      if (server.line) server.line->close(in_order);
    }
    // after what the links had to do
    strand_.post([client_gone] { client_gone->set_value(); });
  });
  if (shard_)
    shard_->stop([shard_stopped] { shard_stopped->set_value(); });
  else
    shard_stopped->set_value();
  // strands that nothing holds up
  constexpr std::chrono::seconds kLong{10};
  if (client_gone->get_future().wait_for(kLong) != std::future_status::ready ||
      shard_stopped->get_future().wait_for(kLong) != std::future_status::ready)
    LOG(ERROR) << "the threads that move rows do not answer";
}

StalenessCounts TableOverTcp::staleness() const {
  StalenessCounts counts;
  if (shard_) counts.reads = shard_->reads();
  MutexLock lock(job_.mutex);
  counts.pushes = staleness_.pushes;
  counts.drops = staleness_.drops;
  return counts;
}

// ---- the strand ----

void TableOverTcp::drain() {
  std::vector<Request> requests;
  {
    MutexLock lock(job_.mutex);
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
  for (int server = 0; server < static_cast<int>(servers_.size()); ++server)
    if (concerned[static_cast<std::size_t>(server)]) pump(server);
}

void TableOverTcp::push(Push push) {
  if (push.clock >= retired_) retired_ = -1;
  client_->push(std::move(push), now());
}

void TableOverTcp::pump(int server) {
  if (server != own_server_) {
    const Line& line = *servers_[static_cast<std::size_t>(server)].line;
    if (line.link()) line.link()->wake();
    return;
  }
  std::vector<Message> messages;
  while (std::optional<Message> message = client_->next(server)) {
    if (const Payload* payload = payload_of(*message)) job_.local_bytes += payload->bytes.size();
    messages.push_back(std::move(*message));
  }
  if (messages.empty()) return;
  if (visited_)
    shard_->hear_now(std::move(messages), parallel_for_);
  else
    shard_->hear(std::move(messages));
}

void TableOverTcp::say(int server, const Message& message) {
  if (server == own_server_) return shard_->hear({message});
  const Line& line = *servers_[static_cast<std::size_t>(server)].line;
  if (line.link()) line.link()->send(message);
}

void TableOverTcp::take(std::vector<Message> messages) {
  strand_.run([this, messages = std::move(messages)]() mutable {
    for (Message& message : messages) {
      if (const Payload* payload = payload_of(message)) job_.local_bytes += payload->bytes.size();
      if (const Status status = handle(own_server_, message); !status.ok())
        job_.fail(status.error());
    }
  });
}

Status TableOverTcp::handle(int server, const Message& message) {
  if (const Ready* ready = std::get_if<Ready>(&message)) {
    if (!client_ || ready->generation != plan_.generation) return {};
    MutexLock lock(job_.mutex);
    servers_[static_cast<std::size_t>(server)].ready = true;
    job_.changed.notify_all();
    return {};
  }
  if (!client_) return {};
  const Result<bool> taken = client_->take(server, message, now());
  if (!taken.ok()) return taken.error();
  if (taken.value()) arrived(std::get<RowMessage>(message).row);
  if (std::holds_alternative<NeedPush>(message)) pump(server);
  return {};
}

void TableOverTcp::arrived(RowId row) {
  {
    MutexLock lock(job_.mutex);
    arrived_[row] = taken_[row];
    staleness_.pushes = client_->staleness().pushes;
    staleness_.drops = client_->staleness().drops;
    if (awaited_[row] == 0 || arrived_[row] < awaited_[row]) return;
    awaited_[row] = 0;
    if (--missing_ > 0) return;
  }
  job_.changed.notify_all();  // who wakes up finds the mutex free
}

std::span<std::byte> TableOverTcp::place(Line&, Message& message, std::size_t bytes) {
  RowMessage* const row = std::get_if<RowMessage>(&message);
  return client_ && row ? client_->place(*row, bytes) : std::span<std::byte>();
}

Status TableOverTcp::received(Line& line, Message&& message) {
  const Status status = handle(server_of(line), message);
  if (!status.ok()) envoy_.report(line.rank(), line.heard_clock(), status.error());
  return status;
}

std::optional<Message> TableOverTcp::next(Line& line) {
  return client_ ? client_->next(server_of(line)) : std::nullopt;
}

void TableOverTcp::up(Line& line, bool again) {
  const int number = server_of(line);
  Server& server = servers_[static_cast<std::size_t>(number)];
  {
    MutexLock lock(job_.mutex);
    server.up = true;
    job_.changed.notify_all();
  }
  if (!again) return;
  for (const Message& message : server.initial) line.link()->send(message);
  if (retired_ >= 0) line.link()->send(Retire{.clock = retired_, .generation = plan_.generation});
  if (client_) client_->link_up(number, now());
  line.link()->wake();
}

void TableOverTcp::lost(Line& line, const Error& error) {
  envoy_.report(line.rank(), line.heard_clock(), error);
}

int TableOverTcp::server_of(const Line& line) const {
  const auto found = std::find_if(servers_.begin(), servers_.end(),
                                  [&](const Server& server) { return server.line.get() == &line; });
  return static_cast<int>(found - servers_.begin());
}

void TableOverTcp::tick() {
  if (!client_) return;
  const Instant again = client_->on_time(now());
  for (int server = 0; server < static_cast<int>(servers_.size()); ++server) pump(server);
  const milliseconds until = std::chrono::duration_cast<milliseconds>(again - now());
  strand_.after(std::clamp(until, milliseconds(10), kTick), [this] { tick(); });
}

void TableOverTcp::warn(double seconds) {
  const std::optional<Client::Overdue> overdue = client_ ? client_->overdue() : std::nullopt;
  if (!overdue) return;
  const std::uint32_t rank = servers_[static_cast<std::size_t>(overdue->server)].rank;
  std::string slowest;
  Clock least = kUnbounded;
  for (const Server& server : servers_) {
    const bool works = roster().processes[server.rank].worker >= 0;
    const Clock clock = server.line && works ? server.line->heard_clock() : kUnbounded;
    if (clock >= 0 && clock < least)
      slowest =
          str("; the slowest worker it hears of is ", job_.name_of(server.rank, least = clock));
  }
  LOG(WARNING) << "has waited for rows for " << seconds << " s at clock " << job_.clock
               << ", for longest for row " << overdue->row << " from server " << overdue->server
               << ", " << job_.name_of(rank) << slowest;
}

void TableOverTcp::close(bool with_bye) {
  strand_.post([this, with_bye] {
    for (const Server& server : servers_)
      if (server.line) server.line->close(with_bye);
  });
}

}  // namespace shoal::table
