#include "shoal/table/link/handover.h"

#include <sys/socket.h>
#include <unistd.h>

#include "shoal/base/hmac.h"
#include "shoal/base/log.h"
#include "shoal/base/random.h"
#include "shoal/base/text.h"
#include "shoal/table/broken.h"
#include "shoal/table/link/asio.h"
#include "shoal/table/link/handshake.h"

namespace shoal::table {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPatience{5000}, kAcceptPause{100}, kSoon{200};
// of addresses, of which memory is taken as they are used
constexpr std::size_t kBytes = 4ull << 30;

Digest proof_of(const char* what, const Nonce& key, const std::string& token) {
  return hmac_sha256(token, what + std::string(key.begin(), key.end()));
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
    return broken("the process there does not hand it over");
  if (!same_secret(bytes, proof)) return broken("the process there does not know the job's token");
  return file;
}

// One that fetches a file.
class Fetch : public std::enable_shared_from_this<Fetch> {
 public:
  Fetch(const Strand& strand, const Digest& answer, std::function<void(Result<Descriptor>)> done)
      : strand_(strand), answer_(answer), done_(std::move(done)), socket_(io_of(strand)) {}

  // An abstract socket is there at once, or not at all.
  void start(const std::string& name, const Digest& proof) {
    error_code error;
    socket_.open(local(), error);
    if (!error) socket_.non_blocking(true, error);
    if (!error) socket_.connect(at(name), error);
    if (error) return finish(broken("no process of this machine has it: ", error.message()));
    if (!is_this_user(socket_)) return finish(broken("the process there is another user's"));
    const std::size_t sent = socket_.write_some(asio::buffer(proof), error);
    if (error || sent != proof.size()) return finish(broken("the process there does not listen"));
    strand_.after(kPatience, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->finish(broken("the process there does not answer"));
    });
    socket_.async_wait(local::socket::wait_read,
                       on(strand_, [self = shared_from_this()](error_code failed) {
                         if (!failed && self->done_)
                           self->finish(receive_file(self->socket_.native_handle(), self->answer_));
                       }));
  }

 private:
  void finish(Result<Descriptor> result) {
    error_code ignored;
    socket_.close(ignored);
    if (const auto done = std::exchange(done_, nullptr)) done(std::move(result));
  }

  const Strand strand_;
  const Digest answer_;
  std::function<void(Result<Descriptor>)> done_;
  local::socket socket_;
};

std::string random_name() {
  std::string name = "shoal-";
  for (const std::uint8_t byte : random_nonce())
    for (const int digit : {byte >> 4, byte & 15}) name += "0123456789abcdef"[digit];
  return name;
}

}  // namespace

// Answers processes that come for the memory.
class Handover::Door : public std::enable_shared_from_this<Door> {
 public:
  Door(const Strand& strand, const std::string& token, const Offer& offer,
       std::shared_ptr<SharedMemory> memory)
      : strand_(strand),
        wanted_(proof_of("take", offer.key, token)),
        answer_(proof_of("give", offer.key, token)),
        memory_(std::move(memory)),
        acceptor_(io_of(strand)) {}

  error_code open(const std::string& name) {
    error_code error;
    acceptor_.open(local(), error);
    if (!error) acceptor_.bind(at(name), error);
    if (!error) acceptor_.listen(local::acceptor::max_listen_connections, error);
    return error;
  }

  void accept() {
    acceptor_.async_accept(
        on(strand_, [self = shared_from_this()](error_code error, local::socket socket) {
          if (error) return self->strand_.after(kAcceptPause, [self] { self->accept(); });
          if (is_this_user(socket)) self->hear(std::make_shared<local::socket>(std::move(socket)));
          self->accept();
        }));
  }

 private:
  // The socket lasts until a request is there, or too late.
  void hear(const std::shared_ptr<local::socket>& socket) {
    strand_.after(kPatience, [weak = std::weak_ptr(socket)] {
      error_code ignored;
      if (const auto late = weak.lock()) late->close(ignored);
    });
    socket->async_wait(local::socket::wait_read,
                       on(strand_, [self = shared_from_this(), socket](error_code error) {
                         if (!error) socket->non_blocking(true, error);
                         if (!error) self->answer(*socket);
                       }));
  }

  void answer(local::socket& socket) {
    Digest proof{};
    error_code error;
    const std::size_t got = socket.read_some(asio::buffer(proof), error);
    if (!error && got == proof.size() && same_secret(proof, wanted_))
      (void)send_file(socket.native_handle(), answer_, memory_->file().number());
  }

  const Strand strand_;
  const Digest wanted_, answer_;
  const std::shared_ptr<SharedMemory> memory_;
  local::acceptor acceptor_;
};

Handover::Handover(const Strand& strand, std::string token, std::shared_ptr<SharedMemory> memory)
    : strand_(strand),
      token_(std::move(token)),
      memory_(std::move(memory)),
      offer_{.name = random_name(), .key = random_nonce(), .bytes = memory_->size()} {}
Handover::~Handover() { memory_->reclaim(); }

Result<std::shared_ptr<Handover>> Handover::create(IoThreads& threads, const std::string& token) {
  Result<std::shared_ptr<SharedMemory>> memory = SharedMemory::create(kBytes);
  if (!memory.ok()) return memory.error();
  const Strand strand(threads);
  const auto made = std::make_shared<Handover>(strand, token, memory.value());
  const auto door = std::make_shared<Door>(strand, token, made->offer_, memory.value());
  if (const error_code error = door->open(made->offer_.name))
    return broken("no unix socket can be listened on: ", error.message());
  strand.post([door] { door->accept(); });
  return made;
}

void Handover::fetch(const Strand& strand, const Offer& offer,
                     std::function<void(Result<BorrowedMemory>)> done) const {
  const auto map = [bytes = offer.bytes, done = std::move(done)](const Result<Descriptor>& file) {
    done(file.ok() ? BorrowedMemory::create(file.value(), bytes) : file.error());
  };
  const auto fetch = std::make_shared<Fetch>(strand, proof_of("give", offer.key, token_), map);
  strand.post([fetch, name = offer.name, proof = proof_of("take", offer.key, token_)] {
    fetch->start(name, proof);
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
