// Implements the queue of batches: a reader thread, a pool and the caller.
#include "shoal/data/prefetch.h"

#include <algorithm>
#include <deque>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "shoal/base/log.h"
#include "shoal/base/mutex.h"

namespace shoal {
namespace {

using Clock = std::chrono::steady_clock;

// Idle threads look up this often, though a notification wakes them at once.
constexpr std::chrono::milliseconds kTick{1000};
// One thread takes so many of a batch: a lock for each would cost as much as a small copy.
constexpr int kItemsAtOnce = 8;
constexpr std::uint64_t kBadLogged = 20;

// Returns what work() returns, or else that its memory ran out: no exception may leave a thread.
template <class Work>
Status within_memory(const ItemSource& source, std::size_t records, Work work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return Error{Code::kConfig, str("out of memory for batches of ", records, " records of ",
                                    source.path(), "; a smaller batch_size or prefetch may fit")};
  }
}

}  // namespace

// A ring of `depth` + `held` batches: the last ones are the caller's. A slot goes kFree -> kFilling
// (reader) -> kMaking (pool) -> kReady -> kTaken -> kFree. Slots are used in turn, so the reader,
// the pool and the caller each need only a counter.
class Prefetch::Machinery {
 public:
  Machinery(ItemSource& source, const PrefetchOptions& options);
  ~Machinery();
  Result<const Batch*> next();
  bool ready();
  double seconds_waited() const { return std::chrono::duration<double>(waited_).count(); }

 private:
  struct Slot {
    Slot(std::size_t records, const PrefetchOptions& options)
        : batch(records, *options.device, options.form), items(records), bad(records) {}
    Batch batch;
    std::vector<Item> items;
    // One an item, written by the thread that makes the item.
    std::vector<std::optional<Error>> bad;
    std::optional<Error> error;
    // The size of the batch, once all its items are made and one is good.
    std::optional<ImageSize> size;
    int filled = 0, taken = 0, made = 0;  // items read, given to a pool thread, finished
    bool ready = false;
  };

  void read_batches();
  void make_items();
  bool wait_for_slot(Slot& slot);
  bool fill(Slot& slot);
  bool wait_until_made(Slot& slot);
  Status repair(Slot& slot);
  Status skip_bad(Slot& slot);
  Status replace_bad(Slot& slot);
  Status make_good(Slot& slot, std::size_t at, Item& item);
  void make(Slot& slot, std::size_t at, const Item& item);
  void fit(Slot& slot, std::size_t at, const Item& item);
  void fit_all(Slot& slot);
  void log_bad(const Error& error);
  void finish(Slot& slot);
  void make_alike(Batch& batch) const;
  void close(Batch& batch);
  Slot& slot(std::uint64_t batch) { return slots_[batch % slots_.size()]; }

  ItemSource& source_;
  const PrefetchOptions options_;
  // The counters below say which thread owns a slot's contents; mutex_ guards the counters.
  std::deque<Slot> slots_;
  std::uint64_t n_;              // reader: the next item
  std::uint64_t bad_seen_ = 0;   // reader
  std::optional<Error> failed_;  // caller: what every next() returns
  Clock::duration waited_{};     // caller
  Mutex mutex_;
  Condition slot_free_, work_, ready_;
  std::uint64_t published_ GUARDED_BY(mutex_) = 0;  // batches handed to the pool
  // The first batch with items not yet given to a thread.
  std::uint64_t making_ GUARDED_BY(mutex_) = 0;
  // Batches the caller has asked for; the last `held` of them are still in its hands.
  std::uint64_t consumed_ GUARDED_BY(mutex_) = 0;
  std::size_t largest_ GUARDED_BY(mutex_);  // bytes of the largest batch that was given out
  bool stop_ GUARDED_BY(mutex_) = false;
  std::vector<std::jthread> threads_;  // last, so joined before what they use
};

Prefetch::Machinery::Machinery(ItemSource& source, const PrefetchOptions& options)
    : source_(source), options_(options), n_(options.start), largest_(options.least_bytes) {
  CHECK(options.batch_size >= 1 && options.depth >= 1 && options.threads >= 1 && options.held >= 1)
      << options.batch_size << ' ' << options.depth << ' ' << options.threads << ' '
      << options.held;
  for (int i = 0; i < options.depth + options.held; ++i)
    slots_.emplace_back(static_cast<std::size_t>(options.batch_size), options);
  threads_.emplace_back([this] { read_batches(); });
  for (int i = 0; i < options.threads; ++i) threads_.emplace_back([this] { make_items(); });
}

Prefetch::Machinery::~Machinery() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  slot_free_.notify_all();
  work_.notify_all();
  ready_.notify_all();
}

// Returns false if the end has come.
bool Prefetch::Machinery::wait_for_slot(Slot& slot) {
  MutexLock lock(mutex_);
  const auto free = [&]() REQUIRES(mutex_) {
    return stop_ || published_ < consumed_ + static_cast<std::uint64_t>(options_.depth);
  };
  while (!slot_free_.wait_for(mutex_, kTick, free)) {
  }
  if (stop_) return false;  // the pool may still be at work on the slot
  slot.filled = slot.taken = slot.made = 0;
  slot.ready = false;
  slot.batch.open(largest_);
  return true;
}

void Prefetch::Machinery::read_batches() {
  for (std::uint64_t batch = 0;; ++batch) {
    Slot& slot = this->slot(batch);
    if (!wait_for_slot(slot)) return;
    const bool filled = fill(slot);
    {
      MutexLock lock(mutex_);
      slot.filled = filled ? options_.batch_size : 0;
      slot.ready = !filled;
      ++published_;
    }
    filled ? work_.notify_all() : ready_.notify_all();
    if (!filled) return;  // the source is broken; the caller finds out when it gets here
    if (options_.on_bad == OnBadRecord::kStop) continue;
    if (!wait_until_made(slot)) return;  // only now is it known where the next batch starts
    finish(slot);
    MutexLock lock(mutex_);
    if (stop_ || slot.error) return;
  }
}

bool Prefetch::Machinery::fill(Slot& slot) {
  slot.size.reset();
  const Status all = within_memory(source_, slot.items.size(), [&]() -> Status {
    for (std::size_t i = 0; i < slot.items.size(); ++i) {
      slot.items[i].n = n_++;
      slot.bad[i].reset();
      if (Status read = source_.read(slot.items[i]); !read.ok()) return read;
    }
    return {};
  });
  if (!all.ok()) slot.error = all.error();
  slot.batch.end = n_;
  return all.ok();
}

// Returns false if the end has come, and the pool may still be at work on the slot.
bool Prefetch::Machinery::wait_until_made(Slot& slot) {
  MutexLock lock(mutex_);
  while (!ready_.wait_for(mutex_, kTick, [&]() REQUIRES(mutex_) {
    return stop_ || slot.made == options_.batch_size;
  })) {
  }
  return !stop_;
}

void Prefetch::Machinery::finish(Slot& slot) {
  const Status repaired = within_memory(source_, slot.items.size(), [&] { return repair(slot); });
  {
    MutexLock lock(mutex_);
    if (!repaired.ok()) slot.error = repaired.error();
    slot.ready = true;
  }
  ready_.notify_all();
}

void Prefetch::Machinery::make_items() {
  for (;;) {
    Slot* slot = nullptr;
    int first = 0, last = 0;
    {
      MutexLock lock(mutex_);
      while (!work_.wait_for(mutex_, kTick,
                             [&]() REQUIRES(mutex_) { return stop_ || making_ < published_; })) {
      }
      if (stop_) return;
      slot = &this->slot(making_);
      first = slot->taken;
      last = slot->taken = std::min(first + kItemsAtOnce, slot->filled);
      if (slot->taken == slot->filled) ++making_;
    }
    for (int i = first; i < last; ++i)
      make(*slot, static_cast<std::size_t>(i), slot->items[static_cast<std::size_t>(i)]);
    bool all = false;
    {
      MutexLock lock(mutex_);
      slot->made += last - first;
      all = last > first && slot->made == options_.batch_size;
      if (all && options_.on_bad == OnBadRecord::kStop) slot->ready = true;
    }
    if (all) ready_.notify_all();
  }
}

void Prefetch::Machinery::make(Slot& slot, std::size_t at, const Item& item) {
  Sample& sample = slot.batch.samples[at];
  const Status made = within_memory(source_, slot.items.size(), [&] {
    Status tried = source_.make(item, sample);
    return tried.ok() ? tried : Status(bad_record(source_, item, tried.error()));
  });
  if (!made.ok()) slot.bad[at] = made.error();
  sample.name = item.name;
}

void Prefetch::Machinery::fit(Slot& slot, std::size_t at, const Item& item) {
  if (slot.bad[at]) return;
  const ImageSize& size = slot.batch.samples[at].size();
  if (!slot.size) slot.size = size;
  if (size != *slot.size) slot.bad[at] = bad_record(source_, item, misfit(size, *slot.size));
}

// Runs only when all items are made: the size must not hang on which thread was first.
void Prefetch::Machinery::fit_all(Slot& slot) {
  std::vector<std::pair<ImageSize, int>> counts;  // in the order met
  for (std::size_t i = 0; i < slot.items.size(); ++i) {
    if (slot.bad[i]) continue;
    const ImageSize& size = slot.batch.samples[i].size();
    auto found = std::ranges::find(counts, size, &std::pair<ImageSize, int>::first);
    if (found == counts.end()) found = counts.insert(found, {size, 0});
    ++found->second;
  }
  if (!counts.empty())
    slot.size = std::ranges::max_element(counts, {}, &std::pair<ImageSize, int>::second)->first;
  for (std::size_t i = 0; i < slot.items.size(); ++i) fit(slot, i, slot.items[i]);
}

void Prefetch::Machinery::log_bad(const Error& error) {
  if (++bad_seen_ > kBadLogged) return;
  LOG(WARNING) << error.message
               << (options_.on_bad == OnBadRecord::kSkip ? "; it is left out"
                                                         : "; another is put in its place")
               << (bad_seen_ == kBadLogged ? " (further ones are not logged)" : "");
}

// Reads and makes `item` for place `at`, moving item.n on past bad records.
Status Prefetch::Machinery::make_good(Slot& slot, std::size_t at, Item& item) {
  for (std::uint64_t tried = 0;; ++tried) {
    if (Status read = source_.read(item); !read.ok()) return read;
    slot.bad[at].reset();
    make(slot, at, item);
    fit(slot, at, item);
    if (!slot.bad[at]) return {};
    if (tried == kBadInARow)
      return Error{Code::kData, str("more than ", kBadInARow,
                                    " bad records in a row; the last: ", slot.bad[at]->message)};
    log_bad(*slot.bad[at]);
    ++item.n;
  }
}

Status Prefetch::Machinery::skip_bad(Slot& slot) {
  Batch& batch = slot.batch;
  std::size_t good = 0;
  for (std::size_t i = 0; i < slot.items.size(); ++i) {
    if (slot.bad[i]) {
      log_bad(*slot.bad[i]);
      continue;
    }
    if (good != i) batch.samples[good].copy_from(batch.samples[i]);
    ++good;
  }
  for (Item item; good < slot.items.size(); ++good) {
    item.n = n_;
    if (Status made = make_good(slot, good, item); !made.ok()) return made;
    n_ = item.n + 1;
  }
  batch.end = n_;
  return {};
}

Status Prefetch::Machinery::replace_bad(Slot& slot) {
  for (std::size_t i = 0; i < slot.items.size(); ++i) {
    if (!slot.bad[i]) continue;
    log_bad(*slot.bad[i]);
    Item item;
    item.n = slot.items[i].n + 1;
    if (Status made = make_good(slot, i, item); !made.ok()) return made;
  }
  return {};
}

Status Prefetch::Machinery::repair(Slot& slot) {
  fit_all(slot);
  if (std::ranges::none_of(slot.bad, [](const auto& bad) { return bad.has_value(); })) return {};
  Status repaired = options_.on_bad == OnBadRecord::kSkip ? skip_bad(slot) : replace_bad(slot);
  if (repaired.ok()) std::ranges::fill(slot.bad, std::nullopt);
  return repaired;
}

// A record of numbers among records of bytes makes all of them numbers.
void Prefetch::Machinery::make_alike(Batch& batch) const {
  if (std::ranges::all_of(batch.samples, &Sample::in_bytes)) return;
  std::vector<float> numbers;
  for (Sample& sample : batch.samples) {
    if (!sample.in_bytes()) continue;
    numbers.resize(static_cast<std::size_t>(sample.size().count()));
    source_.make_numbers(sample, numbers);
    std::ranges::copy(numbers, sample.resize(sample.size()).begin());
  }
}

void Prefetch::Machinery::close(Batch& batch) {
  make_alike(batch);
  std::size_t least = 0;
  {
    MutexLock lock(mutex_);
    least = largest_;
  }
  batch.close(least);
  MutexLock lock(mutex_);
  largest_ = std::max(largest_, batch.in_bytes() ? batch.number_bytes() : batch.numbers()->bytes());
}

bool Prefetch::Machinery::ready() {
  MutexLock lock(mutex_);
  return failed_ || (published_ > consumed_ && this->slot(consumed_).ready);
}

Result<const Batch*> Prefetch::Machinery::next() {
  if (failed_) return *failed_;
  const Clock::time_point before = Clock::now();
  Slot* slot = nullptr;
  bool came = false;
  {
    MutexLock lock(mutex_);
    slot = &this->slot(consumed_);
    ++consumed_;  // gives the batch of `held` calls ago back
  }
  slot_free_.notify_one();
  for (int tenth = 0; tenth < 10 && !came; ++tenth) {
    MutexLock lock(mutex_);
    came = ready_.wait_for(mutex_, options_.deadline / 10, [&]() REQUIRES(mutex_) {
      return published_ >= consumed_ && slot->ready;
    });
    if (!came)
      LOG(WARNING)
          << "has waited for records of " << source_.path() << " for "
          << std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - before).count()
          << " s";
  }
  waited_ += Clock::now() - before;
  if (!came) {
    failed_ = Error{Code::kTimeout, str("no batch came from ", source_.path(), " within ",
                                        options_.deadline.count() / 1000, " s")};
    return *failed_;
  }
  failed_ = slot->error;
  if (!failed_ && options_.on_bad == OnBadRecord::kStop) fit_all(*slot);  // else the repair has
  for (std::size_t i = 0; !failed_ && i < slot->bad.size(); ++i) failed_ = slot->bad[i];
  if (failed_) return *failed_;
  close(slot->batch);
  return &slot->batch;
}

Prefetch::Prefetch(ItemSource& source, const PrefetchOptions& options)
    : machinery_(std::make_unique<Machinery>(source, options)) {}
Prefetch::~Prefetch() = default;
Result<const Batch*> Prefetch::next() { return machinery_->next(); }
bool Prefetch::ready() const { return machinery_->ready(); }
double Prefetch::seconds_waited() const { return machinery_->seconds_waited(); }

int default_decode_threads(bool decodes_pictures) {
  if (!decodes_pictures) return 1;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 2, 1, 4);
}

}  // namespace shoal
