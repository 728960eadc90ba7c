#include "shoal/simulate/failures.h"

#include <cmath>

namespace shoal::simulate {
namespace {

constexpr std::uint64_t kFailures = std::uint64_t{1} << 40;  // beyond those of links

}  // namespace

Failures::Failures(const Cluster& cluster, std::uint64_t seed, table::VirtualTime& time,
                   Hooks hooks)
    : time_(time), hooks_(std::move(hooks)) {
  for (const Process& process : cluster.processes) {
    if (!process.worker) continue;
    const int worker = static_cast<int>(places_.size());
    places_.push_back({.failure = process.failure ? &*process.failure : nullptr,
                       .random = Random(seed, kFailures + static_cast<std::uint64_t>(worker))});
    if (!process.failure) continue;
    for (const double seconds : process.failure->at)
      at(to_instant(seconds), [this, worker] { fail(worker); });
    draw(worker);
  }
}

void Failures::at(Instant when, std::function<void()> work) {
  ++waiting_;
  time_.at(when, [this, work = std::move(work)] {
    --waiting_;
    work();
  });
}

// Draws when the process that is there fails, unless another time of failure comes first.
void Failures::draw(int worker) {
  Place& place = places_[static_cast<std::size_t>(worker)];
  if (place.failure->mtbf <= 0) return;
  const double after =
      -place.failure->mtbf * std::log(1 - static_cast<double>(place.random.unit()));
  at(time_.now() + to_instant(after), [this, worker, process = place.processes] {
    if (places_[static_cast<std::size_t>(worker)].processes == process) fail(worker);
  });
}

void Failures::fail(int worker) {
  if (!hooks_.fail(worker)) return;
  Place& place = places_[static_cast<std::size_t>(worker)];
  ++place.processes;
  if (!place.failure->repair) return;
  at(time_.now() + to_instant(*place.failure->repair), [this, worker] {
    hooks_.come_back(worker);
    draw(worker);
  });
}

}  // namespace shoal::simulate
