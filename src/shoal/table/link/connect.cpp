#include "shoal/table/broken.h"
#include "shoal/table/link/process_state.h"
#include "shoal/table/link/session.h"

namespace shoal::table {
namespace {

constexpr std::string_view kNoConnection = "No connection to ";

Error no_connection(Code code, const std::string& address, const std::string& why) {
  return Error{code, str(kNoConnection, address, ": ", why,
                         why.ends_with('.') || why.ends_with('?') ? "" : ".")};
}

// Resolves and connects.
class Dial : public std::enable_shared_from_this<Dial> {
 public:
  Dial(const Strand& strand, const std::string& address, milliseconds within,
       std::function<void(Result<tcp::socket>)> done)
      : strand_(strand),
        address_(address),
        within_(within),
        done_(std::move(done)),
        resolver_(io_of(strand)),
        socket_(io_of(strand)) {}

  void start() {
    const auto [host, port] = split_address(address_);
    if (host.empty() || port.empty())
      return finish(Error{Code::kConfig, str("The address \"", address_, "\" is not host:port.")});
    strand_.after(within_, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->late();
    });
    resolver_.async_resolve(host, port, tcp::resolver::numeric_service,
                            on(strand_, [self = shared_from_this()](
                                            error_code error, tcp::resolver::results_type found) {
                              self->resolved(error, found);
                            }));
  }

 private:
  void resolved(error_code error, const tcp::resolver::results_type& found) {
    if (!done_) return;
    if (error) return fail(Code::kPeer, str("the name cannot be resolved (", error.message(), ")"));
    asio::async_connect(
        socket_, found,
        on(strand_, [self = shared_from_this()](error_code failed, const tcp::endpoint&) {
          self->connected(failed);
        }));
  }

  void connected(error_code error) {
    if (!done_) return;
    error_code ignored;
    // A port without a listener, in the range of ports that connections leave from, may meet
    // its own attempt.
    if (!error && socket_.local_endpoint(ignored) == socket_.remote_endpoint(ignored))
      error = asio::error::connection_refused;
    if (error == asio::error::connection_refused)
      return fail(Code::kPeer, str(error.message(), kRefused));
    if (error) return fail(Code::kPeer, error.message());
    finish(std::move(socket_));
  }

  void late() {
    if (!done_) return;
    fail(Code::kTimeout, str("no answer within ", to_seconds(within_),
                             " s; is the machine up, and is a firewall in the way?"));
    error_code ignored;
    resolver_.cancel();
    socket_.close(ignored);
  }

  void fail(Code code, const std::string& why) { finish(no_connection(code, address_, why)); }

  void finish(Result<tcp::socket> result) {
    if (const auto done = std::exchange(done_, nullptr)) done(std::move(result));
  }

  const Strand strand_;
  const std::string address_;
  const milliseconds within_;
  std::function<void(Result<tcp::socket>)> done_;
  tcp::resolver resolver_;
  tcp::socket socket_;
};

void dial(const Strand& strand, const std::string& address, milliseconds within,
          std::function<void(Result<tcp::socket>)> done) {
  strand.post(
      [dial = std::make_shared<Dial>(strand, address, within, std::move(done))] { dial->start(); });
}

}  // namespace

void connect(const Strand& strand, const std::string& address, Rank whom, Purpose purpose,
             const Credentials& self, const LinkOptions& options, LinkOwner& owner,
             std::function<void(Result<std::shared_ptr<Link>>)> done) {
  const Instant deadline = now() + options.connect;
  dial(strand, address, options.connect, [=, &owner](Result<tcp::socket> socket) {
    if (!socket.ok()) return done(socket.error());
    Opening opening{.admit = [&owner](const PeerName&) -> Result<LinkOwner*> { return &owner; },
                    .opened = [done](LinkOwner&, auto link) { done(std::move(link)); },
                    .failed =
                        [done, address](const Error& error, bool said_no) {
                          if (said_no)
                            done(Error{error.code, str("The connection to ", address,
                                                       " was refused: ", error.message)});
                          else
                            done(no_connection(error.code, address, error.message));
                        }};
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - now());
    std::make_shared<Session>(strand, std::move(socket).value(),
                              Handshake(self, purpose, random_nonce(), whom), options,
                              std::move(opening))
        ->start(std::max(left, milliseconds(1)));
  });
}

void reach(const Strand& strand, const std::string& address, milliseconds within,
           std::function<void(Status)> done) {
  dial(strand, address, within, [done = std::move(done)](const Result<tcp::socket>& socket) {
    done(socket.ok() ? Status() : Status(socket.error()));
  });
}

bool nobody_listens(const Error& error) {
  return worth_another_try(error) && error.message.find(kRefused) != std::string::npos;
}

Error unreachable(const std::string& address, const std::string& why) {
  return no_connection(Code::kPeer, address, why);
}

bool worth_another_try(const Error& error) { return error.message.starts_with(kNoConnection); }

}  // namespace shoal::table
