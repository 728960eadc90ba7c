// Sends and receives frames to and from one peer over TCP: the handshake, gather writes straight
// from where the numbers are, reads straight to where they belong, heartbeats, deadlines. A link
// does not repair itself: when it is lost, its owner connects anew and sends again whatever was not
// acknowledged.
#pragma once

#include <atomic>

#include "shoal/base/mutex.h"
#include "shoal/table/link/frame_reader.h"
#include "shoal/table/link/strand.h"
#include "shoal/table/table.h"
#include "shoal/table/wire.h"

namespace shoal::table {

// The identity that this process shows to strangers.
struct Credentials {
  Rank rank = 0;
  std::uint64_t incarnation = 0;
  std::string token;
  Digest configuration{};
  std::shared_ptr<const SigningKey> key{};  // of the rank
};
struct PeerName {
  Rank rank = 0;
  std::uint64_t incarnation = 0;
  Purpose purpose = Purpose::kRows;
  std::string address;  // of the other end as the system sees it: "10.0.0.7:41212"
  bool encrypted = false;
  PublicKey key{};  // that it has shown to have; of a process that has connected
};

// Counts traffic; any thread may add to it.
struct TrafficCounters {
  std::atomic<std::uint64_t> bytes_sent{0}, bytes_received{0}, frames_sent{0}, frames_received{0},
      local_bytes{0}, shared_bytes{0};
  std::atomic<std::int64_t> sending{0}, receiving{0};  // nanoseconds
  Traffic sum() const {
    return {bytes_sent,
            bytes_received,
            frames_sent,
            frames_received,
            local_bytes,
            shared_bytes,
            std::chrono::nanoseconds(sending),
            std::chrono::nanoseconds(receiving)};
  }
};

// Counts the links that were closed with a Bye and have not sent it yet: much may wait before it,
// and a slow network or a throttle takes its time. Any thread.
class LastWords {
 public:
  // Returns what is held until a link's last words have left, or cannot.
  static std::shared_ptr<const void> of_link(std::shared_ptr<LastWords> all) {
    MutexLock lock(all->mutex_);
    ++all->waiting_;
    return {all.get(), [all](const void*) {
              MutexLock lock(all->mutex_);
              if (--all->waiting_ == 0) all->none_.notify_all();
            }};
  }
  // Waits until none wait, so long at most.
  void wait(milliseconds most) {
    MutexLock lock(mutex_);
    none_.wait_for(mutex_, most, [this]() REQUIRES(mutex_) { return waiting_ == 0; });
  }

 private:
  Mutex mutex_;
  Condition none_;
  int waiting_ GUARDED_BY(mutex_) = 0;
};

class Handover;
struct Throttles;

struct LinkOptions {
  std::size_t window = 512 * 1024;  // bytes handed to the system ahead
  // The limit of all links with copies of these options together; null: none.
  std::shared_ptr<Throttles> throttles{};
  Encrypt encrypt = Encrypt::kAuto;
  std::shared_ptr<Certificates> certificates{};  // of encrypted links; null: the token's key
  milliseconds heartbeat{1000}, stall_warn{10'000}, stall_abort{60'000}, connect{10'000};
  const std::atomic<Clock>* clock = nullptr;  // said in heartbeats; may be null
  // Long payloads go through memory to and from processes of this machine; null: over TCP, as all
  // payloads do under a throttle.
  std::shared_ptr<Handover> handover{};
  // These count all links with copies of these options.
  std::shared_ptr<TrafficCounters> traffic = std::make_shared<TrafficCounters>();
  std::shared_ptr<LastWords> last_words = std::make_shared<LastWords>();
};

class Link;

// The calls of a link to its owner, on the link's strand. The owner outlives the link, or calls
// Link::close first and gets no call afterwards. Once it was closed or has closed, a link touches
// no numbers but those that have an owner of their own.
class LinkOwner : public PayloadPlaces {
 public:
  // A link that a listener accepted is there; it lasts as long as it is held.
  virtual void opened(std::shared_ptr<Link>) {}
  // Handles a whole frame whose checksum is right. An error closes the link, after a Refuse that
  // carries it to the peer.
  virtual Status received(Link& link, Message&& message) = 0;
  // Called when all frames that had come were received: the owner may act on them together. Called,
  // if it is due, before closed() too.
  virtual void paused(Link&) {}
  // Returns a message. The link can take another, and has none of its own to send; nothing: it will
  // ask again after wake().
  virtual std::optional<Message> next(Link&) { return std::nullopt; }
  // Returns how many messages wait for next(). A link that was accepted reads nothing while much
  // waits: its peer may ask, and never read the answers.
  virtual std::size_t waiting(Link&) { return 0; }
  // Called when nothing was heard for so long; once for each silence longer than stall_warn.
  virtual void silent(Link&, milliseconds) {}
  // Called once when the link is gone. `error` is kTimeout after stall_abort, kPeer otherwise (its
  // words: reset by peer, Refuse's reason, damaged frame), or ok after a Bye.
  virtual void closed(Link& link, Status error) = 0;
};

// Returns the bytes of memory that the message takes while it waits, its payload aside.
std::size_t size_while_waiting(const Message& message);

// A link, made by connect() and Listener. Functions may be called on any thread. A link without a
// holder closes without a Bye.
class Link {
 public:
  virtual ~Link() = default;
  virtual const PeerName& peer() const = 0;
  virtual void send(Message message) = 0;  // before anything that next() would give; in order
  virtual void wake() = 0;                 // next() has something to say
  // Closes the link. The owner hears nothing more once this runs on the link's strand.
  virtual void close(bool with_bye) = 0;
  virtual Clock heard_clock() const = 0;  // of the peer's last heartbeat, -1
};

// Makes one attempt to connect with the process of rank `whom` (kNoRank: any; for one without a
// rank itself): resolves, connects, shakes hands. Calls `done` once, on the strand, within
// `options.connect`: with a link whose owner is `owner`, or an error that names host:port and the
// reason: kPeer (refused, unknown host, wrong token, another configuration or version), kTimeout,
// or the code with which the other end refused. A connection for coordination may have another
// configuration: its Join has the text, so that the difference can be shown.
void connect(const Strand& strand, const std::string& address, Rank whom, Purpose purpose,
             const Credentials& self, const LinkOptions& options, LinkOwner& owner,
             std::function<void(Result<std::shared_ptr<Link>>)> done);

// Tests whether there is a listener at host:port, and sends it nothing. Calls `done` once, on the
// strand. Errors are those of connect().
void reach(const Strand& strand, const std::string& address, milliseconds within,
           std::function<void(Status)> done);

// Returns whether an error of connect() may go away by itself (there is no listener yet, the name
// is not known yet). Otherwise it is final: the other end refused (wrong token), or is no Shoal
// process. The former begin with "No connection to ".
bool worth_another_try(const Error& error);
// Returns whether the host of an error of connect() answered that no process listens there.
bool nobody_listens(const Error& error);
// Returns the error of an address that no connection could be made to, which may be tried again.
Error unreachable(const std::string& address, const std::string& why);

// A port with a listener.
struct Listener {
  // The links that a process accepts of each process of the job: one for each purpose, and as many
  // that it has not yet found to be broken. Then those of processes that are about to join.
  static constexpr std::size_t kLinksOfAProcess = 8, kSpareLinks = 256;
  // Handshakes at a time, those that have failed and are about to close included. Beyond that the
  // oldest makes room.
  static constexpr std::size_t kMostStrangers = 256;
  // Returns the owner of the link to be, for a stranger whose handshake is good, or an error to
  // refuse it with. Null: this process does not know yet, and the stranger waits for ask_again, as
  // long as a handshake may take. Called on the link's strand, which is its own.
  using Accept = std::function<Result<LinkOwner*>(const PeerName&)>;
  // Listens on address:port (0: a free one). Errors (kUsage) name address and port, the reason, and
  // the next free port if this one is taken. `processes`, called as `accept`, returns how many
  // processes the job has; the number of links that are accepted follows from it.
  static Result<Listener> create(IoThreads& threads, const std::string& address, std::uint16_t port,
                                 const Credentials& self, const LinkOptions& options, Accept accept,
                                 std::function<std::size_t()> processes = {});
  std::uint16_t port = 0;
  std::function<void()> ask_again{};  // on any thread, at any time
  // The port is open until nothing holds this any more. Afterwards neither the function nor
  // LinkOwner::opened is called. It must not be released within either of them. Links stay.
  std::shared_ptr<const void> open{};
};

}  // namespace shoal::table
