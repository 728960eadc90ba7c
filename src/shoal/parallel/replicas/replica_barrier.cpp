#include "shoal/parallel/replicas/replica_barrier.h"
#include "shoal/base/try.h"

#include <algorithm>
#include <chrono>

namespace shoal::parallel {
namespace {

// Replicas do the same work at the same time: one that is so far behind will not come.
constexpr std::chrono::minutes kPatience{10};

Error too_late(std::size_t replica, const std::string& what) {
  return {Code::kTimeout,
          str("replica ", replica, " has not finished ", what, " in ", kPatience.count(),
              " minutes, though the others have: is its data out of reach?")};
}

}  // namespace

ReplicaBarrier::ReplicaBarrier(int replicas, int layers)
    : layers_(layers), progress_(static_cast<std::size_t>(replicas) - 1) {}

bool ReplicaBarrier::all_finished() const {
  return std::ranges::all_of(
      progress_, [begun = begun_](const Progress& progress) { return progress.finished == begun; });
}

Status ReplicaBarrier::wait_finished_locked() {
  if (changed_.wait_for(mutex_, kPatience, [this]() REQUIRES(mutex_) { return all_finished(); }))
    return {};
  const auto late =
      std::ranges::find_if(progress_, [this](const Progress& progress)
                                          REQUIRES(mutex_) { return progress.finished != begun_; });
  return too_late(static_cast<std::size_t>(late - progress_.begin()) + 1, "its iteration");
}

Status ReplicaBarrier::begin() {
  TRY(give_up());
  const MutexLock lock(mutex_);
  ++begun_;
  ready_ = 0;
  given_up_ = false;
  for (Progress& progress : progress_) progress.layer = layers_, progress.error.reset();
  changed_.notify_all();
  return {};
}

void ReplicaBarrier::params_ready(int layer) {
  const MutexLock lock(mutex_);
  ready_ = std::max(ready_, layer + 1);
  changed_.notify_all();
}

Status ReplicaBarrier::wait_backward(int layer) {
  const MutexLock lock(mutex_);
  for (std::size_t i = 0; i < progress_.size(); ++i) {
    const Progress& progress = progress_[i];
    const bool came = changed_.wait_for(mutex_, kPatience,
                                        [&] { return progress.layer <= layer || progress.error; });
    if (progress.error)
      return Error{progress.error->code, str("replica ", i + 1, ": ", progress.error->message)};
    if (!came) return too_late(i + 1, str("the backward of layer ", layer));
  }
  return {};
}

Status ReplicaBarrier::wait_finished() {
  const MutexLock lock(mutex_);
  TRY(wait_finished_locked());
  for (const Progress& progress : progress_)
    if (progress.error) return *progress.error;
  return {};
}

Status ReplicaBarrier::give_up() {
  const MutexLock lock(mutex_);
  given_up_ = true;
  changed_.notify_all();
  return wait_finished_locked();
}

void ReplicaBarrier::close() {
  const MutexLock lock(mutex_);
  given_up_ = closed_ = true;
  changed_.notify_all();
}

bool ReplicaBarrier::wait_begin(int replica) {
  const MutexLock lock(mutex_);
  Progress& progress = progress_[static_cast<std::size_t>(replica) - 1];
  const auto called = [&]() REQUIRES(mutex_) { return closed_ || progress.begun < begun_; };
  // A test between two iterations may take hours.
  while (!changed_.wait_for(mutex_, kPatience, called)) {
  }
  progress.begun = begun_;
  return !closed_;
}

Status ReplicaBarrier::wait_params(int layer) {
  const MutexLock lock(mutex_);
  const auto settled = [&]() REQUIRES(mutex_) { return given_up_ || layer < ready_; };
  // The solver's own wait has a deadline, and gives up after it.
  while (!changed_.wait_for(mutex_, kPatience, settled)) {
  }
  if (given_up_ && layer >= ready_) return Error{Code::kInternal, "the iteration was given up"};
  return {};
}

void ReplicaBarrier::finished_backward(int replica, int layer) {
  const MutexLock lock(mutex_);
  progress_[static_cast<std::size_t>(replica) - 1].layer = layer;
  changed_.notify_all();
}

void ReplicaBarrier::finished(int replica, Status status) {
  const MutexLock lock(mutex_);
  Progress& progress = progress_[static_cast<std::size_t>(replica) - 1];
  progress.finished = progress.begun;
  if (!status.ok()) progress.error = status.error();
  changed_.notify_all();
}

}  // namespace shoal::parallel
