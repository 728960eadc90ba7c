#include "common/bare_asio.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <vector>

#include <boost/asio/read.hpp>  // after asio.h, which prepares for them
#include <boost/asio/write.hpp>
#include "shoal/base/log.h"
#include "shoal/table/link/asio.h"

namespace shoal::table {
namespace {

using Failed = error_code;
using BareHeader = std::array<char, 24>;

// A connection's server side: reads and writes go on side by side.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(tcp::socket socket, std::span<char> memory, std::size_t row_bytes)
      : socket_(std::move(socket)), memory_(memory), row_bytes_(row_bytes) {
    socket_.set_option(tcp::no_delay(true));
  }
  void read() {
    const std::array<asio::mutable_buffer, 2> frame{
        asio::buffer(in_), asio::buffer(memory_.data() + taken_ % rows() * row_bytes_, row_bytes_)};
    asio::async_read(socket_, frame, [self = shared_from_this()](Failed failed, std::size_t) {
      if (failed) return;
      ++self->taken_;
      if (self->taken_ == self->given_ + 1) self->write();
      self->read();
    });
  }

 private:
  std::size_t rows() const { return memory_.size() / row_bytes_; }
  void write() {
    const std::array<asio::const_buffer, 2> frame{
        asio::buffer(out_),
        asio::buffer(memory_.data() + given_ % rows() * row_bytes_, row_bytes_)};
    asio::async_write(socket_, frame, [self = shared_from_this()](Failed failed, std::size_t) {
      if (failed) return;
      if (++self->given_ < self->taken_) self->write();
    });
  }

  tcp::socket socket_;
  std::span<char> memory_;
  std::size_t row_bytes_, taken_ = 0, given_ = 0;
  BareHeader in_{}, out_{};
};

}  // namespace

struct BareServer::Machinery {
  asio::io_context io;
  tcp::acceptor acceptor{io, {asio::ip::address_v4::loopback(), 0}};
  std::vector<char> memory;
  std::size_t row_bytes = 0;
};

BareServer::BareServer(std::size_t bytes, std::size_t row_bytes)
    : machinery_(std::make_unique<Machinery>()) {
  machinery_->memory.resize(bytes);
  machinery_->row_bytes = row_bytes;
}
BareServer::~BareServer() = default;
std::uint16_t BareServer::port() const { return machinery_->acceptor.local_endpoint().port(); }

void BareServer::serve(int connections) {
  for (int i = 0; i < connections; ++i)
    machinery_->acceptor.async_accept([this](Failed failed, tcp::socket socket) {
      CHECK(!failed) << failed.message();
      std::make_shared<Exchange>(std::move(socket), machinery_->memory, machinery_->row_bytes)
          ->read();
    });
  machinery_->io.run();
}

struct BareClient::Machinery {
  asio::io_context io;
  tcp::socket socket{io};
  BareHeader in{}, out{};
  std::span<const char> source;
  std::span<char> target;
  std::size_t row_bytes = 0, rows = 0, ahead = 0, sent = 0, came = 0;
  bool writing = false;

  void write() {
    if (writing || sent == rows || sent >= came + ahead) return;
    writing = true;
    const std::array<asio::const_buffer, 2> frame{
        asio::buffer(out), asio::buffer(source.data() + sent * row_bytes, row_bytes)};
    asio::async_write(socket, frame, [this](Failed failed, std::size_t) {
      CHECK(!failed) << failed.message();
      writing = false;
      ++sent;
      write();
    });
  }
  void read() {
    const std::array<asio::mutable_buffer, 2> frame{
        asio::buffer(in), asio::buffer(target.data() + came * row_bytes, row_bytes)};
    asio::async_read(socket, frame, [this](Failed failed, std::size_t) {
      CHECK(!failed) << failed.message();
      if (++came < rows) read();
      write();
    });
  }
};

BareClient::BareClient(std::uint16_t port) : machinery_(std::make_unique<Machinery>()) {
  machinery_->socket.connect({asio::ip::address_v4::loopback(), port});
  machinery_->socket.set_option(tcp::no_delay(true));
}
BareClient::~BareClient() = default;

double BareClient::exchange(std::span<const char> source, std::span<char> target,
                            std::size_t row_bytes, std::size_t ahead) {
  Machinery& m = *machinery_;
  m.source = source;
  m.target = target;
  m.row_bytes = row_bytes;
  m.rows = source.size() / row_bytes;
  m.ahead = ahead;
  m.sent = m.came = 0;
  const auto begin = std::chrono::steady_clock::now();
  m.io.restart();
  m.read();
  m.write();
  m.io.run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double bare_rate(std::size_t row_bytes) {
  constexpr std::size_t kBytes = 64u << 20;
  const std::size_t rows = std::min<std::size_t>(kBytes / row_bytes, 20'000),
                    bytes = rows * row_bytes;
  BareServer server(bytes, row_bytes);
  const std::jthread serving([&] { server.serve(1); });
  const std::vector<char> source(bytes);
  std::vector<char> target(bytes);
  BareClient client(server.port());
  client.exchange(source, target, row_bytes, rows);
  double least = 1e300;
  for (int i = 0; i < 3; ++i)
    least = std::min(least, client.exchange(source, target, row_bytes, rows));
  return 2 * static_cast<double>(bytes) / least;
}

}  // namespace shoal::table
