// A thread that does work beside its owner's, in the order in which it was given.
#pragma once

#include <deque>
#include <functional>
#include <future>
#include <thread>
#include <utility>

#include "shoal/base/error.h"
#include "shoal/base/mutex.h"

namespace shoal::parallel {

class WorkThread {
 public:
  // Starts the thread. Call all functions on one thread, the owner's. Work computes and waits for
  // nothing, so a get() of its result does not wait for long. All work is done before the object
  // goes.
  WorkThread() : thread_([this] { run(); }) {}
  ~WorkThread() { put({}); }
  WorkThread(const WorkThread&) = delete;
  std::future<Status> give(std::function<Status()> work) {
    std::packaged_task<Status()> task(std::move(work));
    std::future<Status> result = task.get_future();
    put(std::move(task));
    return result;
  }

 private:
  // A task without work is the end.
  void put(std::packaged_task<Status()> task) {
    const MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
    more_.notify_one();
  }
  std::packaged_task<Status()> take() {
    const MutexLock lock(mutex_);
    const auto has_come = [this]() REQUIRES(mutex_) { return !tasks_.empty(); };
    while (!more_.wait_for(mutex_, std::chrono::seconds(1), has_come)) {
    }
    std::packaged_task<Status()> task = std::move(tasks_.front());
    tasks_.pop_front();
    return task;
  }
  void run() {
    for (auto task = take(); task.valid(); task = take()) task();
  }

  Mutex mutex_;
  Condition more_;
  std::deque<std::packaged_task<Status()>> tasks_ GUARDED_BY(mutex_);
  std::jthread thread_;
};

}  // namespace shoal::parallel
