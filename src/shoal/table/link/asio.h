// Includes Boost.Asio, which only files of this folder do, and defines what is behind Strand and
// IoThreads.
#pragma once

#include <utility>  // before Asio of Boost 1.74, which uses std::exchange and does not include it

// TSan does not know fences (and gcc refuses them under it); Asio's locks order all that they do.
#if defined(__SANITIZE_THREAD__)
#define BOOST_ASIO_DISABLE_FENCED_BLOCK
#endif
#include <atomic>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <thread>
#include <vector>

#include "shoal/base/mutex.h"
#include "shoal/table/link/strand.h"

namespace shoal::table {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = asio::ip::tcp;
using local = asio::local::stream_protocol;

struct IoThreads::Machinery {
  // The context of the threads. Handlers hold links and strands, which hold this: they are thrown
  // away when the threads have ended, or no thread ever would.
  struct Context : asio::io_context {
    using asio::io_context::io_context;
    void drain() { shutdown(); }
  };
  explicit Machinery(int threads) : io(threads), guard(io.get_executor()) {}

  Context io;
  asio::executor_work_guard<asio::io_context::executor_type> guard;
  Mutex mutex;                        // held while something is posted
  std::atomic<bool> stopped = false;  // changes with the mutex held
  std::atomic<int> visitors = 0;      // threads in Strand::try_run
  std::vector<std::jthread> threads;
};

struct Strand::Machinery {
  explicit Machinery(std::shared_ptr<IoThreads::Machinery> threads)
      : io(std::move(threads)), strand(io->io.get_executor()) {}
  const std::shared_ptr<IoThreads::Machinery> io;
  const asio::strand<asio::io_context::executor_type> strand;
};

inline asio::io_context& io_of(const Strand& strand) { return strand.machinery->io->io; }

// Opens the acceptor, which then listens at `endpoint`.
template <class Acceptor>
error_code listen(Acceptor& acceptor, const typename Acceptor::endpoint_type& endpoint) {
  error_code error;
  acceptor.open(endpoint.protocol(), error);
  // Reuses addresses of connections that ended, but not a port with a listener.
  if (!error) acceptor.set_option(typename Acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(Acceptor::max_listen_connections, error);
  return error;
}

// Returns `handler` on the strand.
template <class Handler>
auto on(const Strand& strand, Handler handler) {
  return asio::bind_executor(strand.machinery->strand, std::move(handler));
}

}  // namespace shoal::table
