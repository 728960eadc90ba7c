// Moves the bytes of a session: from its batch to the socket and from there to the reader of
// frames, in records of TLS where the connection is encrypted.
#include "shoal/base/try.h"
#include "shoal/table/broken.h"
#include "shoal/table/link/session.h"

namespace shoal::table {
namespace {

// Bytes that are copied at once: other links do not wait long meanwhile.
constexpr std::size_t kAtOnce = 64 * 1024;
// Bytes that are sealed and then handed to the system together.
constexpr std::size_t kSealed = 128 * 1024;

// Adds the time since `since` to `sum` when an activity ends, and sets `since` when one begins.
void count_time(std::optional<Instant>& since, bool goes_on, std::atomic<std::int64_t>& sum) {
  if (goes_on == since.has_value()) return;
  if (since) sum += (now() - *since).count();
  since = goes_on ? std::optional(now()) : std::nullopt;
}

constexpr const char *kClosed = "The other end closed the connection",
                     *kBroke = "The connection broke (";

}  // namespace

std::size_t size_while_waiting(const Message& message) {
  const auto* const ask = std::get_if<Ask>(&message);
  const auto* const answer = std::get_if<Answer>(&message);
  return sizeof message + (ask ? ask->body.size() : answer ? answer->body.size() : 0);
}

Error Session::lost(const error_code& error) {
  if (error == asio::error::eof)
    return broken(kClosed, " without a Bye: its process has ended or was killed.");
  return broken(kBroke, error.message(),
                "): the other process was killed, or its machine or the network went away.");
}

bool was_cut_off(const Error& error) {
  return error.message.starts_with(kClosed) || error.message.starts_with(kBroke);
}

// ---- bytes ----

// Returns the places of up to `limit` bytes.
std::array<asio::mutable_buffer, 2> Session::room(std::size_t limit) {
  if (tls_) {
    const std::span<char> room = tls_->room();
    return {asio::buffer(room.data(), std::min(limit, room.size())), {}};
  }
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
  const std::size_t most = std::min(throttle.most(), most_to_read()),
                    bytes = socket_.read_some(room(most), error);
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
  if (state_ == State::kHandshake) before_proof_ += bytes;
  const Status status = heard(bytes);
  count_time(receives_since_, midway(), options_.traffic->receiving);
  if (!is_alive()) return;
  if (!status.ok()) return fail(status.error());
  if (state_ == State::kHandshake && before_proof_ >= kMostBeforeProof)
    return fail(broken("The other end sent ", before_proof_,
                       " bytes, and has not proved that it belongs to this job."));
  pause();
  if (memory_.owes() || (tls_ && (state_ == State::kHandshake || unsent() > 0))) write();
  read();
}

// Handles bytes that were read into the room. The end that accepts hears from the first of them
// whether the other one encrypts.
Status Session::heard(std::size_t bytes) {
  const bool is_first = !std::exchange(heard_, true);
  if (is_first && handshake_.accepts()) {
    const std::span<char> first = FrameReader::room().buffer.first(bytes);
    if (first[0] == Tls::kFirstByte) {
      TRY(encrypt());
      std::ranges::copy(first, tls_->room().begin());
    }
  }
  if (tls_) {
    tls_->took(bytes);
    return unseal();
  }
  TRY(took(bytes));
  if (tls_ && midway())
    return broken(
        "Bytes came in clear where TLS was due: somebody between the two ends has put "
        "them in.");
  return {};
}

// Reads what the records have, straight to where it belongs.
Status Session::unseal() {
  sealed_ = true;
  for (;;) {
    const FrameReader::Room room = FrameReader::room();
    const Result<std::size_t> bytes = tls_->read(room.numbers.empty() ? room.buffer : room.numbers);
    TRY(bytes);
    if (tls_->is_open() && challenge_) TRY(shake(*std::exchange(challenge_, {})));
    if (bytes.value() == 0) return {};
    TRY(took(bytes.value()));
  }
}

void Session::write() {
  while (!writing_ && state_ != State::kClosed && !write_error_) {
    writing_ = true;  // whatever the owner calls from next()
    if (batch_.empty() && unsent() == 0) fill_batch();
    writing_ = false;
    if (state_ == State::kClosed) return;
    if (is_behind_ && !is_behind(kMostWaiting / 2)) read();
    if (!seal() || unsent() == 0) break;
    if (!write_at_once()) return hand_over();
  }
  if (state_ != State::kParting || writing_ || !batch_.empty() || unsent() > 0) return;
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  parts_.reset();
}

// Fills the batch. It ends with a frame whose numbers lie in memory: the other end takes them
// meanwhile.
void Session::fill_batch() {
  if (const std::optional<Message> taken = memory_.taken()) add(*taken);
  const std::size_t limit = std::max<std::size_t>(1, options_.window / 2);
  while (batch_.has_room(limit) && !queue_.empty()) {
    Message message = std::move(queue_.front());
    queue_.pop_front();
    queued_ -= size_while_waiting(message);
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

// Makes records of the batch if the connection is encrypted and its handshake done. False: an
// error has ended it.
bool Session::seal() {
  if (!tls_) return true;
  // A handshake that failed can send its alert alone.
  if (!tls_->is_open() && state_ == State::kParting) batch_ = {};
  std::array<std::string_view, Batch::kMostPieces> pieces;
  if (tls_->is_open() && !batch_.empty() && unsent() == 0) {
    const std::size_t most = std::min(batch_.unsent(), kSealed),
                      count = batch_.pieces(pieces, most);
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < count; ++i) bytes += pieces[i].size();
    if (!tls_->write(std::span(pieces).first(count))) {
      batch_ = {};
      write_error_ = asio::error::connection_aborted;
      return false;
    }
    options_.traffic->frames_sent += batch_.sent(bytes);
  }
  return true;
}

// Writes a little without a turn of the threads' queue. False: the rest must be handed over.
bool Session::write_at_once() {
  if (options_.throttles || unsent() > kAtOnce) return false;
  if (tls_ && !batch_.empty() && tls_->is_open()) return false;  // it is more than a little
  error_code error;
  const std::size_t bytes = socket_.write_some(gather(unsent()), error);
  if (error == asio::error::would_block) return false;
  wrote(error, bytes);
  return true;
}

void Session::hand_over() {
  writing_ = true;
  if (!sends_since_) sends_since_ = now();
  std::size_t most = unsent();
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
  if (tls_)
    tls_->sent(bytes);
  else
    options_.traffic->frames_sent += batch_.sent(bytes);
  count_time(sends_since_, !batch_.empty() || unsent() > 0, options_.traffic->sending);
  if (!error || (state_ == State::kParting && error == asio::error::operation_aborted)) return;
  if (state_ == State::kParting) return shut();
  // The reader may yet find the reason, in a Refuse; else the next tick ends the session.
  write_error_ = error;
}

}  // namespace shoal::table
