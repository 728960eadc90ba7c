#include "shoal/table/link/session.h"

#include <netinet/tcp.h>

#include "shoal/base/try.h"
#include "shoal/table/broken.h"

namespace shoal::table {
namespace {

constexpr milliseconds kLinger{2000};  // for the other end to read the last words
// Bytes that are copied at once: other links do not wait long meanwhile.
constexpr std::size_t kAtOnce = 64 * 1024;

// Returns the period in which a link checks what is due.
milliseconds period(const LinkOptions& options) {
  return std::max(milliseconds(1),
                  std::min({options.heartbeat, options.stall_warn, options.stall_abort}));
}

// Adds the time since `since` to `sum` when an activity ends, and sets `since` when one begins.
void count_time(std::optional<Instant>& since, bool goes_on, std::atomic<std::int64_t>& sum) {
  if (goes_on == since.has_value()) return;
  if (since) sum += (now() - *since).count();
  since = goes_on ? std::optional(now()) : std::nullopt;
}

Error lost(const error_code& error) {
  if (error == asio::error::eof)
    return broken(
        "The other end closed the connection without a Bye: its process has ended or was killed.");
  return broken("The connection broke (", error.message(),
                "): the other process was killed, or its machine or the network went away.");
}

}  // namespace

Session::Session(const Strand& strand, tcp::socket socket, Handshake handshake,
                 const LinkOptions& options, Opening opening)
    : strand_(strand),
      options_(options),
      socket_(std::move(socket)),
      memory_(options.handover, options.traffic, 8 * options.window),
      handshake_(std::move(handshake)),
      opening_(std::move(opening)) {}

// ---- for any thread ----

void Session::send(Message message) {
  strand_.run([self = shared_from_this(), message = std::move(message)]() mutable {
    if (self->state_ != State::kOpen) return;
    self->queue_.push_back(std::move(message));
    self->write();
  });
}

void Session::wake() {
  if (woken_.exchange(true)) return;
  strand_.run([self = shared_from_this()] {
    self->woken_ = false;
    if (self->state_ == State::kOpen) self->write();
  });
}

void Session::close(bool with_bye) {
  strand_.run([self = shared_from_this(), with_bye] {
    if (self->state_ == State::kParting || self->state_ == State::kClosed) return;
    if (with_bye && self->state_ == State::kOpen)
      self->part(Bye{});
    else
      self->shut();
  });
}

// ---- from handshake to open ----

void Session::start(milliseconds deadline) {
  error_code ignored;
  socket_.set_option(tcp::no_delay(true), ignored);
  socket_.non_blocking(true, ignored);
  // Bytes that the system holds unsent count as in the window: half of it is there, half in the
  // batch.
  const int unsent = static_cast<int>(std::min<std::size_t>(options_.window / 2, 1u << 30));
  ::setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
  // BBR, which many systems prefer, paces what need not leave memory. Every kernel has Reno.
  constexpr std::string_view kReno = "reno";
  if (is_within_machine())
    ::setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_CONGESTION, kReno.data(), kReno.size());
  peer_.address = str(socket_.remote_endpoint(ignored));
  // Does not hold a session that ended long before.
  strand_.after(deadline, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->late();
  });
  if (std::optional<Message> first = handshake_.begin()) queue_.push_back(std::move(*first));
  write();
  read();
}

Status Session::shake(const Message& message) {
  if (const Refuse* refuse = std::get_if<Refuse>(&message)) {
    said_no_ = true;
    end(Error{refuse->code, refuse->reason});
    return {};
  }
  Result<Handshake::Step> step = handshake_.take(message);
  TRY(step);
  if (step.value().peer) return open(std::move(step).value());
  if (step.value().answer) queue_.push_back(std::move(*step.value().answer));
  write();
  return {};
}

Status Session::open(Handshake::Step last) {
  last.peer->address = std::move(peer_.address);
  peer_ = *std::move(last.peer);
  const Result<LinkOwner*> owner = opening_.admit(peer_);
  TRY(owner);
  if (state_ != State::kHandshake) return {};
  owner_ = owner.value();
  state_ = State::kOpen;
  set_stage(Stage::kPeer);
  if (last.answer) queue_.push_back(std::move(*last.answer));
  offer_memory();
  last_tick_ = now();
  later(period(options_), &Session::tick);
  // The link closes with the last copy of the handle.
  const std::shared_ptr<Link> handle(this,
                                     [self = shared_from_this()](Link*) { self->close(false); });
  const Opening opening = std::exchange(opening_, {});
  opening.opened(*owner_, handle);
  if (state_ == State::kOpen) write();
  return {};
}

// ---- what was heard ----

Status Session::frame(Message&& message) {
  ++options_.traffic->frames_received;
  const Status status = state_ == State::kHandshake ? shake(message) : hear(std::move(message));
  // Stops reading: an error says so to the caller.
  if (status.ok() && !is_alive()) return Error{Code::kInternal, "Closed meanwhile."};
  return status;
}

Status Session::hear(Message&& message) {
  if (const Ping* ping = std::get_if<Ping>(&message))
    heard_clock_ = ping->clock;
  else if (std::holds_alternative<Bye>(message))
    end({});
  else if (const Refuse* refuse = std::get_if<Refuse>(&message))
    end(Error{refuse->code, refuse->reason});
  else if (const Offer* offer = std::get_if<Offer>(&message))
    fetch_memory(*offer);
  else if (const Taken* taken = std::get_if<Taken>(&message))
    return take_back(*taken);
  else if (message.index() <= Message(Welcome{}).index())
    return broken("A ", name_of(message), " came after the handshake.");
  else {
    received_ = true;
    return owner_->received(*this, std::move(message));
  }
  return {};
}

// ---- memory ----

void Session::offer_memory() {
  if (options_.throttles || peer_.purpose != Purpose::kRows || !is_within_machine()) return;
  if (options_.handover) queue_.push_back(options_.handover->offer());
}

void Session::fetch_memory(const Offer& offer) {
  if (!options_.handover || options_.throttles) return;
  const auto wake = [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->wake();
  };
  options_.handover->fetch(strand_, offer,
                           [weak = weak_from_this(), wake](Result<BorrowedMemory> memory) {
                             const auto self = weak.lock();
                             if (!self || self->state_ != State::kOpen) return;
                             self->memory_.use(std::move(memory), self->peer_.rank, wake);
                             self->write();
                           });
}

// ---- time ----

void Session::tick() {
  if (state_ != State::kOpen) return;
  const auto passed = std::chrono::duration_cast<milliseconds>(now() - last_tick_);
  last_tick_ += passed;
  const milliseconds counted = std::min(passed, 2 * period(options_));
  if (!writing_ && !memory_.waits()) stuck_.moved();
  const milliseconds silence = silence_.tick(counted), stuck = stuck_.tick(counted);
  if (write_error_) return end(lost(write_error_));
  if (silence >= options_.stall_abort)
    return end(
        Error{Code::kTimeout, str("Nothing was heard for ", to_seconds(silence),
                                  " s: its process is stopped or its machine or network hangs.")});
  if (stuck >= options_.stall_abort)
    return end(
        Error{Code::kTimeout, str("Nothing of what was sent was taken for ", to_seconds(stuck),
                                  " s: its process is stopped or hangs.")});
  if (silence < options_.stall_warn)
    warned_ = false;
  else if (!std::exchange(warned_, true))
    owner_->silent(*this, silence);
  if (state_ != State::kOpen) return;
  since_ping_ += counted;
  if (since_ping_ >= options_.heartbeat && !ping_waits_) {
    since_ping_ = {};
    ping_waits_ = true;
    queue_.push_back(Ping{});
    write();
    if (state_ != State::kOpen) return;
  }
  later(period(options_), &Session::tick);
}

// ---- the end ----

void Session::end(Status status, std::optional<Message> last_words) {
  if (!is_alive()) return;
  const State before = state_;
  LinkOwner* owner = owner_;
  const Opening opening = std::exchange(opening_, {});
  pause();
  if (state_ != before) return;
  if (last_words)
    part(std::move(*last_words));
  else
    shut();
  if (before == State::kOpen)
    owner->closed(*this, std::move(status));
  else if (opening.failed)
    opening.failed(status.error(), said_no_);
}

// Ends operations under way and goes on with copies: the owner may change its numbers from here on.
void Session::part(Message last_words) {
  state_ = State::kParting;
  owner_ = nullptr;
  for (Message& message : queue_)
    if (Payload* payload = payload_of(message)) *payload = owned(*payload);
  batch_.own();
  queue_.push_back(std::move(last_words));
  error_code ignored;
  if (reading_ || writing_) socket_.cancel(ignored);
  later(kLinger, &Session::shut);
  if (!reading_) drain();
  write();
}

void Session::shut() {
  state_ = State::kClosed;
  owner_ = nullptr;
  error_code ignored;
  socket_.close(ignored);
  queue_.clear();
  batch_ = {};
  opening_ = {};
}

// ---- bytes ----

// Returns the places of up to `limit` bytes.
std::array<asio::mutable_buffer, 2> Session::room(std::size_t limit) {
  const FrameReader::Room room = FrameReader::room();
  const std::size_t numbers = std::min(limit, room.numbers.size()),
                    rest = std::min(limit - numbers, room.buffer.size());
  return {asio::buffer(room.numbers.data(), numbers), asio::buffer(room.buffer.data(), rest)};
}

// Under a throttle, nothing is granted to a link that has nothing to read: others would have to
// wait for it.
void Session::wait_for_bytes() {
  reading_ = true;
  socket_.async_wait(tcp::socket::wait_read,
                     on(strand_, [self = shared_from_this()](error_code error) {
                       self->reading_ = false;
                       if (error || self->state_ == State::kParting)
                         self->has_read(error, 0);
                       else
                         self->read_granted();
                     }));
}

void Session::read_granted() {
  if (!is_alive()) return;
  // The other end may seem silent because this one was not reading.
  silence_.moved();
  Throttle& throttle = options_.throttles->receiving;
  if (const auto wait = throttle.wait(now()); wait.count() > 0)
    return later(wait, &Session::read_granted);
  error_code error;
  const std::size_t bytes = socket_.read_some(room(throttle.most()), error);
  throttle.moved(bytes, now());
  if (error == asio::error::would_block)
    read();
  else
    has_read(error, bytes);
}

void Session::has_read(error_code error, std::size_t bytes) {
  reading_ = false;
  options_.traffic->bytes_received += bytes;
  if (state_ == State::kParting)
    return error && error != asio::error::operation_aborted ? shut() : drain();
  if (state_ == State::kClosed) return;
  if (error) return end(lost(error));
  silence_.moved();
  const Status status = took(bytes);
  count_time(receives_since_, midway(), options_.traffic->receiving);
  if (!is_alive()) return;
  if (!status.ok()) return fail(status.error());
  pause();
  if (memory_.owes()) write();
  read();
}

void Session::write() {
  while (!writing_ && state_ != State::kClosed && !write_error_) {
    writing_ = true;  // whatever the owner calls from next()
    if (batch_.empty()) fill_batch();
    writing_ = false;
    if (state_ == State::kClosed) return;
    if (batch_.empty()) break;
    if (!write_at_once()) return hand_over();
  }
  error_code ignored;
  if (state_ == State::kParting && !writing_ && batch_.empty())
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
}

// Fills the batch. It ends with a frame whose numbers lie in memory: the other end takes them
// meanwhile.
void Session::fill_batch() {
  if (const std::optional<Message> taken = memory_.taken()) add(*taken);
  const std::size_t limit = std::max<std::size_t>(1, options_.window / 2);
  while (batch_.has_room(limit) && !queue_.empty()) {
    Message message = std::move(queue_.front());
    queue_.pop_front();
    if (Ping* ping = std::get_if<Ping>(&message)) {
      ping->clock = options_.clock ? options_.clock->load() : -1;
      ping_waits_ = false;
    }
    if (add(message)) return;
  }
  while (batch_.has_room(limit) && memory_.has_room()) {
    std::optional<Message> message;
    if (state_ == State::kOpen) message = owner_->next(*this);
    if (!message || state_ != State::kOpen || add(*message)) return;
  }
}

// Writes a little without a turn of the threads' queue. False: the rest must be handed over.
bool Session::write_at_once() {
  if (options_.throttles || batch_.unsent() > kAtOnce) return false;
  error_code error;
  const std::size_t bytes = socket_.write_some(gather(batch_.unsent()), error);
  if (error == asio::error::would_block) return false;
  wrote(error, bytes);
  return true;
}

void Session::hand_over() {
  writing_ = true;
  if (!sends_since_) sends_since_ = now();
  std::size_t most = batch_.unsent();
  if (options_.throttles) {
    stuck_.moved();
    if (const auto wait = options_.throttles->sending.wait(now()); wait.count() > 0)
      return later(wait, &Session::hand_over);
    most = std::min(most, options_.throttles->sending.most());
  }
  socket_.async_write_some(
      gather(most), on(strand_, [self = shared_from_this()](error_code error, std::size_t bytes) {
        self->writing_ = false;
        self->wrote(error, bytes);
        self->write();
      }));
}

void Session::wrote(error_code error, std::size_t bytes) {
  options_.traffic->bytes_sent += bytes;
  if (options_.throttles) options_.throttles->sending.moved(bytes, now());
  if (state_ == State::kClosed) return;
  if (bytes > 0) stuck_.moved();
  options_.traffic->frames_sent += batch_.sent(bytes);
  count_time(sends_since_, !batch_.empty(), options_.traffic->sending);
  if (!error || (state_ == State::kParting && error == asio::error::operation_aborted)) return;
  if (state_ == State::kParting) return shut();
  // The reader may yet find the reason, in a Refuse; else the next tick ends the session.
  write_error_ = error;
}

}  // namespace shoal::table
