#include "shoal/base/log.h"
#include "shoal/table/broken.h"
#include "shoal/table/link/session.h"

namespace shoal::table {
namespace {

// The pause after a failed accept, which fails for example when there are no descriptors left.
constexpr milliseconds kPause{100};
constexpr int kPortsTried = 200;
// Rejected connections that get a line of the log each, before one line stands for many.
constexpr int kSaidAtOnce = 5;

// Returns "; port 29601 is free", if one is soon after.
std::string next_free(asio::io_context& io, tcp::endpoint endpoint) {
  for (int i = 1; i <= kPortsTried && endpoint.port() < 65535; ++i) {
    endpoint.port(static_cast<std::uint16_t>(endpoint.port() + 1));
    tcp::acceptor acceptor(io);
    if (!listen(acceptor, endpoint)) return str("; port ", endpoint.port(), " is free");
  }
  return "";
}

// Accepts on its strand, and calls the function of the listener's owner, until it is closed.
class Port : public std::enable_shared_from_this<Port> {
 public:
  Port(const Strand& strand, tcp::acceptor acceptor, const Credentials& self,
       const LinkOptions& options, Listener::Accept accept, std::function<std::size_t()> processes)
      : strand_(strand),
        acceptor_(std::move(acceptor)),
        self_(self),
        options_(options),
        accept_(std::move(accept)),
        processes_(std::move(processes)) {}

  void accept() {
    if (!acceptor_.is_open()) return;
    acceptor_.async_accept(
        on(strand_, [self = shared_from_this()](error_code error, tcp::socket socket) {
          self->accepted(error, std::move(socket));
        }));
  }

  void ask_again() {
    strand_.post([self = shared_from_this()] {
      for (const std::weak_ptr<Session>& weak : self->strangers_)
        if (const auto stranger = weak.lock()) stranger->ask_again();
    });
  }

  void close() {
    MutexLock lock(mutex_);
    closed_ = true;
    strand_.post([self = shared_from_this()] {
      error_code ignored;
      self->acceptor_.close(ignored);
    });
  }

 private:
  // The place of an accepted link among those that the port counts.
  struct Seat {
    explicit Seat(std::shared_ptr<std::atomic<std::size_t>> counts) : taken(std::move(counts)) {}
    Seat(const Seat&) = delete;
    ~Seat() {
      if (counted) --*taken;
    }
    const std::shared_ptr<std::atomic<std::size_t>> taken;
    bool counted = false;
  };

  Result<LinkOwner*> admit(const PeerName& peer, Seat& seat) {
    MutexLock lock(mutex_);
    if (closed_) return broken("This process is about to end and accepts no more connections.");
    const std::size_t processes = processes_ ? processes_() : 1,
                      most = Listener::kLinksOfAProcess * processes + Listener::kSpareLinks;
    if (*taken_ >= most)
      return broken("this process has ", most, " connections already, more than a job of ",
                    processes, " processes needs: does one of them connect again and again?");
    Result<LinkOwner*> owner = accept_(peer);
    if (!owner.ok() || !owner.value()) return owner;
    ++*taken_;
    seat.counted = true;
    return owner;
  }

  void opened(LinkOwner& owner, std::shared_ptr<Link> link) {
    MutexLock lock(mutex_);
    if (!closed_) owner.opened(std::move(link));
  }

  void accepted(error_code error, tcp::socket socket) {
    if (!acceptor_.is_open()) return;
    if (error) {
      LOG_EVERY_N(WARNING, 100) << "a connection could not be accepted (" << error.message()
                                << "); trying again";
      return strand_.after(kPause, [self = shared_from_this()] { self->accept(); });
    }
    welcome(std::move(socket));
    accept();
  }

  void welcome(tcp::socket socket) {
    error_code ignored;
    const std::string from = str(socket.remote_endpoint(ignored));
    const auto seat = std::make_shared<Seat>(taken_);
    Opening opening{
        .admit = [self = shared_from_this(), seat](auto& peer) { return self->admit(peer, *seat); },
        .opened = [self = shared_from_this()](LinkOwner& owner,
                                              auto link) { self->opened(owner, std::move(link)); },
        .failed =
            [self = shared_from_this(), from](const Error& error, bool) {
              if (was_cut_off(error)) return;  // as when a process asks whether one listens here
              self->turned_away(
                  str("a connection from ", from, " was turned away: ", error.message));
            },
        .seat = seat};
    const Strand strand = strand_.sibling();
    const auto session = std::make_shared<Session>(strand, std::move(socket),
                                                   Handshake(self_, std::nullopt, random_nonce()),
                                                   options_, std::move(opening));
    strand.post([session, deadline = options_.connect] { session->start(deadline); });
    std::erase_if(strangers_, [](const std::weak_ptr<Session>& weak) {
      const auto stranger = weak.lock();
      return !stranger || !stranger->is_stranger();
    });
    if (strangers_.size() >= Listener::kMostStrangers) {
      if (const auto oldest = strangers_.front().lock()) oldest->drop();
      strangers_.pop_front();
    }
    strangers_.push_back(session);
  }

  // Logs the first few rejected connections, and of more a line each stall_warn.
  void turned_away(const std::string& line) {
    MutexLock lock(mutex_);
    if (turned_away_ == 0)
      strand_.after(options_.stall_warn, [self = shared_from_this()] { self->sum_up(); });
    if (turned_away_++ < at_once_)
      LOG(WARNING) << line;
    else
      last_ = line;
  }
  void sum_up() {
    MutexLock lock(mutex_);
    const int more = std::exchange(turned_away_, 0) - at_once_;
    at_once_ = more > 0 ? 0 : kSaidAtOnce;
    if (more > 0)
      LOG(WARNING) << more << " more connections were turned away in "
                   << to_seconds(options_.stall_warn) << " s; the last: " << last_;
  }

  const Strand strand_;
  tcp::acceptor acceptor_;
  const Credentials self_;
  const LinkOptions options_;
  const Listener::Accept accept_;
  const std::function<std::size_t()> processes_;
  const std::shared_ptr<std::atomic<std::size_t>> taken_ =
      std::make_shared<std::atomic<std::size_t>>(0);
  Mutex mutex_;
  bool closed_ GUARDED_BY(mutex_) = false;
  int turned_away_ GUARDED_BY(mutex_) = 0, at_once_ GUARDED_BY(mutex_) = kSaidAtOnce;
  std::string last_ GUARDED_BY(mutex_);
  std::deque<std::weak_ptr<Session>> strangers_;
};

}  // namespace

Result<Listener> Listener::create(IoThreads& threads, const std::string& address,
                                  std::uint16_t port, const Credentials& self,
                                  const LinkOptions& options, Accept accept,
                                  std::function<std::size_t()> processes) {
  const Strand strand(threads);
  asio::io_context& io = io_of(strand);
  const auto cannot = [&](const error_code& error, const std::string& more) {
    return Error{Code::kUsage, str("Cannot listen on ", address, ", port ", port, ": ",
                                   error.message(), more, more.ends_with("?") ? "" : ".")};
  };
  error_code error;
  const auto found =
      tcp::resolver(io).resolve(address, std::to_string(port),
                                tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error) return cannot(error, "");
  const tcp::endpoint endpoint = found.begin()->endpoint();
  tcp::acceptor acceptor(io);
  error = listen(acceptor, endpoint);
  if (error == asio::error::address_in_use)
    return cannot(error, next_free(io, endpoint) + ". Is this process of the job running already?");
  if (error)
    return cannot(
        error, error == asio::error::access_denied ? " (ports below 1024 are the system's)" : "");
  const std::uint16_t number = acceptor.local_endpoint().port();
  const auto accepting = std::make_shared<Port>(strand, std::move(acceptor), self, options,
                                                std::move(accept), std::move(processes));
  strand.post([accepting] { accepting->accept(); });
  return Listener{.port = number,
                  .ask_again =
                      [weak = std::weak_ptr(accepting)] {
                        if (const auto port = weak.lock()) port->ask_again();
                      },
                  .open = {accepting.get(), [accepting](const void*) { accepting->close(); }}};
}

}  // namespace shoal::table
