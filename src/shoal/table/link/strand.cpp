#include "shoal/table/link/strand.h"

#include "shoal/base/log.h"
#include "shoal/table/link/asio.h"

namespace shoal::table {

IoThreads::IoThreads(int threads) : machinery_(std::make_shared<Machinery>(threads)) {
  CHECK(threads >= 1) << threads << " threads for input and output";
  for (; threads > 0; --threads) machinery_->threads.emplace_back([io = &machinery_->io] { io->run(); });
}

IoThreads::~IoThreads() { stop(); }

void IoThreads::stop() {
  {
    MutexLock lock(machinery_->mutex);
    machinery_->stopped = true;
  }
  for (const std::jthread& thread : machinery_->threads) CHECK(thread.get_id() != std::this_thread::get_id()) << "threads cannot wait for themselves";
  machinery_->io.stop();
  machinery_->threads.clear();
  machinery_->io.drain();
}

Strand::Strand(IoThreads& threads)
    : machinery_(std::make_shared<Machinery>(Machinery{threads.machinery_, asio::make_strand(threads.machinery_->io)})) {}
Strand::Strand(std::shared_ptr<Machinery> machinery) : machinery_(std::move(machinery)) {}

void Strand::post(std::function<void()> work) const {
  MutexLock lock(machinery_->io->mutex);
  if (!machinery_->io->stopped) asio::post(machinery_->strand, std::move(work));
}

void Strand::after(std::chrono::milliseconds delay, std::function<void()> work) const {
  MutexLock lock(machinery_->io->mutex);
  if (machinery_->io->stopped) return;
  const auto timer = std::make_shared<asio::steady_timer>(machinery_->io->io, delay);
  timer->async_wait(on(*this, [timer, work = std::move(work)](error_code error) {
    if (!error) work();
  }));
}

bool Strand::here() const { return machinery_->strand.running_in_this_thread(); }

std::chrono::nanoseconds now() { return std::chrono::steady_clock::now().time_since_epoch(); }

Strand Wiring::sibling(const Strand& strand) {
  const auto& io = strand.machinery_->io;
  return Strand(std::make_shared<Strand::Machinery>(Strand::Machinery{io, asio::make_strand(io->io)}));
}

std::shared_ptr<Throttles> Wiring::throttles(const Strand& strand, double rate) {
  if (rate <= 0) return nullptr;
  IoThreads::Machinery& io = *strand.machinery_->io;
  MutexLock lock(io.mutex);
  if (!io.throttles) io.throttles = std::make_shared<Throttles>(rate);
  return io.throttles;
}

}  // namespace shoal::table
