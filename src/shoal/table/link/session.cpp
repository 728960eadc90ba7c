#include "shoal/table/link/session.h"

#include <netinet/tcp.h>

#include "shoal/base/try.h"
#include "shoal/table/broken.h"

namespace shoal::table {
namespace {

constexpr milliseconds kLinger{2000};  // for the other end to read the last words

// Returns the period in which a link checks what is due.
milliseconds period(const LinkOptions& options) {
  return std::max(milliseconds(1),
                  std::min({options.heartbeat, options.stall_warn, options.stall_abort}));
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
    self->push(std::move(message));
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
  must_encrypt_ = options_.encrypt == Encrypt::kAlways ||
                  (options_.encrypt == Encrypt::kAuto && !is_within_machine());
  // Does not hold a session that ended long before.
  strand_.after(deadline, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->late();
  });
  if (std::optional<Message> first = handshake_.begin()) push(std::move(*first));
  write();
  read();
}

Status Session::shake(const Message& message) {
  if (const Refuse* refuse = std::get_if<Refuse>(&message)) {
    said_no_ = true;
    end(Error{refuse->code, refuse->reason});
    return {};
  }
  if (waits_) return broken("A ", name_of(message), " came before the Welcome.");
  if (must_encrypt_ && !tls_) {
    if (handshake_.accepts())
      return broken("This connection is not encrypted, and this process takes no such connections",
                    options_.encrypt == Encrypt::kAuto ? " from other machines" : "",
                    ": give all processes of the job the same --encrypt.");
    if (std::holds_alternative<Challenge>(message)) TRY(encrypt());
  }
  if (tls_ && !tls_->is_open()) {
    challenge_ = message;
    write();
    return {};
  }
  if (tls_) handshake_.bind(tls_->binding(), tls_->exported());
  Result<Handshake::Step> step = handshake_.take(message);
  TRY(step);
  if (step.value().peer) return open(std::move(step).value());
  for (std::optional<Message>* const said : {&step.value().answer, &step.value().claim})
    if (*said) push(std::move(**said));
  write();
  return {};
}

// Goes on in TLS. The end that connects begins it when it has the Challenge, and hears nothing in
// clear any more.
Status Session::encrypt() {
  const bool accepts = handshake_.accepts();
  if (options_.encrypt == Encrypt::kNever)
    return broken(
        "This connection comes encrypted, and this process was started with "
        "--encrypt=never: give all processes of the job the same --encrypt.");
  if (handshake_.token().size() < kShortestToken)
    return Error{Code::kUsage,
                 str("The connection with ", peer_.address,
                     " must be encrypted, and the job's "
                     "token has ",
                     handshake_.token().size(), " bytes; it needs at least ", kShortestToken,
                     ", since a short one can be guessed from what is "
                     "overheard. Use a longer token, or --encrypt=never in a closed network.")};
  if (writing_ || !batch_.empty())
    return broken("TLS began before the Challenge was sent: the other end is no Shoal process.");
  tls_ = std::make_unique<Tls>(accepts ? Tls::Role::kAccepts : Tls::Role::kConnects,
                               handshake_.token(), options_.certificates);
  if (!accepts) tls_->begin();
  return {};
}

Status Session::open(Handshake::Step last) {
  last.peer->address = peer_.address;
  last.peer->encrypted = tls_ != nullptr;
  const Result<LinkOwner*> owner = opening_.admit(*last.peer);
  TRY(owner);
  if (state_ != State::kHandshake) return {};
  if (!owner.value()) {
    waits_ = std::move(last);
    return {};
  }
  peer_ = *std::move(last.peer);
  owner_ = owner.value();
  proven_ = true;
  seat_ = opening_.seat;
  state_ = State::kOpen;
  set_stage(Stage::kPeer);
  if (last.answer) push(std::move(*last.answer));
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
  if (tls_ && !sealed_)
    return broken("A ", name_of(message),
                  " came in clear where TLS was due: somebody between the "
                  "two ends has put it in.");
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
  if (options_.handover) push(options_.handover->offer());
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
  if (is_behind_) silence_.moved();  // it is this end that does not read
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
    push(Ping{});
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
  if (write_error_) return shut();
  state_ = State::kParting;
  owner_ = nullptr;
  for (Message& message : queue_)
    if (Payload* payload = payload_of(message)) *payload = owned(*payload);
  batch_.own();
  parts_ = LastWords::of_link(options_.last_words);
  push(std::move(last_words));
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
  seat_.reset();
  parts_.reset();
}

}  // namespace shoal::table
