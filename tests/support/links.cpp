#include "support/links.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "support/messages.h"
#include "support/ports.h"

namespace shoal::table::test {
namespace {

using shoal::test::loopback;
using std::chrono::milliseconds;
constexpr std::chrono::seconds kPatience{60};

bool ready(int descriptor, short events, milliseconds within) {
  pollfd one{descriptor, events, 0};
  return ::poll(&one, 1, static_cast<int>(within.count())) > 0;
}

}  // namespace

// ---- Ear ----

std::span<std::byte> Ear::place(Message& message, std::size_t bytes) {
  if (over) ++after_the_end;
  if (deaf) return {};
  if (where) return where(message);
  const auto memory = std::make_shared<std::vector<std::byte>>(bytes);
  Payload& payload = *payload_of(message);
  payload.bytes = *memory;
  payload.owner = memory;
  return *memory;
}

Status Ear::received(Link& link, Message&& message) {
  if (over) ++after_the_end;
  Status status = judge ? judge(link, message) : Status();
  std::lock_guard lock(mutex);
  heard.push_back(std::move(message));
  changed.notify_all();
  return status;
}

std::optional<Message> Ear::next(Link&) {
  if (over) ++after_the_end;
  return source ? source() : std::nullopt;
}

void Ear::silent(Link&, milliseconds) {
  if (over) ++after_the_end;
  std::lock_guard lock(mutex);
  ++silences;
  changed.notify_all();
}

void Ear::closed(Link&, Status error) {
  if (over) ++after_the_end;
  over = true;
  std::lock_guard lock(mutex);
  end = std::move(error);
  changed.notify_all();
}

bool Ear::wait(const std::function<bool()>& done) {
  std::unique_lock lock(mutex);
  return changed.wait_for(lock, kPatience, done);
}

// ---- Ends ----

Credentials credentials(std::uint32_t rank) {
  return {.rank = rank,
          .incarnation = 1000 + rank,
          .token = std::string(kGoldenToken),
          .configuration = {1, 2, 3},
          .key = std::make_shared<const SigningKey>()};
}

LinkOptions hasty() {
  return {.heartbeat = milliseconds(20),
          .stall_warn = milliseconds(200),
          .stall_abort = milliseconds(600)};
}

Ends::Ends(const LinkOptions& given, int threads)
    : options(given), near_threads(threads), far_threads(threads) {
  far.taken = [this](std::shared_ptr<Link> link) {
    std::lock_guard lock(mutex);
    far_link = std::move(link);
    changed.notify_all();
  };
  auto made = Listener::create(far_threads, "127.0.0.1", 0, far_self, options,
                               [this](const PeerName& peer) -> Result<LinkOwner*> {
                                 if (admit)
                                   if (Status status = admit(peer); !status.ok())
                                     return status.error();
                                 return &far;
                               });
  EXPECT_TRUE(made.ok()) << made.error().message;
  listener = std::move(made).value();
}

Ends::~Ends() {
  near_threads.stop();
  far_threads.stop();
  EXPECT_EQ(near.after_the_end + far.after_the_end, 0) << "calls after the end";
}

std::string Ends::address() const { return "127.0.0.1:" + std::to_string(listener.port); }

Traffic Ends::whole_traffic() {
  // An end counts the bytes sent after its write, when the other may have read them.
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (std::unique_lock lock(mutex);; changed.wait_for(lock, milliseconds(1))) {
    const Traffic both = options.traffic->sum();
    if ((both.bytes_sent == both.bytes_received && both.frames_sent == both.frames_received) ||
        std::chrono::steady_clock::now() > deadline)
      return both;
  }
}

Result<std::shared_ptr<Link>> Ends::try_connect(const std::string& address, const Credentials& self,
                                                Purpose purpose) {
  std::optional<Result<std::shared_ptr<Link>>> result;
  connect(Strand(near_threads), address, far_self.rank, purpose, self, options, near,
          [&](Result<std::shared_ptr<Link>> made) {
            std::lock_guard lock(mutex);
            EXPECT_FALSE(result.has_value()) << "called twice";
            result = std::move(made);
            changed.notify_all();
          });
  std::unique_lock lock(mutex);
  EXPECT_TRUE(changed.wait_for(lock, kPatience, [&] { return result.has_value(); }));
  return std::move(*result);
}

Error Ends::refused(const std::string& address, const Credentials& self) {
  const auto link = try_connect(address, self);
  EXPECT_FALSE(link.ok()) << address;
  return link.ok() ? Error{Code::kInternal, "it is a link"} : link.error();
}

Error Ends::refused_by(const std::function<void(PlainSocket)>& answer) {
  PlainListener listener;
  std::jthread answers([&] { answer(listener.accept()); });
  return refused("127.0.0.1:" + std::to_string(listener.port));
}

void Ends::join(std::uint16_t port) {
  auto made =
      try_connect(port == 0 ? address() : "127.0.0.1:" + std::to_string(port), credentials(1));
  ASSERT_TRUE(made.ok()) << made.error().message;
  near_link = std::move(made).value();
  std::unique_lock lock(mutex);
  ASSERT_TRUE(changed.wait_for(lock, kPatience, [&] { return far_link != nullptr; }));
}

// ---- plain sockets ----

PlainSocket::PlainSocket(std::uint16_t port) : descriptor_(::socket(AF_INET, SOCK_STREAM, 0)) {
  const sockaddr_in address = loopback(port);
  EXPECT_EQ(::connect(descriptor_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
}

PlainSocket::~PlainSocket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void PlainSocket::say(std::string_view bytes) { (void)say_within(bytes, kPatience); }

bool PlainSocket::say_within(std::string_view bytes, milliseconds within) {
  while (!bytes.empty()) {
    if (!ready(descriptor_, POLLOUT, within)) return false;
    const ssize_t sent =
        ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EAGAIN) continue;
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

std::string PlainSocket::hear(std::size_t bytes) {
  std::string heard;
  char piece[4096];
  while (heard.size() < bytes) {
    if (!ready(descriptor_, POLLIN, kPatience)) {
      ADD_FAILURE() << "nothing came, and the connection did not end";
      return heard;
    }
    const ssize_t got = ::recv(descriptor_, piece, std::min(sizeof piece, bytes - heard.size()), 0);
    if (got <= 0) break;
    heard.append(piece, static_cast<std::size_t>(got));
  }
  return heard;
}

bool PlainSocket::ended(milliseconds within) {
  char piece[4096];
  while (ready(descriptor_, POLLIN, within))
    if (::recv(descriptor_, piece, sizeof piece, 0) <= 0) return true;
  return false;
}

PlainSocket stranger(std::uint16_t port, std::string_view bytes) {
  PlainSocket socket(port);
  socket.hear(whole(Challenge{}).size());
  socket.say(bytes);
  return socket;
}

PlainListener::PlainListener() : descriptor_(::socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  EXPECT_EQ(::bind(descriptor_, reinterpret_cast<const sockaddr*>(&address), size), 0);
  EXPECT_EQ(::listen(descriptor_, 16), 0);
  ::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &size);
  port = ntohs(address.sin_port);
}

PlainListener::~PlainListener() { ::close(descriptor_); }

PlainSocket PlainListener::accept() {
  const bool came = ready(descriptor_, POLLIN, kPatience);
  EXPECT_TRUE(came) << "nobody connected";
  return PlainSocket(came ? ::accept(descriptor_, nullptr, nullptr) : -1);
}

}  // namespace shoal::table::test
