// Batches made ahead: the same whatever the number of threads, errors that travel with their batch,
// an end that waits for nothing.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "shoal/base/mutex.h"
#include "shoal/data/prefetch.h"
#include "shoal/proto/layers.pb.h"
#include "support/data_files.h"

namespace shoal::test::data_prefetch_test {
namespace {

// Item n holds n, n + 0.5; those in `bad` cannot be made; the record at `broken` cannot even be
// read.
class Numbers final : public ItemSource {
 public:
  const std::string& path() const override { return path_; }
  Status read(Item& item) override {
    if (item.n == broken) return Error{Code::kData, "the source broke"};
    if (item.n == too_large) throw std::bad_alloc();
    item.name = str("#", item.n);
    return {};
  }
  Result<ItemKind> kind(const Item&) const override { return ItemKind{{2, 1, 1}, false}; }
  Status make(const Item& item, Sample& sample) const override {
    ++made;
    if (held) {
      MutexLock lock(mutex);
      while (!opened.wait_for(mutex, std::chrono::seconds(1), [&] { return open; })) {
      }
    }
    if (bad && bad(item.n)) return Error{Code::kData, "is bad"};
    if (item.n == too_large_when_made) throw std::bad_alloc();
    const std::span<float> numbers = sample.resize({2, 1, width ? width(item.n) : 1});
    std::ranges::fill(numbers, static_cast<float>(item.n) + 0.5f);
    numbers[0] = static_cast<float>(item.n);
    sample.label = static_cast<float>(item.n % 3);
    return {};
  }
  void let_go() {
    MutexLock lock(mutex);
    open = true;
    opened.notify_all();
  }
  std::function<bool(std::uint64_t)> bad;
  std::function<int(std::uint64_t)> width;  // of item n, if not 1
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  std::uint64_t broken = kNone, too_large = kNone, too_large_when_made = kNone;
  mutable std::atomic<int> made = 0;
  bool held = false;  // make waits for let_go
  mutable Mutex mutex;
  mutable Condition opened;
  bool open = false;

 private:
  std::string path_ = "numbers";
};

PrefetchOptions options(int batch_size, int threads) {
  PrefetchOptions made;
  made.batch_size = batch_size;
  made.threads = threads;
  return made;
}

// Checks that the batch's numbers and labels lie one record after the other, and writes over them:
// a batch is the caller's until the next one is taken.
void check_and_spoil(const Batch& batch) {
  float* numbers = reinterpret_cast<float*>(batch.numbers()->data());
  float* labels = reinterpret_cast<float*>(batch.labels()->data());
  const std::size_t all = batch.samples.size() * static_cast<std::size_t>(batch.size().count());
  ASSERT_GE(batch.numbers()->bytes(), all * sizeof(float));
  float* at = numbers;
  for (std::size_t i = 0; i < batch.samples.size(); ++i) {
    EXPECT_EQ(batch.samples[i].data().data(), at);
    EXPECT_EQ(batch.samples[i].label, labels[i]);
    at += batch.samples[i].data().size();
  }
  std::fill(numbers, numbers + all, -1.0f);
  std::fill(labels, labels + batch.samples.size(), -1.0f);
}

// The first number of each item of the next `batches` batches.
std::vector<int> drain(Prefetch& prefetch, int batches) {
  std::vector<int> numbers;
  for (int b = 0; b < batches; ++b) {
    const Result<const Batch*> batch = prefetch.next();
    if (!batch.ok()) {
      ADD_FAILURE() << batch.error().message;
      return numbers;
    }
    for (const Sample& sample : batch.value()->samples) {
      numbers.push_back(static_cast<int>(sample.data()[0]));
      EXPECT_EQ(sample.size(), batch.value()->size());
      EXPECT_EQ(static_cast<std::int64_t>(sample.data().size()), sample.size().count());
      EXPECT_EQ(sample.data().back(), sample.data()[0] + 0.5f);
      EXPECT_EQ(sample.label, static_cast<float>(numbers.back() % 3));
      EXPECT_EQ(sample.name, str("#", numbers.back()));
    }
    check_and_spoil(*batch.value());
  }
  return numbers;
}

std::vector<int> count_from(int first, int count) {
  std::vector<int> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(first + i);
  return numbers;
}

// No exception leaves a thread, which would end the process.
TEST(DataPrefetch, WantOfMemoryIsAnError) {
  for (const bool when_made : {false, true})
    for (const OnBadRecord on_bad : {OnBadRecord::kStop, OnBadRecord::kSkip}) {
      Numbers source;
      (when_made ? source.too_large_when_made : source.too_large) = 5;
      PrefetchOptions some = options(4, 2);
      some.on_bad = on_bad;
      Prefetch prefetch(source, some);
      ASSERT_TRUE(prefetch.next().ok());
      const Result<const Batch*> second = prefetch.next();
      if (when_made && on_bad == OnBadRecord::kSkip) {
        EXPECT_TRUE(second.ok()) << "a record that cannot be made is left out";
        continue;
      }
      ASSERT_FALSE(second.ok());
      EXPECT_EQ(second.error().code, Code::kConfig);
      EXPECT_EQ(second.error().message,
                "out of memory for batches of 4 records of numbers; a smaller batch_size or "
                "prefetch may fit");
    }
}

TEST(DataPrefetch, BatchesComeInOrderWhateverTheThreads) {
  for (const int threads : {1, 2, 3, 4})
    for (const int batch_size : {1, 7, 8, 9, 64}) {
      Numbers source;
      PrefetchOptions chosen = options(batch_size, threads);
      chosen.depth = 1 + threads % 3;
      chosen.start = 11;
      Prefetch prefetch(source, chosen);
      EXPECT_EQ(drain(prefetch, 20), count_from(11, 20 * batch_size));
      EXPECT_EQ(prefetch.next().value()->end, 11u + 21u * static_cast<unsigned>(batch_size));
    }
}

TEST(DataPrefetch, StopsAtTheFirstBadRecordOfTheBatchAndStaysStopped) {
  for (const int threads : {1, 4}) {
    Numbers source;
    source.bad = [](std::uint64_t n) { return n >= 45; };
    Prefetch prefetch(source, options(20, threads));
    EXPECT_EQ(drain(prefetch, 2), count_from(0, 40));
    for (int again = 0; again < 3; ++again) {
      const Result<const Batch*> batch = prefetch.next();
      ASSERT_FALSE(batch.ok());
      EXPECT_EQ(batch.error().message, "the record #45 of numbers is bad");
    }
  }
}

TEST(DataPrefetch, SkipLeavesBadRecordsOutAndCountsThem) {
  for (const int threads : {1, 4}) {
    Numbers source;
    source.bad = [](std::uint64_t n) { return n % 5 == 1 || (n > 20 && n < 40); };
    PrefetchOptions chosen = options(10, threads);
    chosen.on_bad = OnBadRecord::kSkip;
    std::vector<int> want;
    for (int n = 0; want.size() < 60; ++n)
      if (!source.bad(static_cast<std::uint64_t>(n))) want.push_back(n);
    std::vector<int> got;
    std::uint64_t end = 0;
    {
      Prefetch prefetch(source, chosen);
      for (int i = 0; i < 3; ++i) {
        const Result<const Batch*> batch = prefetch.next();
        ASSERT_OK(batch);
        for (const Sample& sample : batch.value()->samples)
          got.push_back(static_cast<int>(sample.data()[0]));
        end = batch.value()->end;
      }
    }
    chosen.start = end;  // goes on where the third batch ended
    Prefetch resumed(source, chosen);
    const std::vector<int> rest = drain(resumed, 3);
    got.insert(got.end(), rest.begin(), rest.end());
    EXPECT_EQ(got, want);
  }
}

TEST(DataPrefetch, ReplaceTakesTheNextGoodRecord) {
  for (const int threads : {1, 4}) {
    Numbers source;
    source.bad = [](std::uint64_t n) { return n == 3 || n == 4 || n == 9; };
    PrefetchOptions chosen = options(5, threads);
    chosen.on_bad = OnBadRecord::kReplace;
    Prefetch prefetch(source, chosen);
    EXPECT_EQ(drain(prefetch, 3),
              (std::vector<int>{0, 1, 2, 5, 5, 5, 6, 7, 8, 10, 10, 11, 12, 13, 14}));
  }
}

// Five items 1 wide, five 2, five 3, and again; but 8 and 15 are 7 wide.
int width_of(std::uint64_t n) { return n == 8 || n == 15 ? 7 : 1 + static_cast<int>(n / 5 % 3); }

TEST(DataPrefetch, EachBatchHasASizeOfItsOwn) {
  for (const int threads : {1, 2, 4}) {
    Numbers source;
    source.width = [](std::uint64_t n) { return 1 + static_cast<int>(n / 9 % 5); };
    Prefetch prefetch(source, options(9, threads));
    std::size_t largest = 0;
    for (int batch = 0; batch < 20; ++batch) {
      const Result<const Batch*> got = prefetch.next();
      ASSERT_OK(got);
      EXPECT_GE(got.value()->numbers()->bytes(), largest) << "smaller than a batch before";
      largest = got.value()->numbers()->bytes();
      EXPECT_EQ(got.value()->size(), (ImageSize{2, 1, 1 + batch % 5}));
      EXPECT_EQ(got.value()->samples[8].data().size(),
                static_cast<std::size_t>(2 * (1 + batch % 5)));
      EXPECT_EQ(got.value()->samples[8].data()[0], static_cast<float>(9 * batch + 8));
    }
  }
}

TEST(DataPrefetch, AnotherSizeInABatchIsABadRecord) {
  for (const int threads : {1, 4}) {
    Numbers source;
    source.width = width_of;
    Prefetch stop(source, options(5, threads));
    EXPECT_EQ(drain(stop, 1), count_from(0, 5));
    EXPECT_FAILS_WITH(
        "the record #8 of numbers is 2 x 1 x 7 where 2 x 1 x 2 is wanted, the size of its batch",
        stop.next());
    EXPECT_FAILS_WITH("the record #8 of numbers is 2 x 1 x 7", stop.next());
  }
}

TEST(DataPrefetch, MostGoodRecordsSayTheSize) {
  for (const int threads : {1, 4}) {
    Numbers source;
    source.width = width_of;
    source.bad = [](std::uint64_t n) { return n == 5; };  // whose size nobody knows
    PrefetchOptions chosen = options(5, threads);
    chosen.on_bad = OnBadRecord::kReplace;
    Prefetch replace(source, chosen);
    EXPECT_EQ(drain(replace, 4), (std::vector<int>{0,  1,  2,  3,  4,  6,  6,  7,  9,  9,
                                                   10, 11, 12, 13, 14, 16, 16, 17, 18, 19}));
    chosen.on_bad = OnBadRecord::kSkip;
    chosen.start = 4;
    Prefetch skip(source, chosen);
    EXPECT_EQ(drain(skip, 1), (std::vector<int>{6, 7, 9, 20, 21}));
    EXPECT_EQ(drain(skip, 1), (std::vector<int>{22, 23, 24, 35, 36}));
    chosen.start = 22;
    Prefetch resumed(source, chosen);
    EXPECT_EQ(drain(resumed, 1), (std::vector<int>{22, 23, 24, 35, 36}));
    Numbers growing;
    growing.width = [](std::uint64_t n) { return 1 + static_cast<int>(n); };
    Prefetch none_alike(growing, chosen);
    EXPECT_FAILS_WITH("more than 1000 bad records in a row; the last: the record #",
                      none_alike.next());
  }
}

TEST(DataPrefetch, NothingGoodIsAnErrorUnderEveryPolicy) {
  for (const OnBadRecord policy : {OnBadRecord::kStop, OnBadRecord::kSkip, OnBadRecord::kReplace}) {
    Numbers source;
    source.bad = [](std::uint64_t) { return true; };
    PrefetchOptions chosen = options(4, 2);
    chosen.on_bad = policy;
    Prefetch prefetch(source, chosen);
    EXPECT_FAILS_WITH("is bad", prefetch.next());
  }
}

TEST(DataPrefetch, ABrokenSourceEndsTheRunWhenItsBatchIsDue) {
  for (const OnBadRecord policy : {OnBadRecord::kStop, OnBadRecord::kSkip}) {
    Numbers source;
    source.broken = 25;
    PrefetchOptions chosen = options(10, 2);
    chosen.on_bad = policy;
    Prefetch prefetch(source, chosen);
    EXPECT_EQ(drain(prefetch, 2), count_from(0, 20));
    EXPECT_FAILS_WITH("the source broke", prefetch.next());
    EXPECT_FAILS_WITH("the source broke", prefetch.next());
  }
}

TEST(DataPrefetch, EndsWhileTheQueueIsFull) {
  for (const OnBadRecord policy : {OnBadRecord::kStop, OnBadRecord::kSkip}) {
    Numbers source;
    PrefetchOptions chosen = options(4, 2);
    chosen.on_bad = policy;
    Prefetch prefetch(source, chosen);
    ASSERT_OK(prefetch.next());
    // Makes at least as many as there is room for.
    while (source.made < 4 * 4) std::this_thread::yield();
  }
}

TEST(DataPrefetch, EndsBeforeAnythingWasAsked) {
  for (int i = 0; i < 50; ++i) {
    Numbers source;
    PrefetchOptions chosen = options(100, 3);
    chosen.on_bad = i % 2 ? OnBadRecord::kSkip : OnBadRecord::kStop;
    const Prefetch prefetch(source, chosen);
  }
}

TEST(DataPrefetch, NeverRunsFurtherAheadThanItMay) {
  Numbers source;
  PrefetchOptions chosen = options(4, 1);
  chosen.depth = 2;
  Prefetch prefetch(source, chosen);
  for (int batch = 0; batch < 50; ++batch) {
    ASSERT_OK(prefetch.next());
    EXPECT_LE(source.made, 4 * (batch + 1 + 2));  // what was given out, and two batches
  }
}

TEST(DataPrefetch, ABatchThatDoesNotComeIsATimeOut) {
  Numbers source;
  source.held = true;
  PrefetchOptions chosen = options(4, 1);
  chosen.deadline = std::chrono::milliseconds(50);
  Prefetch prefetch(source, chosen);
  const Result<const Batch*> batch = prefetch.next();
  ASSERT_FALSE(batch.ok());
  EXPECT_EQ(batch.error().code, Code::kTimeout);
  EXPECT_GE(prefetch.seconds_waited(), 0.05);
  source.let_go();
}

}  // namespace
}  // namespace shoal::test::data_prefetch_test
