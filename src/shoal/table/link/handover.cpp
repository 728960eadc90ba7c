#include "shoal/table/link/handover.h"

#include <sys/socket.h>
#include <unistd.h>

#include "shoal/base/bytes.h"
#include "shoal/base/hmac.h"
#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/base/try.h"
#include "shoal/table/broken.h"
#include "shoal/table/link/asio.h"
#include "shoal/table/link/handshake.h"

namespace shoal::table {
namespace {

constexpr milliseconds kPatience{5000}, kAcceptPause{100}, kSoon{200};
// Bytes of addresses. Memory is taken for them as they are used.
constexpr std::size_t kBytes = 4ull << 30;

Digest proof_of(const char* what, const Nonce& key, const std::string& token) {
  return hmac_sha256(token, str(what, chars_of(key)));
}

bool is_this_user(local::socket& socket) {
  ucred other{};
  socklen_t size = sizeof other;
  return ::getsockopt(socket.native_handle(), SOL_SOCKET, SO_PEERCRED, &other, &size) == 0 &&
         other.uid == ::geteuid();
}

local::endpoint at(const std::string& name) { return local::endpoint('\0' + name); }

// A message of these bytes, with room for the number of a file.
struct Packet {
  explicit Packet(Digest& bytes) : piece{bytes.data(), bytes.size()} {
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = sizeof control;
  }
  Packet(const Packet&) = delete;

  iovec piece;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
};

bool send_file(int socket, const Digest& proof, int file) {
  Digest bytes = proof;
  Packet packet(bytes);
  cmsghdr* const head = CMSG_FIRSTHDR(&packet.message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof file);
  std::memcpy(CMSG_DATA(head), &file, sizeof file);
  return ::sendmsg(socket, &packet.message, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

Result<Descriptor> receive_file(int socket, const Digest& proof) {
  Digest bytes{};
  Packet packet(bytes);
  const ssize_t got = ::recvmsg(socket, &packet.message, MSG_CMSG_CLOEXEC);
  const cmsghdr* const head = got < 0 ? nullptr : CMSG_FIRSTHDR(&packet.message);
  Descriptor file;
  if (head && head->cmsg_type == SCM_RIGHTS && head->cmsg_len == CMSG_LEN(sizeof(int))) {
    int number = -1;
    std::memcpy(&number, CMSG_DATA(head), sizeof number);
    file = Descriptor(number);
  }
  if (file.number() < 0 || got != static_cast<ssize_t>(bytes.size()))
    return broken("the process that offers it did not send it");
  if (!same_secret(bytes, proof)) return broken("the process that offers it has another token");
  return file;
}

// Calls then(socket, timely) once on the strand: when there is something to read, or after some
// seconds, with the socket closed.
void wait_to_read(const Strand& strand, const std::shared_ptr<local::socket>& socket, auto then) {
  strand.after(kPatience, [weak = std::weak_ptr(socket)] {
    error_code ignored;
    if (const auto late = weak.lock()) late->close(ignored);
  });
  socket->async_wait(local::socket::wait_read,
                     on(strand, [socket, then](error_code error) { then(*socket, !error); }));
}

// Sends `proof` to an abstract address, which is there at once, or not at all.
Status ask(local::socket& socket, const std::string& name, const Digest& proof) {
  error_code error;
  socket.open(local(), error);
  if (!error) socket.non_blocking(true, error);
  if (!error) socket.connect(at(name), error);
  if (error) return broken("no process on this machine offers it: ", error.message());
  if (!is_this_user(socket)) return broken("the process that offers it belongs to another user");
  const std::size_t sent = socket.write_some(asio::buffer(proof), error);
  if (error || sent != proof.size()) return broken("the process that offers it does not listen");
  return {};
}

// Answers processes that come for the memory.
class MemoryAcceptor : public std::enable_shared_from_this<MemoryAcceptor> {
 public:
  MemoryAcceptor(const Strand& strand, const std::string& token, const Offer& offer,
                 std::shared_ptr<SharedMemory> memory)
      : strand_(strand),
        wanted_(proof_of("take", offer.key, token)),
        answer_(proof_of("give", offer.key, token)),
        memory_(std::move(memory)),
        acceptor_(io_of(strand)) {}

  error_code open(const std::string& name) { return listen(acceptor_, at(name)); }

  void accept() {
    acceptor_.async_accept(
        on(strand_, [self = shared_from_this()](error_code error, local::socket socket) {
          if (error) return self->strand_.after(kAcceptPause, [self] { self->accept(); });
          if (is_this_user(socket))
            wait_to_read(self->strand_, std::make_shared<local::socket>(std::move(socket)),
                         [self](local::socket& other, bool timely) {
                           if (timely) self->answer(other);
                         });
          self->accept();
        }));
  }

 private:
  void answer(local::socket& socket) {
    Digest proof{};
    error_code error;
    socket.non_blocking(true, error);
    if (error) return;
    const std::size_t got = socket.read_some(asio::buffer(proof), error);
    if (!error && got == proof.size() && same_secret(proof, wanted_))
      (void)send_file(socket.native_handle(), answer_, memory_->file().number());
  }

  const Strand strand_;
  const Digest wanted_, answer_;
  const std::shared_ptr<SharedMemory> memory_;
  local::acceptor acceptor_;
};

}  // namespace

Handover::Handover(const Strand& strand, std::string token, std::shared_ptr<SharedMemory> memory)
    : strand_(strand),
      token_(std::move(token)),
      memory_(std::move(memory)),
      offer_{.name = "shoal-" + hex(chars_of(random_nonce())),
             .key = random_nonce(),
             .bytes = memory_->size()} {}
Handover::~Handover() { memory_->reclaim(); }

Result<std::shared_ptr<Handover>> Handover::create(IoThreads& threads, const std::string& token) {
  Result<std::shared_ptr<SharedMemory>> memory = SharedMemory::create(kBytes);
  TRY(memory);
  const Strand strand(threads);
  const auto made = std::make_shared<Handover>(strand, token, memory.value());
  const auto acceptor =
      std::make_shared<MemoryAcceptor>(strand, token, made->offer_, memory.value());
  if (const error_code error = acceptor->open(made->offer_.name))
    return broken("cannot listen on a unix socket: ", error.message());
  strand.post([acceptor] { acceptor->accept(); });
  return made;
}

void Handover::fetch(const Strand& strand, const Offer& offer,
                     std::function<void(Result<BorrowedMemory>)> done) const {
  strand.post([strand, name = offer.name, bytes = offer.bytes, done = std::move(done),
               take = proof_of("take", offer.key, token_),
               give = proof_of("give", offer.key, token_)] {
    const auto socket = std::make_shared<local::socket>(io_of(strand));
    if (const Status asked = ask(*socket, name, take); !asked.ok()) return done(asked.error());
    wait_to_read(strand, socket, [done, bytes, give](local::socket& other, bool timely) {
      if (!timely) return done(broken("the process that offers it does not answer"));
      const Result<Descriptor> file = receive_file(other.native_handle(), give);
      done(file.ok() ? BorrowedMemory::create(file.value(), bytes) : file.error());
    });
  });
}

void Handover::note(Rank rank) {
  MutexLock lock(mutex_);
  if (noted_.empty()) strand_.after(kSoon, [self = shared_from_this()] { self->say_noted(); });
  noted_.insert(rank);
}

void Handover::say_noted() {
  MutexLock lock(mutex_);
  std::vector<std::string> ranks;
  for (const Rank rank : noted_) ranks.push_back(std::to_string(rank));
  noted_.clear();
  LOG(INFO) << "rows come through shared memory from " << (ranks.size() == 1 ? "rank " : "ranks ")
            << join(ranks);
}

}  // namespace shoal::table
