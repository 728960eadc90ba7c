// The threads that move bytes, and the strands that keep state on one of them at a time. Asio stays
// behind these names: users of strands and links include no Asio.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "shoal/base/timer.h"
#include "shoal/table/pacer.h"

namespace shoal::table {

// The only maker of input and output threads. Joins them when destroyed; what is posted after that
// is not run. Strands, links and listeners may outlive it: they then do nothing.
class IoThreads {
 public:
  explicit IoThreads(int threads);
  ~IoThreads();
  IoThreads(const IoThreads&) = delete;
  // Returns when no handler runs any more. Handlers that wait are thrown away. Not to be called
  // from a handler.
  void stop();

  struct Machinery;  // for files that include Asio
  const std::shared_ptr<Machinery> machinery;
};

// Functions given to a strand run one after the other, in order. Copies are the same strand.
class Strand {
 public:
  explicit Strand(IoThreads& threads);
  Strand sibling() const;  // another of the same threads
  // Runs `work` on some thread of its IoThreads, later.
  void post(std::function<void()> work) const;
  // Runs `work` before this returns if the caller is on the strand already, or is another strand's
  // work on a thread of its IoThreads and nothing is on this one; else as post(). Saves a turn of
  // the threads' queue.
  void run(std::function<void()> work) const;
  // Runs `work` before this returns, on the caller's thread, which is none of the IoThreads.
  // Returns false, without running it, if something is on the strand or the IoThreads have stopped.
  bool try_run(const std::function<void()>& work) const;
  // Runs `work` on this strand after `delay`, unless the IoThreads stop first.
  void after(std::chrono::nanoseconds delay, std::function<void()> work) const;
  // Posts `work` and waits until it has run; false if it has not within this time, which is long
  // for a strand that nothing holds up.
  bool call(std::function<void()> work, milliseconds within = std::chrono::seconds(10)) const;
  bool here() const;  // whether the caller runs on it

  struct Machinery;  // likewise
  std::shared_ptr<Machinery> machinery;
};

// Returns a monotonic clock's time.
Instant now();

}  // namespace shoal::table
