// A connection from its first byte to its last: the handshake, then a Link.
#pragma once

#include <deque>

#include "shoal/table/link/asio.h"
#include "shoal/table/link/batch.h"
#include "shoal/table/link/frame_reader.h"
#include "shoal/table/link/handshake.h"
#include "shoal/table/link/link_memory.h"
#include "shoal/table/link/throttle.h"
#include "shoal/table/link/tls.h"

namespace shoal::table {

// Returns whether a connection ended without a word, rather than by one that was wrong.
bool was_cut_off(const Error& error);

// The outcome of a handshake. `opened` or `failed` is called once, on the connection's strand.
// `admit` is asked again by Session::ask_again if it returns null.
struct Opening {
  std::function<Result<LinkOwner*>(const PeerName&)> admit;
  std::function<void(LinkOwner&, std::shared_ptr<Link>)> opened;
  // `said_no`: the other end was there and answered; it will not answer otherwise next time.
  std::function<void(const Error&, bool said_no)> failed;
  std::shared_ptr<const void> seat{};  // is held until the connection has closed
};

// Measures how long something has not moved, counting only time in which this process itself ran.
class Stillness {
 public:
  void moved() { moved_ = true; }
  milliseconds tick(milliseconds passed) {
    total_ = moved_ ? milliseconds{} : total_ + passed;
    moved_ = false;
    return total_;
  }

 private:
  bool moved_ = false;
  milliseconds total_{};
};

// A session. All members but the atomics are used on the strand only. Operations in flight hold the
// session; so does the handle that its owner was given.
class Session final : public Link,
                      public std::enable_shared_from_this<Session>,
                      private FrameReader {
 public:
  Session(const Strand& strand, tcp::socket socket, Handshake handshake, const LinkOptions& options,
          Opening opening);

  // Shakes hands within `deadline`. On the strand.
  void start(milliseconds deadline);
  // Returns whether the other end has proved nothing, and the connection has not closed. On any
  // thread, as drop().
  bool is_stranger() const { return state_ != State::kClosed && !proven_; }
  // Asks once more whether this end, whose handshake is done, is admitted, if it waits for that.
  void ask_again() {
    strand_.post([self = shared_from_this()] { self->admit_now(); });
  }
  // Closes at once, without last words.
  void drop() {
    strand_.run([self = shared_from_this()] {
      if (self->state_ != State::kClosed) self->shut();
    });
  }

  const PeerName& peer() const override { return peer_; }
  void send(Message message) override;
  void wake() override;
  void close(bool with_bye) override;
  Clock heard_clock() const override { return heard_clock_; }

 private:
  // kParting: the owner hears nothing more, last words are on their way.
  enum class State { kHandshake, kOpen, kParting, kClosed };
  static constexpr std::size_t kMostWaiting = 64u << 20;
  // Bytes that are read before the other end has proved what it is: a chain of certificates has a
  // few thousand, all else less.
  static constexpr std::size_t kMostBeforeProof = 64u << 10;

  // Functions of FrameReader:
  std::span<std::byte> place(Message& message, std::size_t bytes) override {
    if (state_ != State::kOpen) return {};
    const std::span<std::byte> place = owner_->place(message, bytes);
    return state_ == State::kOpen ? place : std::span<std::byte>();
  }
  Result<std::span<const std::byte>> borrow(const Lent& lent) override {
    return memory_.borrow(lent);
  }
  bool keeps(const Message& message) override {
    return state_ == State::kOpen && owner_->keeps(message) && state_ == State::kOpen;
  }
  std::shared_ptr<const void> kept() override { return memory_.keep(); }
  Status frame(Message&& message) override;

  Status shake(const Message& message);
  Status open(Handshake::Step last);
  void admit_now() {
    if (state_ != State::kHandshake || !waits_) return;
    if (const Status status = open(*std::exchange(waits_, {})); !status.ok()) fail(status.error());
  }
  Status hear(Message&& message);
  // Returns whether both ends are on one machine: they then have one address, or loopback's.
  bool is_within_machine() const {
    error_code failed, other;
    const asio::ip::address own = socket_.local_endpoint(failed).address(),
                            its = socket_.remote_endpoint(other).address();
    return !failed && !other && (own == its || (own.is_loopback() && its.is_loopback()));
  }
  Status encrypt();
  void offer_memory();
  void fetch_memory(const Offer& offer);
  Status take_back(const Taken& taken) {
    stuck_.moved();
    const Status status = memory_.take_back(taken);
    if (status.ok()) write();
    return status;
  }

  // Returns the error of a connection that ended with the socket's error.
  static Error lost(const error_code& error);
  // Adds the message to the queue.
  void push(Message message) {
    queued_ += size_while_waiting(message);
    queue_.push_back(std::move(message));
  }
  // Returns whether more than `most` bytes of answers wait for a peer that was accepted. The end
  // that connects always reads, so that never both ends wait for the other to do so.
  bool is_behind(std::size_t most) {
    return handshake_.accepts() && state_ == State::kOpen &&
           queued_ + sizeof(Message) * owner_->waiting(*this) > most;
  }
  void read() {
    if (!is_alive() || (is_behind_ = is_behind(kMostWaiting))) return;
    if (options_.throttles) return wait_for_bytes();
    receive(room(most_to_read()));
  }
  std::size_t most_to_read() const {
    return state_ == State::kHandshake ? kMostBeforeProof - before_proof_ : ~std::size_t{0};
  }
  std::array<asio::mutable_buffer, 2> room(std::size_t limit);
  Status heard(std::size_t bytes);
  Status unseal();
  void wait_for_bytes();
  void read_granted();
  void has_read(error_code error, std::size_t bytes);
  void drain() {
    if (state_ == State::kParting) receive(asio::buffer(scratch_));
  }
  void receive(const auto& buffers) {
    reading_ = true;
    socket_.async_read_some(
        buffers, on(strand_, [self = shared_from_this()](error_code error, std::size_t bytes) {
          self->has_read(error, bytes);
        }));
  }
  void pause() {
    if (std::exchange(received_, false) && state_ == State::kOpen) owner_->paused(*this);
  }
  void write();
  void fill_batch();
  // Adds the message to the batch. Returns whether its numbers lie in lent memory.
  bool add(const Message& message) {
    const std::optional<Lent> lent = state_ == State::kOpen ? memory_.lend(message) : std::nullopt;
    batch_.add(encode(message, request_++, lent));
    return lent.has_value();
  }
  bool seal();
  // Returns the bytes that are ready for the socket.
  std::size_t unsent() { return tls_ ? tls_->records().size() : batch_.unsent(); }
  bool write_at_once();
  std::span<const asio::const_buffer> gather(std::size_t limit) {
    if (tls_) buffers_[0] = asio::buffer(tls_->records().substr(0, limit));
    const std::size_t pieces = tls_ ? 1 : batch_.pieces(buffers_, limit);
    return std::span<const asio::const_buffer>(buffers_).first(pieces);
  }
  void hand_over();
  void wrote(error_code error, std::size_t bytes);
  void tick();
  void later(std::chrono::nanoseconds delay, void (Session::*then)()) {
    strand_.after(delay, [self = shared_from_this(), then] {
      if (self->state_ != State::kClosed) ((*self).*then)();
    });
  }
  void late() {
    if (state_ != State::kHandshake) return;
    end(Error{Code::kTimeout,
              waits_ ? str("This process was not told in time whose rank ", waits_->peer->rank,
                           " is: that has not joined the job.")
                     : str("The handshake was not done in time: the other end is stopped, "
                           "overloaded, or no Shoal process.")});
  }

  bool is_alive() const { return state_ == State::kHandshake || state_ == State::kOpen; }
  // Ends with an error found here, and tells the other end.
  void fail(const Error& error) {
    said_no_ = true;
    end(error, Message(Refuse{error.code, error.message}));
  }
  void end(Status status, std::optional<Message> last_words = {});
  void part(Message last_words);
  void shut();

  const Strand strand_;
  const LinkOptions options_;
  tcp::socket socket_;
  bool must_encrypt_ = true;
  // Null in clear. heard_: bytes have come. sealed_: some of them in records.
  std::unique_ptr<Tls> tls_;
  bool heard_ = false, sealed_ = false;
  std::optional<Message> challenge_;          // is answered when TLS is open
  std::size_t before_proof_ = 0;              // bytes read in the handshake
  std::shared_ptr<const void> seat_, parts_;  // parts_: until the last words have left
  LinkMemory memory_;
  Handshake handshake_;
  std::optional<Handshake::Step> waits_;  // the last, until the other end is admitted
  Opening opening_;
  LinkOwner* owner_ = nullptr;
  PeerName peer_;
  std::atomic<State> state_{State::kHandshake};
  std::atomic<bool> proven_{false};  // the handshake was done
  bool said_no_ = false;

  bool reading_ = false;
  std::array<char, 4096> scratch_;  // what comes while parting
  std::deque<Message> queue_;
  std::size_t queued_ = 0;  // bytes of the queue
  bool is_behind_ = false;  // nothing is read until the peer has read
  Batch batch_;
  std::array<asio::const_buffer, Batch::kMostPieces> buffers_;
  // received_: a frame came since the owner's last pause.
  bool writing_ = false, ping_waits_ = false, received_ = false;
  error_code write_error_;
  std::uint64_t request_ = 0;

  Instant last_tick_{};
  milliseconds since_ping_{};
  Stillness silence_, stuck_;
  bool warned_ = false;

  std::atomic<bool> woken_{false};
  std::atomic<Clock> heard_clock_{-1};
  std::optional<Instant> sends_since_, receives_since_;
};

}  // namespace shoal::table
