#include "shoal/status/server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/status/answer.h"

namespace shoal {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using tcp = asio::ip::tcp;
using boost::system::error_code;

constexpr std::chrono::seconds kPatience{10};  // with a client that says or reads nothing
constexpr int kMostClients = 32, kPortsTried = 100;
constexpr std::uint32_t kMostHeader = 8 * 1024;
constexpr std::uint64_t kMostBody = 1024;
constexpr std::chrono::milliseconds kPause{100};  // after a connection that cannot be accepted

using Plain = beast::tcp_stream;
using Encrypted = beast::ssl_stream<beast::tcp_stream>;

// Returns a context for one connection, with the files as they are now.
Result<std::unique_ptr<asio::ssl::context>> context_of(const StatusServerOptions& options) {
  auto context = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server);
  error_code error;
  const auto failed = [&](const std::string& file) {
    return Error{Code::kUsage, str(file, ": ", error.message())};
  };
  SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_3_VERSION);
  if (context->use_certificate_chain_file(options.certificate, error))
    return failed(options.certificate);
  if (context->use_private_key_file(options.key, asio::ssl::context::pem, error))
    return failed(options.key);
  if (context->load_verify_file(options.authorities, error)) return failed(options.authorities);
  // A client may show a certificate; one that cannot be verified ends the connection.
  context->set_verify_mode(asio::ssl::verify_peer, error);
  return context;
}

// Counts the clients there are.
class Seat {
 public:
  explicit Seat(std::atomic<int>& taken) : taken_(taken) { ++taken_; }
  ~Seat() { --taken_; }
  Seat(const Seat&) = delete;

 private:
  std::atomic<int>& taken_;
};

// One client's requests, one after another. Every wait ends after kPatience.
template <class Stream>
class Client : public std::enable_shared_from_this<Client<Stream>> {
 public:
  Client(Stream stream, std::unique_ptr<asio::ssl::context> context, std::unique_ptr<Seat> seat,
         const WebPolicy& policy, const StatusBoard& board)
      : context_(std::move(context)),
        seat_(std::move(seat)),
        policy_(policy),
        board_(board),
        stream_(std::move(stream)) {}

  void begin() {
    if constexpr (std::is_same_v<Stream, Encrypted>) {
      socket().expires_after(kPatience);
      stream_.async_handshake(
          asio::ssl::stream_base::server, [self = this->shared_from_this()](error_code error) {
            if (error) return;
            self->certified_ = SSL_get0_peer_certificate(self->stream_.native_handle());
            self->read();
          });
    } else {
      read();
    }
  }

 private:
  beast::tcp_stream& socket() { return beast::get_lowest_layer(stream_); }

  void read() {
    parser_.emplace();
    parser_->header_limit(kMostHeader);
    parser_->body_limit(kMostBody);
    socket().expires_after(kPatience);
    http::async_read(stream_, buffer_, *parser_,
                     [self = this->shared_from_this()](error_code error, std::size_t) {
                       if (!error) self->answer();
                     });
  }

  void answer() {
    const auto& request = parser_->get();
    const auto text = [](auto view) { return std::string_view(view.data(), view.size()); };
    WebAnswer made = answer_to({.method = text(request.method_string()),
                                .target = text(request.target()),
                                .host = text(request[http::field::host]),
                                .authorization = text(request[http::field::authorization]),
                                .cookie = text(request[http::field::cookie]),
                                .certified = certified_},
                               policy_, board_);
    answer_ = {};
    answer_.version(request.version());
    answer_.result(static_cast<unsigned>(made.status));
    const auto set = [this](std::string_view name, std::string_view value) {
      answer_.set(beast::string_view(name.data(), name.size()),
                  beast::string_view(value.data(), value.size()));
    };
    for (const auto& [name, value] : made.headers) set(name, value);
    set("Content-Type", made.type);
    set("Cache-Control", "no-store");
    set("X-Content-Type-Options", "nosniff");
    set("X-Frame-Options", "DENY");
    set("Referrer-Policy", "no-referrer");
    set("Content-Security-Policy",
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
        "connect-src 'self'");
    answer_.keep_alive(request.keep_alive());
    answer_.body() = std::move(made.body);
    answer_.prepare_payload();
    if (request.method() == http::verb::head) answer_.body().clear();
    socket().expires_after(kPatience);
    http::async_write(stream_, answer_,
                      [self = this->shared_from_this()](error_code error, std::size_t) {
                        if (!error && self->answer_.keep_alive()) return self->read();
                        error_code ignored;
                        self->socket().socket().shutdown(tcp::socket::shutdown_send, ignored);
                      });
  }

  const std::unique_ptr<asio::ssl::context> context_;  // outlives the stream
  const std::unique_ptr<Seat> seat_;
  const WebPolicy& policy_;
  const StatusBoard& board_;
  Stream stream_;
  bool certified_ = false;
  beast::flat_buffer buffer_{kMostHeader + kMostBody};
  std::optional<http::request_parser<http::string_body>> parser_;
  http::response<http::string_body> answer_;
};

std::string own_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

class Server final : public StatusServer {
 public:
  Server(const StatusServerOptions& options, const StatusBoard& board)
      : options_(options), board_(board), acceptor_(io_), timer_(io_) {
    policy_.encrypted = !options.certificate.empty();
    policy_.open = policy_.encrypted || !options.token.empty();
    policy_.token = options.token;
    const std::string name = own_name();
    policy_.names = {name, name.substr(0, name.find('.'))};
  }
  ~Server() override {
    io_.stop();
    if (thread_.joinable()) thread_.join();
  }

  Status listen() {
    const asio::ip::address address = policy_.open
                                          ? asio::ip::address(asio::ip::address_v4::any())
                                          : asio::ip::address(asio::ip::address_v4::loopback());
    error_code error;
    for (int i = 0; i < kPortsTried; ++i) {
      const tcp::endpoint at(address, static_cast<std::uint16_t>(options_.port + i));
      acceptor_.open(at.protocol(), error);
      if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
      if (!error) acceptor_.bind(at, error);
      if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
      if (!error) break;
      error_code ignored;
      acceptor_.close(ignored);
      if (error != asio::error::address_in_use || options_.port == 0 || at.port() == 65535) break;
    }
    if (error)
      return Error{Code::kUsage,
                   str("port ", options_.port, " cannot be listened on: ", error.message())};
    port_ = acceptor_.local_endpoint().port();
    accept();
    thread_ = std::jthread([this] { io_.run(); });
    return {};
  }

  std::uint16_t port() const override { return port_; }
  std::string url() const override {
    return str(policy_.encrypted ? "https" : "http", "://", policy_.open ? own_name() : "127.0.0.1",
               ":", port_, "/");
  }

 private:
  void accept() {
    acceptor_.async_accept([this](error_code error, tcp::socket socket) {
      if (error) {
        timer_.expires_after(kPause);
        return timer_.async_wait([this](error_code stopped) {
          if (!stopped) accept();
        });
      }
      if (clients_ < kMostClients) welcome(std::move(socket));
      accept();
    });
  }

  void welcome(tcp::socket socket) {
    auto seat = std::make_unique<Seat>(clients_);
    if (!policy_.encrypted) {
      std::make_shared<Client<Plain>>(Plain(std::move(socket)), nullptr, std::move(seat), policy_,
                                      board_)
          ->begin();
      return;
    }
    Result<std::unique_ptr<asio::ssl::context>> context = context_of(options_);
    if (!context.ok()) {
      LOG_EVERY_N(WARNING, 100) << "the status page cannot be shown: " << context.error().message;
      return;
    }
    Encrypted stream(std::move(socket), *context.value());
    std::make_shared<Client<Encrypted>>(std::move(stream), std::move(context).value(),
                                        std::move(seat), policy_, board_)
        ->begin();
  }

  const StatusServerOptions options_;
  const StatusBoard& board_;
  WebPolicy policy_;
  std::atomic<int> clients_ = 0;  // outlives the clients, which the context holds
  asio::io_context io_{1};
  tcp::acceptor acceptor_;
  asio::steady_timer timer_;
  std::uint16_t port_ = 0;
  std::jthread thread_;
};

}  // namespace

Result<std::unique_ptr<StatusServer>> StatusServer::start(const StatusServerOptions& options,
                                                          const StatusBoard& board) {
  auto server = std::make_unique<Server>(options, board);
  if (!options.certificate.empty())
    if (const auto context = context_of(options); !context.ok()) return context.error();
  if (const Status status = server->listen(); !status.ok()) return status.error();
  return std::unique_ptr<StatusServer>(std::move(server));
}

}  // namespace shoal
