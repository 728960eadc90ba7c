#include "shoal/table/link/strand.h"

#include "shoal/base/log.h"
#include "shoal/table/link/asio.h"

namespace shoal::table {

IoThreads::IoThreads(int threads) : machinery_(std::make_shared<Machinery>(threads)) {
  CHECK(threads >= 1) << threads << " threads for input and output";
  for (; threads > 0; --threads)
    machinery_->threads.emplace_back([io = &machinery_->io] { io->run(); });
}

IoThreads::~IoThreads() { stop(); }

void IoThreads::stop() {
  for (const std::jthread& thread : machinery_->threads)
    CHECK(thread.get_id() != std::this_thread::get_id()) << "threads cannot wait for themselves";
  {
    MutexLock lock(machinery_->mutex);
    machinery_->stopped = true;
    const auto alone = [this]() REQUIRES(machinery_->mutex) { return machinery_->visitors == 0; };
    while (!machinery_->changed.wait_for(machinery_->mutex, std::chrono::seconds(1), alone)) {
    }
  }
  machinery_->io.stop();
  machinery_->threads.clear();
  machinery_->io.drain();
}

// ---- a strand's machinery ----

namespace {

// A strand's turn on the threads' queue; what waits goes with it if it never comes.
template <class Machinery>
class Turn {
 public:
  explicit Turn(std::shared_ptr<Machinery> strand) : strand_(std::move(strand)) {}
  Turn(Turn&&) = default;
  ~Turn() {
    if (strand_) strand_->forget();
  }
  void operator()() { std::exchange(strand_, nullptr)->take_turn(); }

 private:
  std::shared_ptr<Machinery> strand_;
};

}  // namespace

bool Strand::Machinery::enter() {
  MutexLock lock(mutex);
  if (std::exchange(busy, true)) return false;
  runner = std::this_thread::get_id();
  return true;
}

void Strand::Machinery::leave() {
  runner = std::thread::id();
  {
    MutexLock lock(mutex);
    busy = !waiting.empty();
    if (!busy) return;
  }
  schedule();
}

void Strand::Machinery::take_turn() {
  std::deque<std::unique_ptr<Task>> tasks;
  {
    MutexLock lock(mutex);
    tasks.swap(waiting);
  }
  runner = std::this_thread::get_id();
  for (; !tasks.empty() && !io->stopped; tasks.pop_front()) tasks.front()->run();
  tasks.clear();
  leave();
}

void Strand::Machinery::forget() {
  std::deque<std::unique_ptr<Task>> tasks;
  MutexLock lock(mutex);
  tasks.swap(waiting);
  busy = false;
}

void Strand::Machinery::schedule() {
  const std::shared_ptr<Machinery> self = shared_from_this();
  // forgets, once nothing is locked, if the threads have stopped
  Turn turn(self);
  MutexLock lock(io->mutex);
  if (!io->stopped) asio::post(io->io, std::move(turn));
}

// ---- a strand ----

Strand::Strand(IoThreads& threads) : machinery_(std::make_shared<Machinery>(threads.machinery_)) {}
Strand::Strand(std::shared_ptr<Machinery> machinery) : machinery_(std::move(machinery)) {}

void Strand::post(std::function<void()> work) const { machinery_->add(std::move(work)); }

void Strand::run(std::function<void()> work) const {
  if (machinery_->io->io.get_executor().running_in_this_thread())
    machinery_->dispatch(std::move(work));
  else if (here())
    work();  // in try_run
  else
    post(std::move(work));
}

bool Strand::try_run(const std::function<void()>& work) const {
  const std::shared_ptr<Machinery> self = machinery_;
  IoThreads::Machinery& io = *self->io;
  {
    MutexLock lock(io.mutex);
    if (io.stopped) return false;
    ++io.visitors;
  }
  const bool entered = self->enter();
  if (entered) {
    work();
    self->leave();
  }
  MutexLock lock(io.mutex);
  if (--io.visitors == 0 && io.stopped) io.changed.notify_all();
  return entered;
}

void Strand::after(std::chrono::milliseconds delay, std::function<void()> work) const {
  MutexLock lock(machinery_->io->mutex);
  if (machinery_->io->stopped) return;
  const auto timer = std::make_shared<asio::steady_timer>(machinery_->io->io, delay);
  timer->async_wait(on(*this, [timer, work = std::move(work)](error_code error) {
    if (!error) work();
  }));
}

bool Strand::here() const { return machinery_->here(); }

std::chrono::nanoseconds now() { return std::chrono::steady_clock::now().time_since_epoch(); }

Strand Wiring::sibling(const Strand& strand) {
  return Strand(std::make_shared<Strand::Machinery>(strand.machinery_->io));
}

std::shared_ptr<Throttles> Wiring::throttles(const Strand& strand, double rate) {
  if (rate <= 0) return nullptr;
  IoThreads::Machinery& io = *strand.machinery_->io;
  MutexLock lock(io.mutex);
  if (!io.throttles) io.throttles = std::make_shared<Throttles>(rate);
  return io.throttles;
}

}  // namespace shoal::table
