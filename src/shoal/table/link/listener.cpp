#include <algorithm>
#include <atomic>
#include <deque>

#include "shoal/base/log.h"
#include "shoal/table/link/asio.h"
#include "shoal/table/link/session.h"

namespace shoal::table {
namespace {

using std::chrono::milliseconds;

// that shake hands at a time; the one that is at it for longest makes room
constexpr std::size_t kMostStrangers = 256;
// after an accept that failed, as it does when there are no descriptors left
constexpr milliseconds kPause{100};
constexpr int kPortsTried = 200;

// What the owner of a listener is called for, until it is destroyed.
class Gate {
 public:
  Gate(Listener::Accept accept, Listener::Opened opened)
      : accept_(std::move(accept)), opened_(std::move(opened)) {}
  Result<LinkOwner*> accept(const PeerName& peer) {
    MutexLock lock(mutex_);
    if (closed_)
      return Error{Code::kPeer, "This process takes no connections any more: it is about to end."};
    return accept_(peer);
  }
  void opened(std::shared_ptr<Link> link) {
    MutexLock lock(mutex_);
    if (!closed_) opened_(std::move(link));
  }
  void close() {
    MutexLock lock(mutex_);
    closed_ = true;
  }

 private:
  Mutex mutex_;
  bool closed_ GUARDED_BY(mutex_) = false;
  const Listener::Accept accept_;
  const Listener::Opened opened_;
};

// Accepts on its strand, until it is closed.
class Port : public std::enable_shared_from_this<Port> {
 public:
  Port(const Strand& strand, tcp::acceptor acceptor, const Credentials& self,
       const LinkOptions& options, std::shared_ptr<Gate> gate)
      : strand_(strand),
        acceptor_(std::move(acceptor)),
        self_(self),
        options_(options),
        gate_(std::move(gate)) {}

  void accept() {
    if (!acceptor_.is_open()) return;
    acceptor_.async_accept(
        on(strand_, [self = shared_from_this()](error_code error, tcp::socket socket) {
          self->accepted(error, std::move(socket));
        }));
  }

  void close() {
    error_code ignored;
    acceptor_.close(ignored);
  }

 private:
  void accepted(error_code error, tcp::socket socket) {
    if (!acceptor_.is_open()) return;
    if (error) {
      LOG_EVERY_N(WARNING, 100) << "a connection could not be accepted (" << error.message()
                                << "); trying on";
      return strand_.after(kPause, [self = shared_from_this()] { self->accept(); });
    }
    welcome(std::move(socket));
    accept();
  }

  void welcome(tcp::socket socket) {
    error_code ignored;
    const std::string from = str(socket.remote_endpoint(ignored));
    Opening opening{
        .admit = [gate = gate_](const PeerName& peer) { return gate->accept(peer); },
        .opened = [gate = gate_](std::shared_ptr<Link> link) { gate->opened(std::move(link)); },
        .failed =
            [from](const Error& error, bool) {
              LOG(WARNING) << "a connection from " << from << " was turned away: " << error.message;
            }};
    const Strand strand = Wiring::sibling(strand_);
    const auto session = std::make_shared<Session>(
        strand, std::move(socket), accepting(self_, random_nonce()), options_, std::move(opening));
    strand.post([session, deadline = options_.connect] { session->start(deadline); });
    std::erase_if(strangers_, [](const std::weak_ptr<Session>& weak) {
      const auto stranger = weak.lock();
      return !stranger || !stranger->shaking_hands();
    });
    if (strangers_.size() >= kMostStrangers) {
      if (const auto oldest = strangers_.front().lock()) oldest->close(false);
      strangers_.pop_front();
    }
    strangers_.push_back(session);
  }

  const Strand strand_;
  tcp::acceptor acceptor_;
  const Credentials self_;
  const LinkOptions options_;
  const std::shared_ptr<Gate> gate_;
  std::deque<std::weak_ptr<Session>> strangers_;
};

class TcpListener final : public Listener {
 public:
  TcpListener(const Strand& strand, std::shared_ptr<Port> port, std::shared_ptr<Gate> gate,
              std::uint16_t number)
      : strand_(strand), port_(std::move(port)), gate_(std::move(gate)), number_(number) {}
  ~TcpListener() override {
    gate_->close();
    strand_.post([port = port_] { port->close(); });
  }
  std::uint16_t port() const override { return number_; }

 private:
  const Strand strand_;
  const std::shared_ptr<Port> port_;
  const std::shared_ptr<Gate> gate_;
  const std::uint16_t number_;
};

error_code listen(tcp::acceptor& acceptor, const tcp::endpoint& endpoint) {
  error_code error;
  acceptor.open(endpoint.protocol(), error);
  // of connections that ended; not of a port that is listened on
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(tcp::acceptor::max_listen_connections, error);
  return error;
}

// "; port 29601 is free", if one is soon after.
std::string next_free(asio::io_context& io, tcp::endpoint endpoint) {
  for (int i = 1; i <= kPortsTried && endpoint.port() < 65535; ++i) {
    endpoint.port(static_cast<std::uint16_t>(endpoint.port() + 1));
    tcp::acceptor acceptor(io);
    if (!listen(acceptor, endpoint)) return str("; port ", endpoint.port(), " is free");
  }
  return "";
}

}  // namespace

Result<std::unique_ptr<Listener>> Listener::create(IoThreads& threads, const std::string& address,
                                                   std::uint16_t port, const Credentials& self,
                                                   const LinkOptions& options, Accept accept,
                                                   Opened opened) {
  const Strand strand(threads);
  asio::io_context& io = Wiring::io(strand);
  const auto cannot = [&](const error_code& error, const std::string& more) {
    return Error{Code::kPeer, str("Cannot listen on ", address, ", port ", port, ": ",
                                  error.message(), more, ".")};
  };
  error_code error;
  const auto found =
      tcp::resolver(io).resolve(address, std::to_string(port),
                                tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error) return cannot(error, "");
  const tcp::endpoint endpoint = found.begin()->endpoint();
  tcp::acceptor acceptor(io);
  error = listen(acceptor, endpoint);
  if (error == asio::error::address_in_use) return cannot(error, next_free(io, endpoint));
  if (error)
    return cannot(
        error, error == asio::error::access_denied ? " (ports below 1024 are the system's)" : "");
  const std::uint16_t number = acceptor.local_endpoint(error).port();
  const auto gate = std::make_shared<Gate>(std::move(accept), std::move(opened));
  const auto waiting = std::make_shared<Port>(strand, std::move(acceptor), self, options, gate);
  strand.post([waiting] { waiting->accept(); });
  return std::unique_ptr<Listener>(std::make_unique<TcpListener>(strand, waiting, gate, number));
}

}  // namespace shoal::table
