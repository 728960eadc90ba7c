#include <algorithm>

#include "shoal/table/link/asio.h"
#include "shoal/table/link/session.h"

namespace shoal::table {
namespace {

using std::chrono::milliseconds;

constexpr std::string_view kNoConnection = "No connection to ";

class Attempt : public std::enable_shared_from_this<Attempt> {
 public:
  Attempt(const Strand& strand, const std::string& address, Purpose purpose, const Credentials& self, const LinkOptions& options,
          LinkOwner& owner, std::function<void(Result<std::shared_ptr<Link>>)> done)
      : strand_(strand), address_(address), purpose_(purpose), self_(self), options_(options), owner_(owner), done_(std::move(done)),
        deadline_(now() + options.connect), resolver_(Wiring::io(strand)), socket_(Wiring::io(strand)), timer_(Wiring::io(strand)) {}

  void start() {
    const std::size_t colon = address_.rfind(':');
    if (colon == std::string::npos || colon == 0 || colon + 1 == address_.size())
      return finish(Error{Code::kConfig, str("The address \"", address_, "\" is not host:port.")});
    std::string host = address_.substr(0, colon);
    if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
    timer_.expires_after(options_.connect);
    timer_.async_wait(on(strand_, [self = shared_from_this()](error_code error) {
      if (!error) self->late();
    }));
    resolver_.async_resolve(host, address_.substr(colon + 1), tcp::resolver::numeric_service,
                            on(strand_, [self = shared_from_this()](error_code error, tcp::resolver::results_type found) { self->resolved(error, found); }));
  }

 private:
  void resolved(error_code error, const tcp::resolver::results_type& found) {
    if (!done_) return;
    if (error) return fail(Code::kPeer, str("the name cannot be resolved (", error.message(), ")"));
    asio::async_connect(socket_, found, on(strand_, [self = shared_from_this()](error_code failed, const tcp::endpoint&) { self->connected(failed); }));
  }

  void connected(error_code error) {
    if (!done_) return;
    error_code ignored;
    // A port that nobody listens on, in the range of ports that connections leave from, may meet its own attempt.
    if (!error && socket_.local_endpoint(ignored) == socket_.remote_endpoint(ignored)) error = asio::error::connection_refused;
    if (error == asio::error::connection_refused) return fail(Code::kPeer, str(error.message(), ": nobody listens there"));
    if (error) return fail(Code::kPeer, error.message());
    timer_.cancel();
    const auto left = std::chrono::duration_cast<milliseconds>(deadline_ - now());
    std::make_shared<Session>(strand_, std::move(socket_), connecting(self_, purpose_, random_nonce()), options_, opening())
        ->start(std::max(left, milliseconds(1)));
  }

  Opening opening() {
    const auto self = shared_from_this();
    return {.admit = [self](const PeerName&) -> Result<LinkOwner*> { return &self->owner_; },
            .opened = [self](std::shared_ptr<Link> link) { self->finish(std::move(link)); },
            .failed = [self](const Error& error, bool said_no) {
              if (said_no) self->finish(Error{error.code, str("The connection to ", self->address_, " was refused: ", error.message)});
              else self->fail(error.code, error.message);
            }};
  }

  void late() {
    fail(Code::kTimeout, str("no answer within ", std::chrono::duration<double>(options_.connect).count(),
                             " s; is the machine up, and is a firewall in the way?"));
    error_code ignored;
    resolver_.cancel();
    socket_.close(ignored);
  }

  void fail(Code code, const std::string& why) {
    finish(Error{code, str(kNoConnection, address_, ": ", why, why.ends_with('.') || why.ends_with('?') ? "" : ".")});
  }

  void finish(Result<std::shared_ptr<Link>> result) {
    timer_.cancel();
    if (const auto done = std::exchange(done_, nullptr)) done(std::move(result));
  }

  const Strand strand_;
  const std::string address_;
  const Purpose purpose_;
  const Credentials self_;
  const LinkOptions options_;
  LinkOwner& owner_;
  std::function<void(Result<std::shared_ptr<Link>>)> done_;
  const std::chrono::nanoseconds deadline_;
  tcp::resolver resolver_;
  tcp::socket socket_;
  asio::steady_timer timer_;
};

}  // namespace

void connect(const Strand& strand, const std::string& address, Purpose purpose, const Credentials& self, const LinkOptions& options,
             LinkOwner& owner, std::function<void(Result<std::shared_ptr<Link>>)> done) {
  const auto attempt = std::make_shared<Attempt>(strand, address, purpose, self, options, owner, std::move(done));
  strand.post([attempt] { attempt->start(); });
}

bool worth_another_try(const Error& error) { return error.message.starts_with(kNoConnection); }

}  // namespace shoal::table
