// Two ends of a link in one process, and a stranger's plain socket.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/table/link/link.h"

namespace shoal::table::test {

// An owner that keeps what it hears. Its functions for tests may be called on any thread; they wait
// a minute at most.
class Ear : public LinkOwner {
 public:
  std::span<std::byte> place(Message& message, std::size_t bytes) override;
  bool keeps(const Message&) override { return keeping; }
  Status received(Link& link, Message&& message) override;
  std::optional<Message> next(Link& link) override;
  std::size_t waiting(Link&) override { return backlog; }
  void silent(Link& link, std::chrono::milliseconds since) override;
  void closed(Link& link, Status error) override;

  void opened(std::shared_ptr<Link> link) override {
    if (taken) taken(std::move(link));
  }

  // Before the link is there:
  std::function<void(std::shared_ptr<Link>)> taken;    // of opened()
  std::function<std::optional<Message>()> source;      // of next(); on the strand
  std::function<Status(Link&, const Message&)> judge;  // of received(); on the strand
  // of the numbers of messages; none: in memory of their own
  std::function<std::span<std::byte>(const Message&)> where;
  bool deaf = false;                    // no place for numbers
  std::atomic<std::size_t> backlog{0};  // of waiting()
  bool keeping = false;                 // payloads, where they lie

  // Waits until something happened that makes `done` true, which is called under the lock.
  bool wait(const std::function<bool()>& done);
  bool wait_closed() {
    return wait([this] { return end.has_value(); });
  }
  Error why() {
    return wait_closed() && !end->ok()
               ? end->error()
               : Error{Code::kInternal, "it closed in order, or not at all"};
  }
  std::size_t count() {
    std::lock_guard lock(mutex);
    return heard.size();
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Message> heard;  // with numbers of their own
  std::optional<Status> end;
  int silences = 0;
  // Called closed(), or the test closed it on the strand.
  std::atomic<bool> over{false};
  std::atomic<int> after_the_end{0};
};

class PlainSocket;

Credentials credentials(std::uint32_t rank);
// Short times: for tests in which a peer is not heard of.
LinkOptions hasty();

struct Ends {
  explicit Ends(const LinkOptions& options = {}, int threads = 1);
  ~Ends();
  // Connects `near` with `far` and waits until both know; through `port` if it is not 0.
  void join(std::uint16_t port = 0);
  Result<std::shared_ptr<Link>> try_connect(const std::string& address, const Credentials& self,
                                            Purpose purpose = Purpose::kRows);
  // Expects that no link comes of it; returns why.
  Error refused(const std::string& address, const Credentials& self = credentials(1));
  // The same where `answer` is who listens.
  Error refused_by(const std::function<void(PlainSocket)>& answer);
  std::string address() const;
  // The traffic of both ends once all bytes that were sent have arrived; a minute later as it is.
  Traffic whole_traffic();

  LinkOptions options;
  IoThreads near_threads, far_threads;
  Ear near, far;
  std::shared_ptr<Link> near_link, far_link;
  std::function<Status(const PeerName&)> admit;
  Credentials far_self = credentials(0);
  Listener listener;
  std::mutex mutex;
  std::condition_variable changed;
};

// A plain blocking socket with a deadline for each call.
class PlainSocket {
 public:
  explicit PlainSocket(std::uint16_t port);
  explicit PlainSocket(int descriptor) : descriptor_(descriptor) {}
  PlainSocket(PlainSocket&& other) : descriptor_(std::exchange(other.descriptor_, -1)) {}
  ~PlainSocket();
  void say(std::string_view bytes);
  // Returns whether all was said: the other end never took so long to read on.
  bool say_within(std::string_view bytes, std::chrono::milliseconds within);
  std::string hear(std::size_t bytes);  // fewer at the end of the connection
  std::string hear_all() { return hear(1u << 30); }
  // Returns whether the other end closes. Bytes that it sends meanwhile are forgotten.
  bool ended(std::chrono::milliseconds within);

 private:
  int descriptor_;
};
// Connects to a listener of links, hears its Challenge and says this.
PlainSocket stranger(std::uint16_t port, std::string_view bytes = {});

class PlainListener {
 public:
  PlainListener();
  ~PlainListener();
  PlainSocket accept();
  std::uint16_t port = 0;

 private:
  int descriptor_;
};

}  // namespace shoal::table::test
