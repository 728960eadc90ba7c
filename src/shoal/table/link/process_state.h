// The state that the parts of one process of a job share: the state of the job, its processes, and
// the traffic of this process's connections. Every member may be called on any thread.
#pragma once

#include <deque>
#include <map>
#include <set>

#include "shoal/base/address.h"
#include "shoal/base/mutex.h"
#include "shoal/table/broken.h"
#include "shoal/table/link/link.h"

namespace shoal::table {

class ProcessState {
 public:
  static constexpr milliseconds kForever{std::chrono::hours(24 * 365)};

  explicit ProcessState(const ServiceOptions& options);

  const ServiceOptions options;
  const Credentials self;
  std::atomic<Rank> coordinator;  // the process that coordinates, as far as this one knows
  LinkOptions link_options() const;
  // The limit of all connections of this process; null: none.
  const std::shared_ptr<Throttles> throttles;
  std::atomic<Clock> clock{-1};        // of this process's worker, for heartbeats
  std::shared_ptr<Handover> handover;  // set before there are links; null: all goes over TCP
  const std::shared_ptr<TrafficCounters> traffic = std::make_shared<TrafficCounters>();
  const std::shared_ptr<LastWords> last_words = std::make_shared<LastWords>();

  // Fails the job. The first error is the job's. An error after the end of all workers is not
  // counted.
  void fail(Error error) {
    MutexLock lock(mutex);
    if (over_) return;
    error_ = std::move(error);
    over_ = true;
    changed.notify_all();
  }
  void finish(Want want = Want::kNothing) {
    MutexLock lock(mutex);
    if (error_) return;
    requeued_ = want == Want::kRequeue;
    finished_ = over_ = true;
    changed.notify_all();
  }
  // Notes that this process leaves the job, which is over for it.
  void leave() {
    left_ = true;
    finish();
  }
  bool left() const { return left_; }
  // Returns whether all have stopped, and are to be continued.
  bool requeued() const { return requeued_; }
  // Notes that the process of this rank has left, or is counted out since it was lost: the end of
  // its connections is no news.
  void let_go(Rank rank) {
    MutexLock lock(mutex);
    gone_.insert(rank);
  }
  bool is_gone(Rank rank) const {
    MutexLock lock(mutex);
    return gone_.contains(rank);
  }
  // Returns the same, within done() of wait().
  bool is_gone_locked(Rank rank) const REQUIRES(mutex) { return gone_.contains(rank); }
  // Gives the rank to the process with this key, if the rank has none here; zeros are no key. It
  // belongs to that from then on.
  void bind(Rank rank, const PublicKey& key);
  // Returns the key of the rank, if this process knows it.
  std::optional<PublicKey> key_of(Rank rank) const {
    MutexLock lock(mutex);
    const auto found = keys_.find(rank);
    return found == keys_.end() ? std::nullopt : std::optional(found->second);
  }
  // Sets what is called, on any thread, when keys are known that were not.
  void on_keys(std::function<void()> then);
  // Notes that the process of this rank was reached at its address: if that is refused later, the
  // process is gone.
  void note_reached(Rank rank) {
    MutexLock lock(mutex);
    reached_.insert(rank);
  }
  bool was_reached(Rank rank) const {
    MutexLock lock(mutex);
    return reached_.contains(rank);
  }
  bool finished() const { return finished_; }
  // Returns whether the job has failed or finished: a connection that ends now is no loss.
  bool over() const { return over_; }
  // Returns the job's error.
  Status status() const {
    MutexLock lock(mutex);
    return error_ ? Status(*error_) : Status();
  }

  // Takes the roster. A known roster changes nothing.
  void know(RosterBody roster);
  // Returns the last roster; null before the first. Each stays as long as this.
  const RosterBody* roster() const { return roster_; }
  // Returns where to dial a process of the roster; "" if it is not in it.
  std::string address_of(Rank rank) const;
  // Returns where the process is that coordinates, as far as this one knows.
  std::string where_coordinator_is() const {
    return roster() ? address_of(coordinator) : options.coordinator;
  }
  // Returns the highest clock that a connection has heard from the rank, of those passed here.
  Clock heard(Rank rank, Clock clock);
  // Returns "rank 2 (host b, last clock 17)", as far as these are known, after heard().
  std::string name_of(Rank rank, Clock clock = -1);
  // Returns whether to warn of the rank's silence: once in two stall_warn, since several
  // connections notice it, each by its own last message.
  bool silence_is_news(Rank rank);

  // Guards the data that done() of wait() reads. A change of them notifies `changed`.
  mutable Mutex mutex;
  Condition changed;
  // All messages to or from the coordinator have arrived where it is connected: those of this
  // process, and of the others if it is here.
  bool idle GUARDED_BY(mutex) = true, host_idle GUARDED_BY(mutex) = true;
  // Waits until done(), which is called with the mutex held, is true. Returns the job's error if it
  // fails, or kTimeout without words after `deadline`. Calls late(seconds waited), without the
  // mutex, after each options.stall_warn.
  template <class Done, class Late>
  Status wait(Done done, Late late, milliseconds deadline = kForever);

 private:
  std::optional<Error> error_ GUARDED_BY(mutex);
  std::atomic<bool> finished_{false}, over_{false}, left_{false}, requeued_{false};
  std::set<Rank> gone_ GUARDED_BY(mutex), reached_ GUARDED_BY(mutex);
  std::map<Rank, PublicKey> keys_ GUARDED_BY(mutex);
  std::function<void()> on_keys_ GUARDED_BY(mutex);
  std::map<Rank, Clock> heard_ GUARDED_BY(mutex);
  std::map<Rank, Instant> warned_ GUARDED_BY(mutex);
  std::deque<RosterBody> rosters_ GUARDED_BY(mutex);
  std::atomic<const RosterBody*> roster_{nullptr};
};

template <class Done, class Late>
Status ProcessState::wait(Done done, Late late, milliseconds deadline) {
  const Instant begin = now();
  const auto waited = [&] { return std::chrono::duration_cast<milliseconds>(now() - begin); };
  milliseconds next_late = options.stall_warn;
  for (;;) {
    {
      MutexLock lock(mutex);
      const milliseconds until =
          std::min({milliseconds(1000), deadline - waited(), next_late - waited()});
      const auto ends = [&]() SHOAL_THREAD_ANNOTATION(no_thread_safety_analysis) {
        return error_ || done();
      };
      const bool ended = changed.wait_for(mutex, std::max(until, milliseconds(1)), ends);
      if (error_) return *error_;
      if (ended) return {};
    }
    if (waited() >= deadline) return Error{Code::kTimeout, ""};
    if (waited() < next_late) continue;
    late(to_seconds(waited()));
    next_late += options.stall_warn;
  }
}

// Returns when the work in the threads' queue now has run, or after a second.
void let_run(IoThreads& threads);

// Returns whether a host stands for "where its connection comes from".
bool is_anywhere(const std::string& host);

}  // namespace shoal::table
