// Boost.Asio, which only files of this folder include, and what is behind Strand and IoThreads.
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
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <memory>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "shoal/base/mutex.h"
#include "shoal/table/link/strand.h"
#include "shoal/table/link/throttle.h"

namespace shoal::table {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = asio::ip::tcp;

struct IoThreads::Machinery {
  // Handlers hold links and strands, which hold this: they are thrown away when the threads have
  // ended, or nobody ever would.
  struct Context : asio::io_context {
    using asio::io_context::io_context;
    void drain() { shutdown(); }
  };
  explicit Machinery(int threads) : io(threads), guard(io.get_executor()) {}

  Context io;
  asio::executor_work_guard<asio::io_context::executor_type> guard;
  Mutex mutex;  // held while something is posted
  Condition changed;
  std::atomic<bool> stopped = false;   // changes with the mutex held
  int visitors GUARDED_BY(mutex) = 0;  // threads in Strand::try_run
  std::shared_ptr<Throttles> throttles GUARDED_BY(mutex);
  std::vector<std::jthread> threads;
};

// Asio's own strand runs nothing on a thread that is not in its io_context, as the solver's is not.
struct Strand::Machinery : std::enable_shared_from_this<Machinery> {
  explicit Machinery(std::shared_ptr<IoThreads::Machinery> threads) : io(std::move(threads)) {}

  struct Task {
    virtual ~Task() = default;
    virtual void run() = 0;
  };
  template <class Work>
  struct TaskOf final : Task {
    explicit TaskOf(Work given) : work(std::move(given)) {}
    void run() override { work(); }
    Work work;
  };

  template <class Work>
  void add(Work&& work);  // runs later
  template <class Work>
  // on a thread of `io`: now, if nothing else is here
  void dispatch(Work&& work);

  bool here() const { return runner == std::this_thread::get_id(); }
  bool enter();  // false if something is here, or waits to be
  void leave();
  void take_turn();  // runs what waits
  void forget();     // throws away what waits
  void schedule();

  const std::shared_ptr<IoThreads::Machinery> io;
  Mutex mutex;
  std::deque<std::unique_ptr<Task>> waiting GUARDED_BY(mutex);
  // something is here, or a turn is scheduled; if not, nothing waits
  bool busy GUARDED_BY(mutex) = false;
  std::atomic<std::thread::id> runner{};
};

template <class Work>
void Strand::Machinery::add(Work&& work) {
  auto task = std::make_unique<TaskOf<std::decay_t<Work>>>(std::forward<Work>(work));
  {
    MutexLock lock(mutex);
    waiting.push_back(std::move(task));
    if (std::exchange(busy, true)) return;
  }
  schedule();
}

template <class Work>
void Strand::Machinery::dispatch(Work&& work) {
  if (here()) return std::forward<Work>(work)();
  const std::shared_ptr<Machinery> self = shared_from_this();
  if (!enter()) return add(std::forward<Work>(work));
  std::forward<Work>(work)();
  leave();
}

// What Asio needs to run its handlers on a strand.
class StrandExecutor {
 public:
  explicit StrandExecutor(const Strand& strand) : machinery_(strand.machinery_) {}
  asio::execution_context& context() const noexcept { return machinery_->io->io; }
  // IoThreads have a guard that keeps them running
  void on_work_started() const noexcept {}
  void on_work_finished() const noexcept {}
  template <class Work, class Allocator>
  void dispatch(Work&& work, const Allocator&) const {
    machinery_->dispatch(std::forward<Work>(work));
  }
  template <class Work, class Allocator>
  void post(Work&& work, const Allocator&) const {
    machinery_->add(std::forward<Work>(work));
  }
  template <class Work, class Allocator>
  void defer(Work&& work, const Allocator&) const {
    machinery_->add(std::forward<Work>(work));
  }
  friend bool operator==(const StrandExecutor& a, const StrandExecutor& b) noexcept {
    return a.machinery_ == b.machinery_;
  }
  friend bool operator!=(const StrandExecutor& a, const StrandExecutor& b) noexcept {
    return a.machinery_ != b.machinery_;
  }

 private:
  std::shared_ptr<Strand::Machinery> machinery_;
};

class Wiring {
 public:
  static asio::io_context& io(const Strand& strand) { return strand.machinery_->io->io; }
  // Another strand of the same threads.
  static Strand sibling(const Strand& strand);
  // Shared by all who ask with these threads; null if `rate` is 0.
  static std::shared_ptr<Throttles> throttles(const Strand& strand, double rate);
};

// `handler` on the strand.
template <class Handler>
auto on(const Strand& strand, Handler handler) {
  return asio::bind_executor(StrandExecutor(strand), std::move(handler));
}

}  // namespace shoal::table
