#include "shoal/table/link/strand.h"

#include <future>

#include "shoal/base/log.h"
#include "shoal/table/link/asio.h"

namespace shoal::table {

IoThreads::IoThreads(int threads) : machinery(std::make_shared<Machinery>(threads)) {
  CHECK(threads >= 1) << threads << " threads for input and output";
  for (; threads > 0; --threads)
    machinery->threads.emplace_back([io = &machinery->io] { io->run(); });
}

IoThreads::~IoThreads() { stop(); }

void IoThreads::stop() {
  CHECK(!machinery->io.get_executor().running_in_this_thread())
      << "threads cannot wait for themselves";
  {
    MutexLock lock(machinery->mutex);
    machinery->stopped = true;
  }
  while (const int visitors = machinery->visitors) machinery->visitors.wait(visitors);
  machinery->io.stop();
  machinery->threads.clear();
  machinery->io.drain();
}

namespace {

// Runs work for a free strand at once, on the caller's thread, and work that waits behind it on the
// threads of `io`. Asio's own executor runs nothing at once on a thread that is not its own.
struct Visitor {
  asio::io_context::executor_type io;
  asio::execution_context& context() const noexcept { return io.context(); }
  void on_work_started() const noexcept {}  // IoThreads have a guard that keeps them running
  void on_work_finished() const noexcept {}
  template <class Work>
  void dispatch(Work&& work, const auto&) const {
    work();
  }
  template <class Work>
  void post(Work&& work, const auto& allocator) const {
    io.post(std::forward<Work>(work), allocator);
  }
  template <class Work>
  void defer(Work&& work, const auto& allocator) const {
    post(std::forward<Work>(work), allocator);
  }
  bool operator==(const Visitor&) const = default;
};

}  // namespace

Strand::Strand(IoThreads& threads) : machinery(std::make_shared<Machinery>(threads.machinery)) {}

Strand Strand::sibling() const {
  Strand other = *this;
  other.machinery = std::make_shared<Machinery>(machinery->io);
  return other;
}

void Strand::post(std::function<void()> work) const {
  MutexLock lock(machinery->io->mutex);
  if (!machinery->io->stopped) asio::post(machinery->strand, std::move(work));
}

void Strand::run(std::function<void()> work) const {
  if (here())
    work();
  else if (machinery->io->io.get_executor().running_in_this_thread())
    asio::dispatch(machinery->strand, std::move(work));
  else
    post(std::move(work));
}

bool Strand::try_run(const std::function<void()>& work) const {
  const std::shared_ptr<Machinery> self = machinery;
  IoThreads::Machinery& io = *self->io;
  if (here() || io.io.get_executor().running_in_this_thread()) return false;
  ++io.visitors;  // before it looks at `stopped`, as stop() does it the other way round
  bool ran = false;
  // If something is on the strand, this runs after it, and does nothing on one of its threads.
  if (!io.stopped)
    asio::dispatch(asio::strand<Visitor>(self->strand),
                   [&work, &ran, caller = std::this_thread::get_id()] {
                     if (std::this_thread::get_id() != caller) return;
                     work();
                     ran = true;
                   });
  if (--io.visitors == 0) io.visitors.notify_all();
  return ran;
}

void Strand::after(std::chrono::nanoseconds delay, std::function<void()> work) const {
  MutexLock lock(machinery->io->mutex);
  if (machinery->io->stopped) return;
  const auto timer = std::make_shared<asio::steady_timer>(machinery->io->io, delay);
  timer->async_wait(on(*this, [timer, work = std::move(work)](error_code error) {
    if (!error) work();
  }));
}

bool Strand::call(std::function<void()> work, milliseconds within) const {
  const auto done = std::make_shared<std::promise<void>>();
  post([work = std::move(work), done] {
    work();
    done->set_value();
  });
  return done->get_future().wait_for(within) == std::future_status::ready;
}

bool Strand::here() const { return machinery->strand.running_in_this_thread(); }

Instant now() { return std::chrono::steady_clock::now().time_since_epoch(); }

}  // namespace shoal::table
